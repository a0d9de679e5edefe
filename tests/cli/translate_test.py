"""Tests of `xlflax translate`."""

import io
import pathlib
import re
import types

import gin
import jax
import pytest

from tests import read_only
from xlflax import cli
from xlflax import evaluate as evaluate_lib
from xlflax.config import gin_config
from xlflax.evaluation.tasks import translation_task
from xlflax.utils import errors

pytest_plugins = [
  'tests.evaluation.fixtures',
  'tests.evaluation.translation_fixtures',
]


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
  """Uses one device, because eight only cost time here."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  yield
  gin.clear_config()


def _arguments(run, *flags):
  return [
    f'--model_dir={run}',
    '--source=en',
    '--target=de',
    '--compilation_cache=',
    *flags,
  ]


def _run(run, *flags):
  return cli.main(['translate', *_arguments(run, *flags)])


def test_file_is_translated_to_a_file(copying_run, tmp_path, capsys):
  (tmp_path / 'in').write_text('the dog\n\nwarm milk\n')
  with read_only.only_read(pathlib.Path(copying_run)):
    status = _run(
      copying_run,
      f'--input={tmp_path}/in',
      f'--output={tmp_path}/out',
      '--batch_size=2',
    )
  assert status == 0
  assert (tmp_path / 'out').read_text() == 'the dog\n\nwarm milk\n'
  printed = capsys.readouterr()
  assert printed.out == ''
  assert re.findall('[0-9]+', printed.err.splitlines()[-1]) == list('3010')


def test_standard_input_is_translated_to_standard_output(
  copying_run, monkeypatch, capfdbinary
):
  monkeypatch.setattr(
    'sys.stdin',
    types.SimpleNamespace(buffer=io.BytesIO(b'the dog\n\nwarm milk')),
  )
  assert _run(copying_run, '--step=10', '--batch_size=2', '--beam_size=2') == 0
  assert capfdbinary.readouterr().out == b'the dog\n\nwarm milk\n'


def test_several_hypotheses_are_written_to_standard_output(
  copying_run, tmp_path, capfdbinary
):
  (tmp_path / 'in').write_text('warm milk\n')
  assert (
    _run(
      copying_run,
      f'--input={tmp_path}/in',
      '--n_best=2',
      '--beam_size=2',
      '--length_penalty=0.5',
      '--early_stopping=full',
      '--decoder_start_token=bos',
    )
    == 0
  )
  rows = capfdbinary.readouterr().out.decode().splitlines()
  assert len(rows) == 2 and rows[0].startswith('1\t-')
  assert all(len(row.split('\t')) == 3 for row in rows)


@pytest.mark.parametrize(
  ('flags', 'error', 'got'),
  [
    (['--input=missing'], errors.CorpusError, 'missing'),
    (['--batch_size=0'], errors.ConfigError, '0'),
    (['--batch_size=1.5'], errors.ConfigError, '1.5'),
    (['--length_penalty=nan'], errors.ConfigError, None),
    (['--beam_size=2', '--n_best=3'], errors.ConfigError, '3'),
    (['--early_stopping=soon'], errors.ConfigError, 'soon'),
    (['--decoder_start_token=cls'], errors.ConfigError, 'cls'),
    (['--step=soon'], errors.ConfigError, 'soon'),
    (['--step=15'], errors.XlflaxError, '15'),
    (['--target=xx'], errors.XlflaxError, None),
  ],
)
def test_invalid_options_are_rejected(copying_run, flags, error, got):
  with pytest.raises(error) as raised:
    cli.parse('translate', _arguments(copying_run, *flags))()
  if got is not None:
    assert str(raised.value.got) == got
  assert raised.value.status == 2


def test_unwritable_output_is_an_error(copying_run, tmp_path, capsys):
  (tmp_path / 'in').write_text('milk\n')
  assert (
    _run(copying_run, f'--input={tmp_path}/in', f'--output={tmp_path}/none/out')
    == 2
  )
  assert 'none/out' in capsys.readouterr().err


def test_translation_gin_file_builds_the_task(monkeypatch):
  received = {}
  monkeypatch.setattr(
    evaluate_lib,
    'check_tasks',
    lambda given: received.update(tasks=given) or 1 / 0,
  )
  configuration = gin_config.load_gin_files(
    ['evaluate/tasks.gin', 'evaluate/translation.gin'],
    ["CORPUS='c'", "DIRECTION='both'", 'BEAM_SIZE=3'],
  )
  with pytest.raises(ZeroDivisionError):
    configuration.build(evaluate_lib.evaluate, model_dir='run')
  (task,) = received['tasks']
  assert task.source.directory == 'c' and task.options.beam_size == 3
  assert task.direction is translation_task.Direction.BOTH


def test_evaluate_runs_the_translation_task(copying_run, corpus, capsys):
  assert (
    cli.main(
      [
        'evaluate',
        f'--model_dir={copying_run}',
        f'--corpus={corpus}',
        '--compilation_cache=',
        '--gin_file=evaluate/translation.gin',
        '--batch_size=8',
        '--gin.ParallelCorpus.max_pairs=3',
        '--gin.BEAM_SIZE=2',
      ]
    )
    == 0
  )
  assert 'translation: BLEU (0 to 100' in ' '.join(
    capsys.readouterr().out.split()
  )
  assert list(copying_run.glob('eval/translation/*/20.json'))
