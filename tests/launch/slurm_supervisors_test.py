"""Restarts within an allocation of a Slurm cluster."""

import json
import os
import pathlib
import signal
import time

import pytest

from tests.end_to_end.conftest import losses, wait_for_step
from tests.launch import slurm_cluster, slurm_jobs

_STEPS = '--gin.TRAIN_STEPS=30'  # low, because the machine runs other programs
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    slurm_cluster.missing() is not None,
    reason=f'no Slurm: {slurm_cluster.missing()}',
  ),
]


def _find_process(*expected_arguments: str, node: int | None = None) -> int:
  """Returns the oldest process with these arguments, not its children."""
  processes = {}
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    try:
      arguments = (path / 'cmdline').read_bytes().decode().split('\0')
      # The name may contain spaces. Field 22 is the start time.
      start_time = int(
        (path / 'stat').read_text().rpartition(')')[2].split()[19]
      )
      variables = (path / 'environ').read_bytes().decode().split('\0')
    except OSError:
      continue  # The process has just ended.
    if node is not None and f'SLURM_NODEID={node}' not in variables:
      continue
    if set(expected_arguments) <= set(arguments) and 'python' in arguments[0]:
      processes[start_time] = int(path.name)
  assert processes, f'no process {expected_arguments}'
  return processes[min(processes)]


def _fail(failure: str, run: pathlib.Path) -> None:
  """Kills or stops a process, a supervisor, or all processes of a node."""
  model_dir_flag = f'--model_dir={run}'
  process = 0 if failure == 'coordinator' else 1
  ends = signal.SIGSTOP if failure == 'stopped' else signal.SIGKILL
  if failure in ('supervisor', 'node'):
    os.kill(_find_process('node', model_dir_flag, node=1), ends)
  if failure != 'supervisor':
    os.kill(_find_process(f'--process_id={process}', model_dir_flag), ends)


@pytest.fixture(name='uninterrupted_run', scope='module')
def fixture_uninterrupted_run(workspace, tmp_path_factory):
  """Run without failures."""
  folder = tmp_path_factory.mktemp('whole') / 'run'
  local = 'launch local --nproc_per_node=2 --cpu_devices=1 --'.split()
  workspace.run(*local, *slurm_jobs.train(workspace, folder), _STEPS)
  return folder


@pytest.mark.parametrize(
  'failure', ['task', 'coordinator', 'stopped', 'supervisor', 'node']
)
def test_failure_is_restarted_within_the_job(
  workspace, cluster, uninterrupted_run, tmp_path, capsys, failure
):
  run = tmp_path / 'run'
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--restart_policy=in_place',
    '--',
    *slurm_jobs.train(workspace, run),
    _STEPS,
    '--gin.checkpoints.CheckpointOptions.save_interval_steps=4',
  )
  wait_for_step(job, run, 9)
  start_time = time.time()
  _fail(failure, run)
  assert job.wait(400) == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'Requeueing' not in log
  [costs] = [
    row['restart']
    for row in map(json.loads, (run / 'metrics.jsonl').open())
    if 'restart' in row
  ]
  if failure in ('supervisor', 'node'):
    assert 'The supervisors ended with status' in log, log
  else:
    assert 'restart 1 of at most 20' in log, log
  seconds = costs['noticed'] - start_time + costs['lost']
  with capsys.disabled():
    print(f'\n{seconds:.1f} s lost under Slurm, {failure}: {costs}')
  assert losses(run) == losses(uninterrupted_run)


def test_user_error_is_the_last_message_of_the_job(
  workspace, cluster, tmp_path
):
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--restart_policy=in_place',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
    '--gin.BATCH_SIZE=7',
  )
  assert job.wait(200) == 'FAILED'
  log = slurm_jobs.log(tmp_path / 'logs')
  last = log.strip().rpartition('\nxlflax train: ')[2]
  assert 'The batch size must be a multiple of' in last, log
  assert len(last.splitlines()) <= 6, log
  assert 'restart 1' not in log and 'Requeueing' not in log
