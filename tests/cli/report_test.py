"""Tests of `xlflax report`."""

import re

import pytest

from tests.errors import raises_error
from xlflax import cli
from xlflax.utils import errors


@pytest.fixture
def runs(tmp_path, monkeypatch):
  for name in ('a', 'b'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'metrics.jsonl').write_text(
      '{"step": 1, "train": {"loss": 1.5}}\n'
    )
  (tmp_path / 'suite' / 'report').mkdir(parents=True)
  (tmp_path / 'suite' / 'report' / 'scores.json').write_text('{}')
  monkeypatch.chdir(tmp_path)
  return tmp_path


def test_report_compares_runs(runs, capsys):
  assert cli.main(['report', 'First=a', 'b', '--output=out']) == 0
  assert capsys.readouterr().out.strip() == 'out/report.html'
  text = (runs / 'out' / 'report.html').read_text()
  cells = re.findall('<td[^>]*>(.*?)</td>', text)
  assert {'First', 'b'} <= set(cells)


@pytest.mark.parametrize(
  'arguments, error, fields',
  [
    (['x=a', 'x=b'], errors.ConfigError, {'got': 'x, x'}),
    (['aa'], errors.RunDirectoryError, {'got': 'aa'}),
    (
      ['x=a,b', 'y=b,a'],
      errors.ConfigError,
      {'got': 'x=a,b', 'mentions': '--new_languages'},
    ),
    (['a,aa', 'b'], errors.ConfigError, {'mentions': '--new_languages'}),
    (['suite,b', 'suite'], errors.ConfigError, {'mentions': '--new_languages'}),
    (
      ['a', 'suite'],
      errors.ConfigError,
      {'mentions': ('run directories (1)', 'suite outputs (1)')},
    ),
    (['a', '--baseline=b'], errors.ConfigError, {'mentions': '--baseline'}),
    ([], errors.ConfigError, {'where': 'xlflax report'}),
  ],
)
def test_invalid_arguments_are_rejected(runs, arguments, error, fields):
  with raises_error(error, **fields):
    cli.parse('report', [*arguments, '--output=out'])()
  assert not (runs / 'out').exists()
