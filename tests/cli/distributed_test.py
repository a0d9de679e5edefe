"""Tests of settings that must agree between the processes of a job."""

import types

import pytest

from xlflax.cli import distributed, options
from xlflax.training.distributed import distributed_job as processes
from xlflax.training.distributed import platforms

_LONG_PATH = '/' + '/'.join(['a_folder_with_a_long_name'] * 5)


@pytest.fixture
def joined(monkeypatch):
  """Function that joins with bindings and returns the compared settings."""
  calls = []
  monkeypatch.setattr(
    processes, 'initialize_distributed', lambda **k: calls.append(k)
  )
  monkeypatch.setattr(platforms, 'choose_platform', lambda platform: None)
  monkeypatch.setattr(platforms, 'check_platform', lambda platform: None)

  def join(*bindings, settings=()):
    # Gin breaks long lines after the equals sign.
    text = '\n'.join(
      line.replace('= ', '= \\\n    ') if len(line) > 80 else line
      for line in bindings
    )
    configuration = types.SimpleNamespace(parsed=lambda: text)
    distributed.join(options.DistributedOptions(), [configuration], settings)
    return calls[-1]['configuration']

  return join


@pytest.mark.parametrize('name', ['CACHE_DIR', 'CORPUS', 'VOCABULARY'])
@pytest.mark.parametrize('path', ['/data', _LONG_PATH])
def test_paths_of_data_may_differ(joined, name, path):
  assert joined(f"{name} = '{path}'", 'SEED = 1') == 'SEED = 1'


def test_bindings_and_options_must_agree(joined):
  compared = joined('SEED = 1', settings=['--dry_run=True'])
  assert compared == 'SEED = 1\n--dry_run=True'


def test_long_bindings_are_joined_into_one_line(joined):
  assert joined(f"MODEL_DIR = '{_LONG_PATH}'") == f"MODEL_DIR = '{_LONG_PATH}'"
