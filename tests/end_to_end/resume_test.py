"""Tests that a killed and resumed run equals an uninterrupted run."""

import random
import signal
import time

import numpy as np
import pytest

from tests.end_to_end.conftest import (
  TINY,
  TINY_MLM,
  kill,
  losses,
  parameters,
  unfinished_checkpoints,
  wait_for_step,
  wait_for_unfinished_checkpoint,
)
from xlflax import integrity

_SLOW = pytest.mark.slow
_EVERY = '--gin.checkpoints.CheckpointOptions.save_interval_steps=4'


@pytest.fixture(
  scope='module',
  params=[
    'one_dataset',
    *(pytest.param(x, marks=_SLOW) for x in ('cache', 'live')),
  ],
)
def loader(request, workspace):
  """Flags of one loader, and the directory of its uninterrupted run."""
  flags = TINY_MLM if request.param == 'one_dataset' else TINY
  if request.param != 'live':
    flags += (workspace.cache,)
  directory = workspace.root / f'uninterrupted_{request.param}'
  workspace.train(directory, _EVERY, options=flags)
  return flags, directory


def _equal(a, b, step=24):
  ours, theirs = parameters(a, step), parameters(b, step)
  assert ours.keys() == theirs.keys()
  for name, value in ours.items():
    np.testing.assert_array_equal(value, theirs[name], err_msg=name)
  assert losses(a) == losses(b)


def _start(workspace, directory, flags):
  return workspace.start(
    'train',
    *flags,
    *workspace.inputs,
    f'--model_dir={directory}',
    '--gin.TRAIN_STEPS=24',
    _EVERY,
  )


def test_killed_run_ends_bit_identical(workspace, loader, tmp_path):
  flags, uninterrupted = loader
  process = _start(workspace, tmp_path / 'run', flags)
  wait_for_step(process, tmp_path / 'run', 9)
  kill(process)
  _check_valid(tmp_path / 'run')
  output = workspace.train(tmp_path / 'run', _EVERY, options=flags)
  # The run had not ended before the kill.
  assert process.returncode == -signal.SIGKILL
  assert 'Resuming from the checkpoint of step' in output
  _equal(tmp_path / 'run', uninterrupted)
  _check_valid(tmp_path / 'run')
  _check_repair(tmp_path / 'run')


def _check_valid(run):
  report = integrity.verify_directory(run)
  assert report.is_valid, integrity.format_report(report)


def _check_repair(run):
  """Checks that lost small files and the vocabulary are repaired together."""
  lost = [
    run / 'trainer.json',
    run / 'objectives.json',
    run / 'config.gin',
    run / 'finished.json',
    run / 'digests.json',
    *(run / 'vocabulary').glob('*.model'),
  ]
  before = [path.read_bytes() for path in lost]
  for path in lost[:-2]:
    path.unlink()
  lost[-1].write_bytes(b'')
  assert len(integrity.repair_directory(run, log_progress=print).findings) > 6
  _check_valid(run)
  lost[-2].unlink()
  integrity.repair_directory(run, log_progress=print)
  _check_valid(run)
  assert [path.read_bytes() for path in lost] == before


@pytest.mark.slow
def test_run_killed_during_a_save_resumes(workspace, loader, tmp_path):
  flags, uninterrupted = loader
  run = tmp_path / 'run'
  process = _start(workspace, run, flags)
  wait_for_unfinished_checkpoint(process, run)
  kill(process)
  assert process.returncode == -signal.SIGKILL
  assert unfinished_checkpoints(run)  # The kill came before the rename.
  workspace.train(run, _EVERY, options=flags)
  assert not unfinished_checkpoints(run)
  _equal(run, uninterrupted)


@pytest.mark.slow
def test_sigterm_saves_and_exits_cleanly(workspace, tmp_path):
  process = workspace.start(
    'train',
    *TINY,
    *workspace.inputs,
    f'--model_dir={tmp_path / "run"}',
    '--gin.TRAIN_STEPS=100000',
    workspace.cache,
  )
  wait_for_step(process, tmp_path / 'run', 3)
  output = kill(process, signal.SIGTERM)
  assert process.returncode == 0, output
  assert 'SIGTERM: saving a checkpoint' in output
  steps = [int(p.name) for p in (tmp_path / 'run/checkpoints').iterdir()]
  assert len(steps) == 1 and f'Stopped at step {steps[0]}' in output


@pytest.mark.slow
@pytest.mark.parametrize('attempt', range(10))  # 20 in total for both loaders
def test_run_killed_at_a_random_step_resumes(
  workspace, loader, tmp_path, attempt
):
  flags, uninterrupted = loader
  rng = random.Random(attempt)
  killed = 0
  for _ in range(2):
    process = _start(workspace, tmp_path / 'run', flags)
    wait_for_step(process, tmp_path / 'run', rng.choice([3, 6, 12, 18, 21]))
    time.sleep(rng.random() * 0.4)  # Saves start and end within this time.
    kill(process)
    killed += process.returncode == -signal.SIGKILL
  assert killed, 'the run ended before both kills'
  workspace.train(tmp_path / 'run', _EVERY, options=flags)
  _equal(tmp_path / 'run', uninterrupted)
