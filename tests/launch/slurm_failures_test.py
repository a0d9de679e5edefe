"""Failures of Slurm jobs: lost tasks, lost nodes and late nodes."""

import os
import pathlib
import signal
import sys

import pytest

from tests.end_to_end.conftest import losses, wait_for_step
from tests.launch import slurm_cluster, slurm_jobs

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    slurm_cluster.missing() is not None,
    reason=f'no Slurm: {slurm_cluster.missing()}',
  ),
]


def _task(number: int, run: pathlib.Path) -> int:
  """Returns the process ID of a task that trains in this directory."""
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    try:
      arguments = (path / 'cmdline').read_bytes().decode().split('\0')
      variables = (path / 'environ').read_bytes().decode().split('\0')
    except OSError:
      continue  # The process has just ended.
    if (
      arguments[0] == sys.executable
      and f'--model_dir={run}' in arguments
      and f'SLURM_PROCID={number}' in variables
    ):
      return int(path.name)
  raise AssertionError(f'no task {number}')


def _parent(pid: int) -> int:
  status = pathlib.Path(f'/proc/{pid}/status').read_text()
  return int(status.partition('PPid:')[2].split()[0])


def _kill_task(cluster, run):
  os.kill(_task(1, run), signal.SIGKILL)


def _kill_coordinator(cluster, run):
  os.kill(_task(0, run), signal.SIGKILL)


def _kill_slurmd_and_task(cluster, run):
  cluster.kill_node('n2')
  _kill_task(cluster, run)


def _lose_node(cluster, run):
  """Kills all processes of a node at once, including the step daemon."""
  task = _task(1, run)
  cluster.kill_node('n2')
  for pid in (_parent(task), task):
    os.kill(pid, signal.SIGKILL)


def _start(workspace, cluster, tmp_path, *arguments, **options):
  return slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
    '--gin.checkpoints.CheckpointOptions.save_interval_steps=20',
    *arguments,
    **options,
  )


@pytest.mark.parametrize(
  'fail', [_kill_task, _kill_coordinator, _kill_slurmd_and_task, _lose_node]
)
def test_failed_job_is_requeued_with_the_same_losses(
  workspace, cluster, uninterrupted, tmp_path, fail
):
  run = tmp_path / 'run'
  job = _start(workspace, cluster, tmp_path)
  wait_for_step(job, run, 30)
  fail(cluster, run)
  try:
    job.wait_until_queued_again()
  finally:
    if fail in (_kill_slurmd_and_task, _lose_node):
      cluster.start_node('n2')
  assert job.wait(400) == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'Resuming from the checkpoint of step' in log, log
  assert losses(run) == uninterrupted


def test_job_with_a_late_node_is_requeued(
  workspace, cluster, uninterrupted, tmp_path
):
  """The node is three minutes late with a limit of one minute."""
  late = tmp_path / 'late.sh'
  late.write_text(
    '#!/bin/bash\n'
    '((SLURM_PROCID == 1 && ${SLURM_RESTART_COUNT:-0} == 0)) && sleep 180\n'
    f'exec {sys.executable} -m xlflax.cli "$@"\n'
  )
  late.chmod(0o755)
  job = _start(
    workspace,
    cluster,
    tmp_path,
    '--initialization_timeout=60',
    command=str(late),
  )
  assert job.wait(600) == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'missing: 1' in log and f'Requeueing job {job.number}' in log
  assert losses(tmp_path / 'run') == uninterrupted


def test_late_node_within_the_limit_joins(
  workspace, cluster, uninterrupted, tmp_path
):
  """The node is three minutes late with the default limit of five minutes."""
  late = tmp_path / 'late.sh'
  late.write_text(
    '#!/bin/bash\n'
    '((SLURM_PROCID == 1)) && sleep 180\n'
    f'exec {sys.executable} -m xlflax.cli "$@"\n'
  )
  late.chmod(0o755)
  job = _start(workspace, cluster, tmp_path, command=str(late))
  assert job.wait(600) == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  assert 'Requeueing' not in slurm_jobs.log(tmp_path / 'logs')
  assert losses(tmp_path / 'run') == uninterrupted
