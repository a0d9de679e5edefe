"""`xlflax launch local` with real training: lost and resized jobs."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.end_to_end.conftest import free_port, losses, wait_for_step

_STEPS = 24
_TINY = (
  '--gin_file=pretrain/mlm.gin',
  '--gin_file=models/tiny.gin',
  '--gin.EncoderConfig.num_layers=1',
  '--gin.EncoderConfig.hidden_dim=16',
  '--gin.EncoderConfig.mlp_dim=32',
  '--gin.EncoderConfig.num_heads=2',
  '--gin.EncoderConfig.max_position_embeddings=32',
  '--gin.LENGTH=16',
  '--gin.BATCH_SIZE=8',
  '--gin.WARMUP_STEPS=2',
  '--gin.trainer.Trainer.log_metrics_every=3',
  '--gin.checkpoints.CheckpointOptions.save_interval_steps=4',
)
pytestmark = pytest.mark.slow
_WORKER = pathlib.Path(__file__).parents[1] / 'end_to_end/batches_worker.py'


def _launch(
  workspace,
  directory: pathlib.Path,
  *arguments: str,
  processes: int,
  devices: int = 1,
  steps: int = _STEPS,
  launcher: tuple[str, ...] = (),
):
  return workspace.start(
    'launch',
    'local',
    *launcher,
    f'--nproc_per_node={processes}',
    f'--cpu_devices={devices}',
    '--',
    'train',
    *_TINY,
    *workspace.inputs,
    workspace.cache,
    f'--model_dir={directory}',
    f'--gin.TRAIN_STEPS={steps}',
    *arguments,
  )


def _wait_for_exit(process, status: int = 0) -> str:
  output, _ = process.communicate(timeout=400)
  assert process.returncode == status, output
  return output


@pytest.fixture(scope='module')
def single(workspace):
  """Losses of one process that was never stopped."""
  directory = workspace.root / 'one_process'
  _wait_for_exit(_launch(workspace, directory, processes=1))
  return losses(directory)


def _assert_close(ours, theirs, tolerance: float):
  assert ours.keys() == theirs.keys()
  for step, metrics in ours.items():
    assert metrics['loss'] == pytest.approx(
      theirs[step]['loss'], abs=tolerance
    ), step


def _pid_of(process_id: int, run: pathlib.Path) -> int:
  """Returns the PID of a process of the job that trains in a directory."""
  expected_flags = {f'--process_id={process_id}', f'--model_dir={run}'}
  process_ids = []
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    try:
      arguments = path.read_bytes().decode().split('\0')
    except OSError:
      continue  # The process has just ended.
    if expected_flags <= set(arguments):
      since = int((path.parent / 'stat').read_text().split(')')[1].split()[19])
      process_ids.append((since, int(path.parent.name)))
  return min(process_ids)[1]


def test_killed_process_ends_the_job_and_a_restart_resumes(workspace, tmp_path):
  """Four processes of two devices; one of them gets SIGKILL."""
  run = tmp_path / 'run'
  launcher = _launch(workspace, run, processes=4, devices=2, steps=100000)
  wait_for_step(launcher, run, 9)
  start = time.monotonic()
  os.kill(_pid_of(2, run), signal.SIGKILL)
  output = _wait_for_exit(launcher, status=128 + signal.SIGKILL)
  assert time.monotonic() - start < 30
  assert 'Process 2 of 4 was killed by SIGKILL' in output
  step = int(re.search(r'resumes from the checkpoint of step (\d+)', output)[1])
  again = _wait_for_exit(
    _launch(
      workspace,
      run,
      f'--stop_after_steps={step + 4}',
      processes=4,
      devices=2,
      steps=100000,
    )
  )
  assert f'Resuming from the checkpoint of step {step}.' in again
  assert f'Stopped at step {step + 4} of' in again


def test_restarts_with_different_numbers_of_processes(
  workspace, single, tmp_path
):
  """With 1, 2, 4, 2 processes, losses equal those of an uninterrupted run."""
  run = tmp_path / 'run'
  for processes, stop in ((1, 6), (2, 12), (4, 18), (2, 24)):
    _wait_for_exit(
      _launch(workspace, run, f'--stop_after_steps={stop}', processes=processes)
    )
  assert max(losses(run)) == _STEPS
  _assert_close(losses(run), single, 1e-5)


def test_four_processes_read_the_same_batches_as_one(workspace, tmp_path):
  port = free_port()

  def start(processes, i):
    return subprocess.Popen(
      [
        sys.executable,
        _WORKER,
        workspace.root,
        tmp_path,
        str(processes),
        str(i),
        str(port),
      ],
      env=workspace.environment(),
    )

  started = [start(1, 0), *(start(4, i) for i in range(4))]
  assert [process.wait(timeout=200) for process in started] == [0] * 5
  single_process_batches = dict(np.load(tmp_path / '1-0.npz'))
  process_batches = [dict(np.load(tmp_path / f'4-{i}.npz')) for i in range(4)]
  assert len(single_process_batches) >= 10
  for name, expected in single_process_batches.items():
    np.testing.assert_array_equal(
      np.concatenate([part[name] for part in process_batches]),
      expected,
      err_msg=name,
    )


def test_ctrl_c_saves_and_a_restart_resumes(workspace, single, tmp_path):
  run = tmp_path / 'run'
  launcher = _launch(workspace, run, processes=2)
  wait_for_step(launcher, run, 3)
  launcher.send_signal(signal.SIGINT)
  output = _wait_for_exit(launcher)
  assert 'Forwarding SIGINT' in output
  stopped = re.search(r'Stopped at step (\d+) of', output)
  if stopped:  # Otherwise, the run had already finished.
    output = _wait_for_exit(_launch(workspace, run, processes=2))
    assert f'checkpoint of step {stopped[1]}.' in output
  np.testing.assert_allclose(
    [m['loss'] for m in losses(run).values()],
    [m['loss'] for m in single.values()],
    atol=1e-5,
  )


def test_stopped_process_is_killed_and_the_job_restarts(
  workspace, single, tmp_path
):
  """The stopped process blocks the collectives of the other process."""
  run = tmp_path / 'run'
  launcher = _launch(
    workspace, run, processes=2, launcher=('--max_restarts=1',)
  )
  wait_for_step(launcher, run, 3)
  os.kill(_pid_of(1, run), signal.SIGSTOP)
  output = _wait_for_exit(launcher)
  assert 'Process 1 of 2 is stopped by a signal' in output
  assert 'restart 1 of at most 1 ' in output
  _assert_close(losses(run), single, 1e-5)


@pytest.mark.parametrize('kills', [20])
def test_losses_are_equal_after_repeated_kills(workspace, tmp_path, kills):
  """Kills repeatedly, each time after the lost steps are recovered."""
  expected_dir, run = tmp_path / 'whole', tmp_path / 'run'
  _wait_for_exit(
    _launch(workspace, expected_dir, processes=2, steps=30 * kills)
  )
  launcher = _launch(
    workspace,
    run,
    processes=2,
    steps=30 * kills,
    launcher=('--max_restarts=99',),
  )
  # Discards the output, because the launcher would block on a full pipe.
  reader = threading.Thread(target=launcher.communicate)
  reader.start()
  for i in range(kills):
    wait_for_step(launcher, run, 9 + 20 * i)
    os.kill(_pid_of(i % 2, run), signal.SIGKILL)
  reader.join()
  assert launcher.returncode == 0
  rows = map(json.loads, (run / 'metrics.jsonl').open())
  restarts = [row['restart'] for row in rows if 'restart' in row]
  assert [restart['generation'] for restart in restarts] == list(
    range(1, kills + 1)
  )
  assert losses(run) == losses(expected_dir)


def test_killed_process_restarts_within_seconds(workspace, tmp_path, capsys):
  """Four processes restart immediately, with exactly the same losses."""
  expected_dir, run = tmp_path / 'whole', tmp_path / 'run'
  _wait_for_exit(_launch(workspace, expected_dir, processes=4, steps=60))
  launcher = _launch(
    workspace, run, processes=4, steps=60, launcher=('--max_restarts=2',)
  )
  wait_for_step(launcher, run, 9)
  os.kill(_pid_of(2, run), signal.SIGKILL)
  output = _wait_for_exit(launcher)
  assert 'Process 2 of 4 was killed by SIGKILL' in output
  assert 'restart 1 of at most 2 ' in output
  [costs] = [
    row['restart']
    for row in map(json.loads, (run / 'metrics.jsonl').open())
    if 'restart' in row
  ]
  with capsys.disabled():
    print(f'\nseconds lost by a kill -9 of one of four: {costs}')
  assert losses(run) == losses(expected_dir)
  # Other programs on this machine slow down the restart.
  assert costs['lost'] < 20 * max(1, os.getloadavg()[0] / os.cpu_count())


@pytest.mark.parametrize('process', [0, 1])
def test_frozen_process_is_reported(workspace, tmp_path, process):
  """The report precedes the hang limit and contains step and stack traces."""
  run = tmp_path / 'run'
  launcher = _launch(
    workspace, run, '--heartbeat_timeout=20', processes=2, steps=100000
  )
  wait_for_step(launcher, run, 3)
  os.kill(_pid_of(process, run), signal.SIGSTOP)
  output = _wait_for_exit(launcher, status=74)
  survivor = rf'process {1 - process} of 2 on \S+ was .*step \d+\)? for \d+ s'
  assert re.search(survivor, output), output
  # JAX logs the task, or its coordination service: process 0.
  log = run.parent / f'{run.name}.logs' / f'process_{1 - process}.log'
  text = log.read_text()
  assert 'Current thread' in text and 'train_loop.py' in text
  assert re.search('CoordinationService' if process == 0 else r'\n1\n', text)
