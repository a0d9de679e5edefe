"""Environment variables that are rejected or recorded."""

import os
import subprocess
import sys

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import evaluate
from xlflax.utils import environment_variables, errors


@pytest.mark.parametrize(
  'name, value',
  [
    ('JAX_ENABLE_X64', '1'),
    ('JAX_ENABLE_X64', 'True'),
    ('JAX_DISABLE_JIT', 'yes'),
    ('JAX_DEFAULT_PRNG_IMPL', 'rbg'),
    ('JAX_THREEFRY_PARTITIONABLE', '0'),
    ('JAX_NUMPY_DTYPE_PROMOTION', 'strict'),
    ('JAX_NUMPY_RANK_PROMOTION', 'raise'),
  ],
)
def test_variables_that_change_all_results_are_rejected(name, value):
  with raises_error(errors.ConfigError, got=value, mentions=name):
    environment_variables.check_variables({name: value})


@pytest.mark.parametrize(
  'environment',
  [
    {},
    {'JAX_ENABLE_X64': ''},
    {'JAX_ENABLE_X64': 'False', 'JAX_DISABLE_JIT': '0'},
    {'JAX_DEFAULT_PRNG_IMPL': 'threefry2x32', 'XLA_FLAGS': '--a'},
    {'JAX_THREEFRY_PARTITIONABLE': '1'},
  ],
)
def test_defaults_are_accepted(environment):
  environment_variables.check_variables(environment)


def test_only_variables_that_affect_programs_are_recorded():
  environment = {
    'XLA_FLAGS': '--xla_a=1',
    'OMP_NUM_THREADS': '2',
    'JAX_PLATFORMS': '',
    'HF_TOKEN': 'secret',
  }
  assert environment_variables.recorded_variables(environment) == {
    'OMP_NUM_THREADS': '2',
    'XLA_FLAGS': '--xla_a=1',
  }


def test_xla_flags_are_read_from_a_file(tmp_path):
  (tmp_path / 'flags').write_text('--xla_a=1\n--xla_b=2\n')
  environment = {'XLA_FLAGS': str(tmp_path / 'flags')}
  flags = environment_variables.read_xla_flags(environment)
  assert flags == ['--xla_a=1', '--xla_b=2']
  assert environment_variables.recorded_variables(environment) == {
    'XLA_FLAGS': '--xla_a=1 --xla_b=2'
  }
  missing = {'XLA_FLAGS': str(tmp_path / 'missing')}
  assert environment_variables.read_xla_flags(missing) == []


def test_python_api_checks_the_variables(tmp_path, monkeypatch):
  monkeypatch.setenv('JAX_ENABLE_X64', '1')
  with raises_error(errors.ConfigError, got=1, mentions='JAX_ENABLE_X64'):
    evaluate.evaluate(model_dir=tmp_path, tasks=[])


def _run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-c', 'from xlflax import cli; cli.main()', *arguments],
    env=os.environ | variables,
    capture_output=True,
    text=True,
    check=False,
    timeout=300,
  )


@pytest.mark.slow
def test_commands_check_the_variables(tmp_path):
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono/en.txt').write_text('a b\n')
  done = _run('inspect', str(tmp_path), JAX_ENABLE_X64='1')
  assert done.returncode == 2
  assert_mentions(done.stderr, 'JAX_ENABLE_X64', 1)
  assert 'Traceback' not in done.stderr
  # The command reports the invalid text under all accepted settings.
  (tmp_path / 'mono/en.txt').write_bytes(b'caf\xe9\n')
  for variables in (
    {'LC_ALL': 'C', 'PYTHONUTF8': '0', 'PYTHONCOERCECLOCALE': '0'},
    {'PYTHONIOENCODING': 'ascii', 'COLUMNS': '1', 'TZ': 'Nowhere'},
    {'PYTHONOPTIMIZE': '2', 'TMPDIR': str(tmp_path / 'missing')},
  ):
    done = _run('inspect', str(tmp_path), **variables)
    assert done.returncode == 2, done.stderr
    assert 'Traceback' not in done.stderr


@pytest.mark.parametrize('columns', ['1', '0', '-5', 'x'])
def test_help_is_printed_at_any_terminal_width(columns):
  done = _run('train', '--help', COLUMNS=columns)
  assert done.returncode == 0
  assert '--model_dir' in done.stdout
