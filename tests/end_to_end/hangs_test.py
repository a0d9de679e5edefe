"""Tests that hanging jobs log all stack traces and exit within a limit."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.end_to_end.conftest import free_port, losses, wait_for_step

pytestmark = pytest.mark.slow
_WORKER = pathlib.Path(__file__).with_name('faulty_worker.py')
_LIMIT = 30  # seconds; the limit for compilation is four times as long
_STOPPING = 60  # seconds for a step after Ctrl-C
_LEAVING = (
  60  # seconds for stack traces, notifying other processes, and exiting
)
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
  '--gin.TRAIN_STEPS=48',
  '--gin.trainer.Trainer.log_metrics_every=3',
  '--gin.checkpoints.CheckpointOptions.save_interval_steps=8',
)


class _Job:
  """Job of two processes with optional faults and a log each."""

  def __init__(self, workspace, folder, faults, *arguments):
    folder.mkdir(exist_ok=True)
    self.run = folder / 'run'
    self.logs = [folder / f'{i}.log' for i in range(2)]
    port = free_port()
    self.processes = [
      self._start(workspace, i, fault, port, arguments)
      for i, fault in enumerate(faults)
    ]

  def _start(self, workspace, i, fault, port, arguments):
    command = [
      *('train', *_TINY, *workspace.inputs, workspace.cache, *arguments),
      f'--model_dir={self.run}',
      f'--coordinator_address=127.0.0.1:{port}',
      '--num_processes=2',
      f'--process_id={i}',
    ]
    with self.logs[i].open('w') as log:
      return subprocess.Popen(
        [sys.executable, str(_WORKER), fault, *command],
        env=workspace.environment(),
        stdout=log,
        stderr=log,
      )

  def poll(self):
    return next(
      (p.poll() for p in self.processes if p.poll() is not None), None
    )

  def wait_for(self, step: int) -> float:
    """Waits for a step; returns an upper bound of the longest step so far."""
    wait_for_step(self, self.run, 3)
    start = time.monotonic()
    wait_for_step(self, self.run, step)
    assert self.poll() is None, self.texts()
    return time.monotonic() - start

  def statuses(self, seconds: float = 400) -> list[int]:
    """Returns the exit statuses, within a time limit."""
    end = time.monotonic() + seconds
    try:
      return [p.wait(max(1, end - time.monotonic())) for p in self.processes]
    finally:
      for process in self.processes:
        process.kill()

  def texts(self) -> list[str]:
    return [path.read_text() for path in self.logs]


@pytest.fixture(scope='module')
def uninterrupted(workspace, tmp_path_factory):
  job = _Job(workspace, tmp_path_factory.mktemp('whole'), ('none', 'none'))
  assert job.statuses() == [0, 0], job.texts()
  return losses(job.run)


_CASES = {
  'loader': (1, "waiting for a batch of dataset 'mono'", 'faulty_worker.py'),
  'collective': (0, 'training (step ', 'faulty_worker.py'),
  'checkpoint': (0, 'writing a checkpoint', 'faulty_worker.py'),
}


def _has_stacks(text: str) -> bool:
  return 'Current thread' in text and 'training/train_loop.py' in text


@pytest.mark.parametrize('fault', _CASES)
def test_hang_logs_all_stacks_and_the_job_restarts(
  workspace, uninterrupted, tmp_path, fault
):
  """The limit is at least ten times the duration of the longest step."""
  named_by, activity, location = _CASES[fault]
  faults = ('none', fault) if fault != 'checkpoint' else (fault, 'none')
  job = _Job(workspace, tmp_path, faults, f'--watchdog_timeout={_LIMIT}')
  longest = job.wait_for(15)
  limit = max(_LIMIT, 10 * longest) + longest + _LEAVING
  assert job.statuses(limit) == [74, 74], job.texts()
  texts = job.texts()
  assert all(_has_stacks(text) for text in texts), texts
  assert any(location in text for text in texts)
  assert f'This process has been {activity}' in texts[named_by], texts
  again = _Job(workspace, tmp_path, ('none', 'none'))
  assert again.statuses() == [0, 0], again.texts()
  assert losses(again.run) == uninterrupted


@pytest.mark.parametrize('fault', ['loader', 'collective'])
@pytest.mark.parametrize(
  'watchdog_timeout, signaled',
  [(900, (0, 1)), (0, (0,))],
  ids=['both', 'the_first'],
)
def test_one_ctrl_c_ends_a_hanging_job(
  workspace, tmp_path, fault, watchdog_timeout, signaled
):
  """This holds without a watchdog and for processes that wait inside JAX."""
  job = _Job(
    workspace,
    tmp_path,
    ('none', fault),
    f'--watchdog_timeout={watchdog_timeout}',
  )
  longest = job.wait_for(18)
  time.sleep(5 + longest)  # The fault occurs after the 20th step or batch.
  assert job.poll() is None
  for i in signaled:
    job.processes[i].send_signal(signal.SIGINT)
  limit = max(_STOPPING, 10 * longest) + _LEAVING
  assert job.statuses(limit) == [74, 74], job.texts()
  assert all(_has_stacks(text) for text in job.texts()), job.texts()


def test_slow_process_is_named_in_the_log(workspace, tmp_path):
  job = _Job(
    workspace,
    tmp_path,
    ('none', 'slow_loader'),
    '--gin.checkpoints.CheckpointOptions.save_interval_steps=100',
  )
  assert job.statuses() == [0, 0], job.texts()
  speeds = [
    row['speed']
    for row in map(json.loads, (job.run / 'metrics.jsonl').open())
    if row['step'] > 27 and 'speed' in row
  ]
  assert len(speeds) == 7
  assert {s['slowest_process'] for s in speeds} == {1}
  assert min(s['loading_seconds_slowest'] for s in speeds) > 0.3
  named = re.findall(r'Process (\d) on .* delays', job.texts()[0])
  # A busy machine may report process 0 first.
  assert named[-1] == '1', job.texts()[0]
