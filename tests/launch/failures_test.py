"""What ends real jobs, under JobSets and the local launcher: who restarts.

Each attempt is the status of every process: a number, a signal's as a shell
gives it, or None for a pod that its node lost or that had to go. A model of the
Job and JobSet controllers applies the rules of the rendered manifest itself;
the local launcher runs processes that end so.
"""

import pytest

from xlflax.launch import kubernetes, manifests, processes

_DONE = (0, 0)
# What the processes of a job end with, the first to fail first.
_FAILURES = {
  'a killed task': (137, 134),
  'a killed task whose peer ends by the detector': (137, 74),
  'a killed coordinator': (134, 137),
  'a late node': (74, 74),
  'a hang': (74, 74),
  'a full disk': (74, 74),
}


class _Model:
  """The controllers of Jobs and JobSets, for one replicated Job.

  Args:
    manifest: a JobSet's, as rendered.
  """

  def __init__(self, manifest):
    [workers] = manifest['spec']['replicatedJobs']
    self.job = workers['template']['spec']
    self.policy = manifest['spec']['failurePolicy']
    self.counted = self.restarts = 0

  def run(self, attempts) -> str:
    """How the set ends: 'completed', 'failed', or 'running' after them all."""
    for statuses in attempts:
      reason = self._end_of_job(statuses)
      if reason is None:
        return 'completed'
      action = next(
        (
          rule['action']
          for rule in self.policy['rules']
          if reason in rule['onJobFailureReasons']
        ),
        'RestartJobSet',
      )
      if action == 'FailJobSet':
        return 'failed'
      self.restarts += 1
      self.counted += action == 'RestartJobSet'
      if self.counted > self.policy['maxRestarts']:
        return 'failed'
    return 'running'

  def _end_of_job(self, statuses) -> str | None:
    """Why the Job fails; None where all pods succeed."""
    for status in statuses:
      if status == 0:
        continue
      action = next(
        (
          rule['action']
          for rule in self.job['podFailurePolicy']['rules']
          if self._matches(rule, status)
        ),
        'Count',
      )
      if action == 'FailJob':
        return 'PodFailurePolicy'
      if action == 'FailIndex' and self.job['maxFailedIndexes'] == 0:
        return 'MaxFailedIndexesExceeded'
      if action == 'Count' and self.job['backoffLimit'] == 0:
        return 'BackoffLimitExceeded'
      raise AssertionError(f'{status}: the Job would go on without a peer')
    return None

  @staticmethod
  def _matches(rule, status) -> bool:
    if status is None:
      return 'onPodConditions' in rule
    codes = rule.get('onExitCodes')
    return (
      bool(codes) and codes['operator'] == 'In' and status in codes['values']
    )


@pytest.fixture
def model():
  job = kubernetes.KubernetesJob(
    command=('train',), name='mlm', image='i', nodes=2, restarts=3
  )
  [manifest] = manifests.manifests(job)
  return _Model(manifest)


@pytest.mark.parametrize('failure', _FAILURES)
def test_a_job_set_starts_again(model, failure):
  assert model.run([_FAILURES[failure], _DONE]) == 'completed'
  assert (model.restarts, model.counted) == (1, 1)


@pytest.mark.parametrize('statuses', [(None, 134), (None, 74), (75, 75)])
def test_lost_nodes_and_stops_are_not_counted(model, statuses):
  """A drained node, a pre-emption: as often as it happens."""
  assert model.run([statuses] * 50 + [_DONE]) == 'completed'
  assert (model.restarts, model.counted) == (50, 0)


def test_a_mistake_ends_a_job_set_at_once(model):
  assert model.run([(2, 2), _DONE]) == 'failed'
  assert model.restarts == 0


def test_restarts_end(model):
  assert model.run([(137, 134)] * 9) == 'failed'
  assert model.counted == 4


def _scripts(folder, attempts):
  """Processes that end as the next attempt says."""
  (folder / 'attempts').touch()

  def make():
    lines = (folder / 'attempts').read_text()
    statuses = attempts[len(lines)]
    (folder / 'attempts').write_text(lines + '.')
    return [
      processes.Process(
        arguments=['sh', '-c', _ending(status, 0.2 * i)],
        variables={},
        log=folder / f'{i}.log',
      )
      for i, status in enumerate(statuses)
    ]

  return make


def _ending(status: int, later: float) -> str:
  if status > 128:
    return f'sleep {later}; kill -{status - 128} $$'
  return f'sleep {later}; exit {status}'


def _run_locally(tmp_path, attempts, restarts=3) -> tuple[int, int]:
  """Status, and how many attempts there were."""
  status = processes.run(
    _scripts(tmp_path, attempts), grace_seconds=5, restarts=restarts
  )
  return status, len((tmp_path / 'attempts').read_text())


@pytest.mark.parametrize('failure', _FAILURES)
def test_the_local_launcher_starts_again(tmp_path, failure):
  attempts = [_FAILURES[failure], _DONE]
  assert _run_locally(tmp_path, attempts) == (0, 2)


def test_a_mistake_ends_a_local_job_at_once(tmp_path):
  assert _run_locally(tmp_path, [(2, 2), _DONE]) == (2, 1)


def test_local_restarts_end(tmp_path):
  assert _run_locally(tmp_path, [(74, 74)] * 9, restarts=1) == (74, 2)
