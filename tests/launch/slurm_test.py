"""Jobs on a Slurm cluster with two simulated nodes."""

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


@pytest.mark.parametrize(
  'signal', [('--signal=USR1',), ('--signal=USR1', '--full')]
)
def test_signaled_job_is_requeued_and_resumes_exactly(
  workspace, cluster, uninterrupted, tmp_path, signal
):
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
  )
  wait_for_step(job, tmp_path / 'run', 6)
  cluster.run('scancel', *signal, job.number)
  assert job.wait() == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'Process 0 of 2 (slurm)' in log and 'Process 1 of 2 (slurm)' in log
  assert f'Requeueing job {job.number}' in log, log
  assert 'Resuming from the checkpoint of step' in log
  assert f'Finished at step {slurm_jobs.STEPS}' in log
  assert losses(tmp_path / 'run') == uninterrupted


def test_canceled_job_saves_and_is_not_requeued(workspace, cluster, tmp_path):
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
    '--gin.TRAIN_STEPS=100000',
  )
  wait_for_step(job, tmp_path / 'run', 3)
  cluster.run('scancel', job.number)
  assert job.wait() == 'CANCELLED'
  log = slurm_jobs.log(tmp_path / 'logs')
  assert 'Stopped at step' in log and 'Requeueing' not in log, log


def test_user_error_fails_the_job(workspace, cluster, tmp_path):
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
    '--gin.BATCH_SIZE=7',
  )
  assert job.wait(120) == 'FAILED'
  log = slurm_jobs.log(tmp_path / 'logs')
  assert log.count('The batch size must be a multiple of') == 2
  assert 'Traceback' not in log


def test_sweep_lines_are_tasks_of_an_array(
  workspace, cluster, tmp_path, shared_path
):
  (shared_path / 'sweep').write_text(
    ''.join(
      f'--model_dir="{tmp_path}/run {i}" --gin.LEARNING_RATE=1e-{i}\n'
      for i in (2, 3)
    )
  )
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--nodes=1',
    f'--sweep={shared_path / "sweep"}',
    '--',
    'train',
    *slurm_jobs.TINY,
    *workspace.inputs,
    workspace.cache,
    '--gin.TRAIN_STEPS=6',
  )
  assert job.wait() == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  for i in (2, 3):
    trial_losses = losses(tmp_path / f'run {i}')
    assert trial_losses[3]['learning_rate'] == pytest.approx(10**-i, rel=1e-3)


def test_several_processes_per_node(workspace, cluster, tmp_path):
  job = slurm_jobs.submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--ntasks_per_node=2',
    '--',
    *slurm_jobs.train(workspace, tmp_path / 'run'),
    '--gin.TRAIN_STEPS=6',
  )
  assert job.wait() == 'COMPLETED', slurm_jobs.log(tmp_path / 'logs')
  log = slurm_jobs.log(tmp_path / 'logs')
  for i in range(4):
    assert f'Process {i} of 4 (slurm)' in log
  assert log.count('Finished at step 6') == 1  # Only process 0 logs it.
