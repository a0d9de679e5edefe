"""A model of Kubernetes' Job controller and of JobSet's, from their sources.

Each rule names the file and the function that it is read from: those of
kubernetes/kubernetes are below `pkg/controller/job/`, those of
kubernetes-sigs/jobset below `pkg/controllers/`, with the lines of commit
08dfbdfd (August 2026).
"""

import re

_DEFAULT_BACKOFF = 10  # seconds: job_controller.go, DefaultJobPodFailureBackOff
_LONGEST_BACKOFF = 600  # job_controller.go, MaxJobPodFailureBackOff


class Controllers:
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
    """How the set ends: 'completed', 'failed', or 'running' after them all.

    Args:
      attempts: of each the statuses of its pods: a number, or None for a pod
        that had to go (its condition is DisruptionTarget).
    """
    for statuses in attempts:
      failure = end_of_job(self.job, statuses)
      if failure is None:
        return 'completed'
      if not self._go_on(action(self.policy, *failure)):
        return 'failed'
    return 'running'

  def _go_on(self, what: str) -> bool:
    """failure_policy.go:36, `actionFunctionMap`, and its functions.

    The restarts that count are compared with `maxRestarts` in line 226.
    """
    if what == 'FailJobSet':
      return False
    if what == 'RestartJobSet':
      if self.counted >= self.policy['maxRestarts']:
        return False
      self.counted += 1
    self.restarts += 1
    return True


def action(policy, reason: str, message: str) -> str:
  """failure_policy.go:87 and 142, which rule of the JobSet is the first.

  An absent list of reasons or of patterns (JobSet 0.10 and later) matches
  all; a pattern is looked for anywhere in the message (line 168).
  """
  for rule in policy['rules']:
    reasons = rule.get('onJobFailureReasons', [])
    patterns = rule.get('onJobFailureMessagePatterns', [])
    if (not reasons or reason in reasons) and (
      not patterns or any(re.search(p, message) for p in patterns)
    ):
      return rule['action']
  return 'RestartJobSet'  # line 45


def end_of_job(job, statuses) -> tuple[str, str] | None:
  """Why the Job fails: reason and message; None where all pods succeed.

  job_controller.go, `syncJob`: a pod that matches FailJob comes first, then
  the count of failed pods against `backoffLimit`, then the failed indexes.
  """
  failed = [s for s in statuses if s != 0]
  if not failed:
    return None
  matches = [matched(job, status) for status in failed]
  for what, message in matches:
    if what == 'FailJob':  # getFailJobMessage
      return 'PodFailurePolicy', message
  counted = sum(what != 'Ignore' for what, _ in matches)
  if counted > job.get('backoffLimit', 2**31 - 1):
    return 'BackoffLimitExceeded', 'Job has reached the specified backoff limit'
  indexes = sum(
    what == 'FailIndex' or (what == 'Count' and _is_over(job))
    for what, _ in matches
  )
  if 'maxFailedIndexes' in job and indexes > job['maxFailedIndexes']:
    return 'MaxFailedIndexesExceeded', 'Job has exceeded the maximal number'
  raise AssertionError(f'{statuses}: the Job would continue without a process')


def _is_over(job) -> bool:
  """Whether one failure is too much for an index."""
  return job.get('backoffLimitPerIndex') == 0


def matched(job, status: int | None) -> tuple[str, str]:
  """pod_failure_policy.go, `matchPodFailurePolicy`: the first rule counts."""
  for i, rule in enumerate(job['podFailurePolicy']['rules']):
    codes = rule.get('onExitCodes')
    if codes is None:
      if status is None:
        what = rule['action']
        return (
          what,
          f'Pod d/p has condition C matching {what} rule at index {i}',
        )
    elif (status in codes['values']) == (codes['operator'] == 'In'):
      what = rule['action']
      return what, (
        f'Container c for pod d/p failed with exit code {status} matching '
        f'{what} rule at index {i}'
      )
  return 'Count', ''


def seconds_until_replaced(job, statuses) -> int:
  """backoff_utils.go, `getRemainingTime` and `getRemainingTimePerIndex`.

  The time doubles with each failed pod of the Job, ignored or not; with
  `backoffLimitPerIndex` with each one of the index.
  """
  failures = 1 if 'backoffLimitPerIndex' in job else len(statuses)
  return min(_DEFAULT_BACKOFF * 2 ** (failures - 1), _LONGEST_BACKOFF)
