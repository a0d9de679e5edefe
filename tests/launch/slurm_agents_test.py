"""Agents under a real Slurm: a killed task costs seconds, not the allocation."""

import json
import os
import pathlib
import signal

import pytest

from tests.end_to_end.conftest import losses, wait_for_step
from tests.launch import slurm_cluster, slurm_jobs

_STEPS = '--gin.TRAIN_STEPS=30'  # few, on a machine that does other things
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    slurm_cluster.missing() is not None,
    reason=f'no Slurm: {slurm_cluster.missing()}',
  ),
]


def _with_words(*wanted: str) -> int:
  """The oldest process whose command line has these words: not its children."""
  found = {}
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    try:
      words = (path / 'cmdline').read_bytes().decode().split('\0')
      # What follows the name, which may have spaces: field 22 is the start.
      begun = int((path / 'stat').read_text().rpartition(')')[2].split()[19])
    except OSError:
      continue  # it has just ended
    if set(wanted) <= set(words) and 'python' in words[0]:
      found[begun] = int(path.name)
  assert found, f'no process {wanted}'
  return found[min(found)]


def test_a_killed_task_starts_again_within_the_job(
  workspace, cluster, tmp_path, capsys
):
  run = tmp_path / 'run'
  local = 'launch local --num_processes=2 --cpu_devices=1 --'.split()
  whole = slurm_jobs.train(workspace, tmp_path / 'whole')
  workspace.run(*local, *whole, _STEPS)
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--restart_by=agents',
    '--',
    *slurm_jobs.train(workspace, run),
    _STEPS,
    '--gin.checkpoints.CheckpointOptions.every_steps=4',
  )
  wait_for_step(job, run, 9)
  os.kill(_with_words('--process_id=1', f'--model_dir={run}'), signal.SIGKILL)
  assert job.wait(400) == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'Starting the job again (1 of 20 within an hour)' in log, log
  assert 'queueing' not in log
  [costs] = [
    row['restart']
    for row in map(json.loads, (run / 'metrics.jsonl').open())
    if 'restart' in row
  ]
  assert costs['failure'].startswith('Process 1 of 2 was killed by SIGKILL')
  with capsys.disabled():
    print(f'\nseconds lost by a killed task under Slurm: {costs}')
  assert losses(run) == losses(tmp_path / 'whole')


def test_a_mistake_ends_the_job_with_its_text(workspace, cluster, tmp_path):
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--restart_by=agents',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
    '--gin.BATCH_SIZE=7',
  )
  assert job.wait(200) == 'FAILED'
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'The batch size does not divide over the devices' in log
  assert 'within an hour' not in log and 'queueing' not in log
