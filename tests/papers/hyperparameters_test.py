"""Compares gin files of the papers with docs/hyperparameters.md."""

import fnmatch
import functools
import pathlib
import re

import pytest

from tests import gin_files
from xlflax.config import gin_config

_TABLE = pathlib.Path(__file__).parents[2] / 'docs/hyperparameters.md'
# Shared files and tiny configurations; all other files are rows.
_PARTS = {
  'base',
  'settings',
  'tiny',
  'no_moco',
  'no_tlm',
  'mlm_for_tlm',
  'small_settings',
  'small_encoder',
  'small_encoder_decoder',
  'translation',
  'script',
}
_GIVEN = {
  'MODEL_DIR': 'runs/a',
  'VOCABULARY': 'vocabulary',
  'CORPUS': 'corpus',
  'INIT_DIR': 'runs/b',
  'MONO': 'corpus.mono.fr',
  'INIT_FROM': 'runs/b',
  'DICTIONARIES': ['a.tsv'],
  'TRAIN_FILES': {'en': 'a'},
  'TRANSLATED_FILES': {'fr': 'b'},
}
_GRID = ('BATCH_SIZE', 'LEARNING_RATE', 'EPOCHS', 'HEAD_LEARNING_RATE')
# Settings that the table must contain for every row.
_PRETRAINING = {'TRAIN_STEPS', 'WARMUP_STEPS', 'LEARNING_RATE'}
_FINE_TUNING = {'BATCH_SIZE', 'LEARNING_RATE', 'EPOCHS'}


def _rows() -> list[str]:
  row_names = []
  for file in gin_files.list_gin_files('papers'):
    paper, name = file.removeprefix('papers/').removesuffix('.gin').split('/')
    if name not in _PARTS and not name.startswith('tiny_'):
      row_names.append(f'{paper}/{name}')
  return row_names


@functools.cache
def _tables() -> list[tuple[list[str], dict[str, tuple[str, str]]]]:
  """Returns (row patterns, setting -> (value, source)) of each table."""
  tables: list[tuple[list[str], dict[str, tuple[str, str]]]] = []
  for line in _TABLE.read_text(encoding='utf-8').splitlines():
    if line.startswith('Experiments: '):
      tables.append((re.findall('`([^`]+)`', line), {}))
    elif match := re.fullmatch(r'\| `(\S+)` \| (\S+) \| (.+) \|', line):
      name, value, source = match.groups()
      tables[-1][1][name] = (value, source)
  return tables


def _expected(row: str) -> dict[str, tuple[str, str]]:
  expected_settings: dict[str, tuple[str, str]] = {}
  for patterns, settings in _tables():
    if any(fnmatch.fnmatch(row, pattern) for pattern in patterns):
      assert not expected_settings.keys() & settings.keys(), row
      expected_settings |= settings
  return expected_settings


def _required(text: str, name: str) -> bool:
  return re.search(rf'^{name} = %gin.REQUIRED', text, re.M) is not None


@pytest.mark.parametrize('row', _rows())
def test_gin_file_equals_the_table(row):
  file = f'papers/{row}.gin'
  text = gin_files.read_with_includes(file)
  expected = _expected(row)
  assert expected.keys() >= (
    _FINE_TUNING if '/finetune_' in row else _PRETRAINING
  )
  grid = {
    name
    for name in _GRID
    if re.search(
      rf'^{name} = %gin.REQUIRED', (gin_config.SHIPPED / file).read_text(), re.M
    )
  }
  bindings = [
    f'{name}={value!r}'
    for name, value in _GIVEN.items()
    if _required(text, name)
  ] + [f'{name}=1' for name in grid]
  configuration = gin_config.load_gin_files([file], bindings)
  for name, (value, source) in expected.items():
    assert re.search(
      r"section|table|appendix|not stated|authors' script", source
    ), name
    if value == 'grid':
      assert name in grid, name
      continue
    read = configuration.parameter if '.' in name else configuration.macro
    got = read(name)
    assert str(got) == value or float(got) == float(value), (name, got)


def test_every_pattern_matches_a_row():
  for patterns, settings in _tables():
    for pattern in patterns:
      assert settings and fnmatch.filter(_rows(), pattern), pattern
  assert len(_rows()) >= 76
