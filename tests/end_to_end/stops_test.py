"""Tests of stop requests in all phases of a run, with 1 or 2 processes."""

import pathlib
import signal
import subprocess
import sys

import pytest

from tests.end_to_end import signalled_worker
from tests.end_to_end.conftest import TINY_MLM, free_port, losses
from xlflax.training.checkpointing import checkpoint_reader

pytestmark = pytest.mark.slow
_WORKER = pathlib.Path(signalled_worker.__file__)
_EVERY = '--gin.checkpoints.CheckpointOptions.save_interval_steps=4'
_STEPS = 12
_STOPPED = 75


def _start_job(workspace, run, whens, *more, stopped=_STOPPED):
  """Starts one job with one process for each entry of `whens`."""
  port = free_port()
  command = [
    *('train', *TINY_MLM, *workspace.inputs, workspace.cache, _EVERY),
    *(f'--model_dir={run}', f'--preemption_exit_code={stopped}', *more),
    f'--gin.TRAIN_STEPS={_STEPS}',
  ]
  if len(whens) > 1:
    command += [
      f'--coordinator_address=127.0.0.1:{port}',
      f'--num_processes={len(whens)}',
    ]
  return [
    subprocess.Popen(
      [sys.executable, str(_WORKER), when, *command]
      + ([f'--process_id={i}'] if len(whens) > 1 else []),
      env=workspace.environment(),
      text=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
    )
    for i, when in enumerate(whens)
  ]


def _wait_for_exit(processes) -> tuple[list[int], str]:
  outputs = [process.communicate(timeout=300)[0] for process in processes]
  return [p.returncode for p in processes], '\n'.join(outputs)


def _run(workspace, run, whens, *more, stopped=_STOPPED):
  return _wait_for_exit(
    _start_job(workspace, run, whens, *more, stopped=stopped)
  )


@pytest.fixture(scope='module')
def uninterrupted_run(workspace, tmp_path_factory):
  run = tmp_path_factory.mktemp('whole') / 'run'
  statuses, output = _run(workspace, run, ['none'])
  assert statuses == [0], output
  return losses(run)


_ENDS = {
  phase: 0 if phase in signalled_worker.TOO_LATE else _STOPPED
  for phase in signalled_worker.PHASES
}


@pytest.mark.parametrize('phase', signalled_worker.PHASES)
@pytest.mark.parametrize('processes', [1, 2])
def test_stop_request_ends_the_run(
  workspace, uninterrupted_run, tmp_path, phase, processes
):
  """The stopped run resumes from step 4 and ends like an uninterrupted run.

  The process that gets no signal delays its exit.
  """
  run = tmp_path / 'run'
  other_faults = ['LATE:leave'] * (processes - 1)
  statuses, output = _run(
    workspace, run, ['none', *other_faults], '--stop_after_steps=4'
  )
  assert statuses == [0] * processes, output
  statuses, output = _run(workspace, run, [f'SIGTERM:{phase}', *other_faults])
  assert statuses == [_ENDS[phase]] * processes, output
  assert 'Traceback' not in output
  last = checkpoint_reader.finished_steps(run)[-1]
  early = phase == 'start' or (phase == 'restore' and processes == 1)
  assert last == 4 if early else last >= 4, output
  statuses, output = _run(workspace, run, ['none'])
  assert statuses == [0], output
  if processes == 1:
    assert losses(run) == uninterrupted_run


@pytest.mark.parametrize('name', ['SIGTERM', 'SIGINT'])
@pytest.mark.parametrize('phase', ['start', 'restore'])
def test_stop_before_the_first_step_saves_nothing(
  workspace, tmp_path, name, phase
):
  """The last checkpoint of a resumed run is unchanged."""
  run = tmp_path / 'run'
  for finished in (0, 4):
    statuses, output = _run(workspace, run, [f'{name}:{phase}'], stopped=0)
    assert statuses == [130], output
    assert 'Traceback' not in output
    if phase == 'restore':
      assert f'"checkpoint": {finished or "null"}' in output
    if not finished:
      assert 'last checkpoint' not in output
      assert not checkpoint_reader.finished_steps(run)
      assert _run(workspace, run, ['none'], '--stop_after_steps=4')[0] == [0]
  assert checkpoint_reader.finished_steps(run) == [4]


@pytest.mark.parametrize('name', ['SIGHUP', 'SIGUSR1', 'SIGINT'])
def test_each_signal_saves_a_checkpoint(workspace, tmp_path, name):
  run = tmp_path / 'run'
  statuses, output = _run(workspace, run, [f'{name}:first_step'])
  assert statuses == [_STOPPED], output
  assert f'{signal.Signals[name].name}: saving a checkpoint' in output
  assert checkpoint_reader.finished_steps(run), output


@pytest.mark.parametrize('closed', ['2>&-', '<&- >&- 2>&-', '2>&1 | true'])
def test_training_continues_with_closed_output(workspace, tmp_path, closed):
  command = [
    *('train', *TINY_MLM, *workspace.inputs, workspace.cache, _EVERY),
    *(f'--model_dir={tmp_path / "run"}', '--gin.TRAIN_STEPS=4'),
  ]
  done = subprocess.run(
    ['bash', '-c', f'"$0" -m xlflax.cli "$@" {closed}; exit ${{PIPESTATUS[0]}}']
    + [sys.executable, *command],
    env=workspace.environment(),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, '')
  assert checkpoint_reader.finished_steps(tmp_path / 'run') == [4]
