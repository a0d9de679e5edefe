"""Jobs of `xlflax launch slurm` on the test cluster."""

import pathlib
import sys
import time

from tests.launch import slurm_cluster

STEPS = 200
_COMMAND = f'{sys.executable} -m xlflax.cli'
TINY = (
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
)


class Job:
  """A job of `xlflax launch slurm` with the interface of `wait_for_step`."""

  def __init__(self, cluster, number: str):
    self.cluster, self.number = cluster, number
    self._ended: str | None = None
    self._polled_at = 0.0

  def poll(self):
    """Returns the state of a finished job, queried once a second."""
    if time.monotonic() > self._polled_at + 1:
      state = self.cluster.state(self.number)
      self._ended = None if state in slurm_cluster.UNFINISHED else state
      self._polled_at = time.monotonic()
    return self._ended

  def wait_until_queued_again(self, seconds: float = 240) -> None:
    """Blocks until Slurm has counted a restart of the job."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
      description = self.cluster.run('scontrol', 'show', 'job', self.number)
      if ' Restarts=0 ' not in description:
        return
      time.sleep(1)
    raise AssertionError(f'{description}\n' + self.cluster.logs())

  def wait(self, seconds: float = 240) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
      if self.poll():
        return self.poll()
      time.sleep(1)
    raise AssertionError(
      f'still {self.cluster.state(self.number)}\n' + self.cluster.logs()
    )


def submit(workspace, cluster, logs, *arguments, command=_COMMAND) -> Job:
  """Submits a job of two nodes whose processes run `command`."""
  answer = workspace.run(
    'launch',
    'slurm',
    '--nodes=2',
    f'--logs={logs}',
    f'--entrypoint={command}',
    *arguments,
    SLURM_CONF=cluster.environment['SLURM_CONF'],
  )
  number = answer.rpartition('Submitted batch job ')[2].strip()
  return Job(cluster, number)


def train(workspace, directory: pathlib.Path) -> tuple[str, ...]:
  return (
    'train',
    *TINY,
    *workspace.inputs,
    workspace.cache,
    f'--model_dir={directory}',
    f'--gin.TRAIN_STEPS={STEPS}',
  )


def log(logs: pathlib.Path) -> str:
  return '\n'.join(path.read_text() for path in sorted(logs.glob('*.log')))
