"""Tests of joining and leaving a distributed job."""

import subprocess
import sys

import pytest

from tests.end_to_end import conftest
from xlflax.training.distributed import cluster_detection, distributed_job
from xlflax.utils import errors


@pytest.mark.parametrize(
  'settings',
  [
    dict(coordinator_address='localhost:1'),
    dict(num_processes=2, process_id=0),
  ],
)
def test_incomplete_job_is_rejected(settings):
  with pytest.raises(errors.ConfigError) as error:
    distributed_job.initialize_distributed(**settings)
  assert '--coordinator_address, --num_processes and --process_id' in str(
    error.value
  )


def test_single_process_is_lead():
  distributed_job.initialize_distributed()
  assert distributed_job.is_lead()


@pytest.mark.parametrize('cluster, warns', [('auto', 1), ('none', 0)])
def test_unread_variables_are_reported_once(
  monkeypatch, caplog, cluster, warns
):
  """`Trainer.train` also reports them if no job has been initialized."""
  monkeypatch.setattr(distributed_job, '_has_searched_variables', False)
  for name, value in {'RANK': '0', 'WORLD_SIZE': '2'}.items():
    monkeypatch.setenv(name, value)
  distributed_job.initialize_distributed(
    cluster=cluster_detection.Cluster(cluster)
  )
  distributed_job.warn_of_unread_variables()
  lines = [text for text in caplog.messages if 'WORLD_SIZE=2' in text]
  assert len(lines) == warns


def test_single_process_propagates_exceptions():
  with pytest.raises(ZeroDivisionError):
    with distributed_job.leaving_together('train'):
      raise ZeroDivisionError


class _Monitor:
  """Records what a failing process reports."""

  def __init__(self):
    self.failures, self.lost = [], []

  def fail(self, message, exit_code):
    self.failures.append((message, exit_code))

  def end_after_lost_connection(self, error):
    self.lost.append(error)
    distributed_job.os._exit(errors.ExitStatus.FAILURE)


@pytest.mark.parametrize(
  'error, exit_code',
  [
    (errors.CorpusError('No text', got='nothing'), 2),
    (errors.CorpusError('No disk', status=errors.ExitStatus.FAILURE), 74),
    (ZeroDivisionError('Connection closed by peer'), 1),
    (RuntimeError('Gloo all-reduce failed: Connection closed by peer'), 74),
    (KeyboardInterrupt(), 130),
  ],
)
def test_failure_in_a_job_is_reported_and_exits(monkeypatch, error, exit_code):
  monitor = _Monitor()

  class Exited(BaseException):
    pass

  def exit_process(code):
    raise Exited(code)

  monkeypatch.setattr(distributed_job, '_monitor', monitor)
  monkeypatch.setattr(distributed_job.os, '_exit', exit_process)
  with pytest.raises(Exited) as exited:
    with distributed_job.leaving_together('train'):
      raise error
  assert exited.value.args == (exit_code,)
  if isinstance(error, RuntimeError):
    assert monitor.lost == [error] and not monitor.failures
  else:
    assert [code for _, code in monitor.failures] == [exit_code]


_PROCESS = """
import os, signal, sys, threading, time
number, port, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if way == 'library first':
  import jax
from xlflax import cli
from xlflax.utils import process_exit
def run(name, arguments, level):
  from xlflax.training.distributed import distributed_job
  import jax
  jax.config.update('jax_platforms', 'cpu')
  distributed_job.initialize_distributed(
    coordinator_address=f'127.0.0.1:{port}', num_processes=2, process_id=number
  )
  if number:
    time.sleep(3)
  elif way == 'thread':
    thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
    thread.start()
    process_exit.abandon_thread(thread)
  elif way.startswith('SIG'):
    for delay in (1, 2):
      threading.Timer(
        delay, os.kill, (os.getpid(), signal.Signals[way])
      ).start()
  print('done')
  return 75
cli._run_command = run
sys.argv = ['xlflax', 'train']
sys.exit(cli.main())
"""


@pytest.mark.parametrize(
  'way', ['library first', 'thread', 'SIGTERM', 'SIGINT']
)
def test_processes_of_a_job_exit_together(way):
  """JAX aborts the second process if the coordinator exits first."""
  port = conftest.free_port()
  processes = [
    subprocess.Popen(
      [sys.executable, '-c', _PROCESS, str(number), str(port), way],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for number in range(2)
  ]
  outputs = [process.communicate(timeout=100)[0] for process in processes]
  assert [process.returncode for process in processes] == [75, 75], outputs
  assert all('done' in text.splitlines() for text in outputs), outputs
