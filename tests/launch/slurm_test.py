"""Jobs of a real Slurm: two "nodes" on this machine, made from nothing."""

import pathlib
import sys
import time

import pytest

from tests.end_to_end.conftest import losses, wait_for_step
from tests.launch import slurm_cluster

_STEPS = 200
_TINY = (
  '--gin_file=pretrain/mlm.gin',
  '--gin_file=models/tiny.gin',
  '--gin.EncoderConfig.num_layers=1',
  '--gin.EncoderConfig.hidden_dim=16',
  '--gin.EncoderConfig.mlp_dim=32',
  '--gin.EncoderConfig.num_heads=2',
  '--gin.EncoderConfig.max_length=32',
  '--gin.LENGTH=16',
  '--gin.BATCH_SIZE=8',
  '--gin.WARMUP_STEPS=2',
  '--gin.trainer.Trainer.log_every_steps=3',
)
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    slurm_cluster.missing() is not None,
    reason=f'no Slurm: {slurm_cluster.missing()}',
  ),
]


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
  # The path of munge's socket may have 107 characters at most.
  folder = tmp_path_factory.mktemp('slurm')
  with slurm_cluster.TinyCluster(folder) as tiny:
    yield tiny


class _Job:
  """A job of `xlflax launch slurm`, as `wait_for_step` looks at processes."""

  def __init__(self, cluster, number: str):
    self.cluster, self.number = cluster, number

  def poll(self):
    state = self.cluster.state(self.number)
    return None if state in slurm_cluster.UNFINISHED else state

  def wait(self, seconds: float = 240) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
      if self.poll():
        return self.poll()
      time.sleep(1)
    raise AssertionError(
      f'still {self.cluster.state(self.number)}\n' + self.cluster.logs()
    )


def _submit(workspace, cluster, logs, *arguments) -> _Job:
  answer = workspace.run(
    'launch',
    'slurm',
    '--nodes=2',
    f'--logs={logs}',
    *arguments,
    SLURM_CONF=cluster.environment['SLURM_CONF'],
    XLFLAX_COMMAND=f'{sys.executable} -m xlflax.cli',
  )
  number = answer.rpartition('Submitted batch job ')[2].strip()
  return _Job(cluster, number)


def _train(workspace, directory: pathlib.Path) -> tuple[str, ...]:
  return (
    'train',
    *_TINY,
    *workspace.inputs,
    workspace.cache,
    f'--model_dir={directory}',
    f'--gin.TRAIN_STEPS={_STEPS}',
  )


def _log(logs: pathlib.Path) -> str:
  return '\n'.join(path.read_text() for path in sorted(logs.glob('*.log')))


@pytest.fixture(scope='module')
def uninterrupted(workspace):
  """Losses of two processes that nothing stopped."""
  directory = workspace.root / 'uninterrupted_two'
  workspace.run(
    'launch',
    'local',
    '--num_processes=2',
    '--cpu_devices=1',
    '--',
    *_train(workspace, directory),
  )
  return losses(directory)


@pytest.mark.parametrize(
  'signal', [('--signal=USR1',), ('--signal=USR1', '--full')]
)
def test_signalled_job_is_queued_again_and_resumes_exactly(
  workspace, cluster, uninterrupted, tmp_path, signal
):
  job = _submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *_train(workspace, tmp_path / 'run'),
  )
  wait_for_step(job, tmp_path / 'run', 6)
  cluster.run('scancel', *signal, job.number)
  assert job.wait() == 'COMPLETED', _log(tmp_path / 'logs')
  log = _log(tmp_path / 'logs')
  assert 'Process 0 of 2 (slurm)' in log and 'Process 1 of 2 (slurm)' in log
  assert f'job {job.number} is queued again' in log, log
  assert 'Continuing from the checkpoint of step' in log
  assert f'Finished at step {_STEPS}' in log
  assert losses(tmp_path / 'run') == uninterrupted


def test_cancelled_job_saves_and_is_not_queued_again(
  workspace, cluster, tmp_path
):
  job = _submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *_train(workspace, tmp_path / 'run'),
    '--gin.TRAIN_STEPS=100000',
  )
  wait_for_step(job, tmp_path / 'run', 3)
  cluster.run('scancel', job.number)
  assert job.wait() == 'CANCELLED'
  log = _log(tmp_path / 'logs')
  assert 'Stopped at step' in log and 'queued again' not in log, log


def test_mistake_fails_the_job_at_once(workspace, cluster, tmp_path):
  job = _submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--',
    *_train(workspace, tmp_path / 'run'),
    '--gin.BATCH_SIZE=7',
  )
  assert job.wait(120) == 'FAILED'
  log = _log(tmp_path / 'logs')
  assert log.count('The batch size does not divide over the devices') == 2
  assert 'Traceback' not in log


def test_lines_of_a_sweep_are_tasks_of_an_array(workspace, cluster, tmp_path):
  (tmp_path / 'sweep').write_text(
    ''.join(
      f'--model_dir="{tmp_path}/run {i}" --gin.LEARNING_RATE=1e-{i}\n'
      for i in (2, 3)
    )
  )
  job = _submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--nodes=1',
    f'--sweep={tmp_path / "sweep"}',
    '--',
    'train',
    *_TINY,
    *workspace.inputs,
    workspace.cache,
    '--gin.TRAIN_STEPS=6',
  )
  assert job.wait() == 'COMPLETED', _log(tmp_path / 'logs')
  for i in (2, 3):
    found = losses(tmp_path / f'run {i}')
    assert found[3]['learning_rate'] == pytest.approx(10**-i, rel=1e-3)


def test_several_processes_on_each_node(workspace, cluster, tmp_path):
  job = _submit(
    workspace,
    cluster,
    tmp_path / 'logs',
    '--sbatch=--ntasks-per-node=2',
    '--',
    *_train(workspace, tmp_path / 'run'),
    '--gin.TRAIN_STEPS=6',
  )
  assert job.wait() == 'COMPLETED', _log(tmp_path / 'logs')
  log = _log(tmp_path / 'logs')
  for i in range(4):
    assert f'Process {i} of 4 (slurm)' in log
  assert log.count('Finished at step 6') == 1  # process 0 alone reports
