"""Restarts of failed jobs by JobSets and the local launcher.

Each attempt is the status of every process: a number, a signal's number as a
shell reports it, or None for an evicted pod. A model of the Job and JobSet
controllers (`controllers`) applies the rules of the rendered manifest. The
local launcher runs processes that exit with these statuses.
"""

import os

import pytest
import yaml

from tests.launch import controllers
from xlflax.launch import kubernetes, supervisor

_DONE = (0, 0)
# Exit statuses of the processes of a job, in order of failure.
_FAILURES = {
  'a killed task': (137, 134),
  'a killed task whose neighbor is ended by the failure detector': (137, 74),
  'a killed coordinator': (134, 137),
  'a late node': (74, 74),
  'a hang': (74, 74),
  'a full disk': (74, 74),
}


def _manifests(job):
  return list(yaml.safe_load_all(job.render()))


@pytest.fixture
def model():
  job = kubernetes.KubernetesJob(
    command=('train',), name='mlm', image='i', nnodes=2, max_restarts=3
  )
  [manifest] = _manifests(job)
  return controllers.Controllers(manifest)


@pytest.mark.parametrize('failure', _FAILURES)
def test_job_set_restarts_after_a_failure(model, failure):
  assert model.run([_FAILURES[failure], _DONE]) == 'completed'
  assert (model.restarts, model.counted) == (1, 1)


@pytest.mark.parametrize(
  'statuses', [(None, 134), (75, 75), (75, 74), (130, 130)]
)
def test_disruptions_and_stops_are_not_counted(model, statuses):
  """Drained nodes and preemptions may occur any number of times."""
  assert model.run([statuses] * 50 + [_DONE]) == 'completed'
  assert (model.restarts, model.counted) == (50, 0)


@pytest.mark.parametrize('statuses', [(2, 2), (2, 134), (2, 2, 2)])
@pytest.mark.parametrize('restarts', [0, 3])
def test_user_error_fails_a_job_set(statuses, restarts):
  job = kubernetes.KubernetesJob(
    command=('train',),
    name='mlm',
    image='i',
    nnodes=len(statuses),
    max_restarts=restarts,
  )
  [manifest] = _manifests(job)
  model = controllers.Controllers(manifest)
  assert model.run([statuses, _DONE]) == 'failed'
  assert model.restarts == 0


def test_job_set_fails_after_max_restarts(model):
  assert model.run([(137, 134)] * 9) == 'failed'
  assert model.counted == 3


def test_first_restart_of_a_job_waits_ten_seconds():
  """Eight pods that failed together are replaced after ten seconds."""
  job = kubernetes.KubernetesJob(
    command=('train',), name='mlm', image='i', nnodes=8, manifest='job'
  )
  spec = _manifests(job)[-1]['spec']
  assert controllers.seconds_until_replaced(spec, (134,) * 8) == 10
  assert spec['backoffLimitPerIndex'] == 20
  assert spec['maxFailedIndexes'] == 0


def _scripts(folder, attempts):
  """Returns processes that exit as the next attempt specifies."""
  (folder / 'attempts').touch()

  def make():
    lines = (folder / 'attempts').read_text()
    statuses = attempts[len(lines)]
    (folder / 'attempts').write_text(lines + '.')
    return [
      supervisor.WorkerProcess(
        arguments=['sh', '-c', _ending(status, 0.2 * i)],
        environment={},
        log=folder / f'{i}.log',
        name=f'Process {i} of 2',
      )
      for i, status in enumerate(statuses)
    ]

  return make


def _ending(status: int, later: float) -> str:
  if status > 128:
    return f'sleep {later}; kill -{status - 128} $$'
  return f'sleep {later}; exit {status}'


def _run_locally(tmp_path, attempts, restarts=3) -> tuple[int, int]:
  """Returns the status and the number of attempts."""
  status = supervisor.supervise(
    _scripts(tmp_path, attempts), grace_seconds=5, max_restarts=restarts
  )
  return status, len((tmp_path / 'attempts').read_text())


@pytest.mark.parametrize('failure', _FAILURES)
def test_local_launcher_restarts_after_a_failure(tmp_path, failure):
  attempts = [_FAILURES[failure], _DONE]
  assert _run_locally(tmp_path, attempts) == (0, 2)


def test_user_error_fails_a_local_job(tmp_path):
  assert _run_locally(tmp_path, [(2, 2), _DONE]) == (2, 1)


def test_local_job_fails_after_max_restarts(tmp_path):
  assert _run_locally(tmp_path, [(74, 74)] * 9, restarts=1) == (74, 2)


def test_stopped_process_is_killed(tmp_path, monkeypatch, caplog):
  """The other processes would wait for it until their own timeouts."""
  monkeypatch.setattr(supervisor, '_MAX_STOPPED_POLLS', 5)

  def make():
    again = (tmp_path / '1.log').exists()
    return [
      supervisor.WorkerProcess(
        arguments=['sh', '-c', 'exit 0' if again else code],
        environment={},
        log=tmp_path / f'{i}.log',
        name=f'Process {i} of 2',
      )
      for i, code in enumerate(('sleep 60', 'kill -STOP $$; sleep 60'))
    ]

  assert supervisor.supervise(make, grace_seconds=5, max_restarts=1) == 0
  assert 'Process 1 of 2 is stopped by a signal' in caplog.text
  assert 'Process 1 of 2 was killed by SIGKILL' in caplog.text


def test_zombie_process_is_not_reported_as_stopped(tmp_path, monkeypatch):
  """The processes end between two checks of their state."""
  poll = supervisor._ProcessGroup._kill_stopped_processes

  def late(group):
    for process in group._processes:
      if process.returncode is None:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    poll(group)

  monkeypatch.setattr(supervisor._ProcessGroup, '_kill_stopped_processes', late)
  assert _run_locally(tmp_path, [(0, 0)]) == (0, 1)
