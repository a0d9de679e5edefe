"""Model of the controllers of Kubernetes Jobs and of JobSets.

Each rule names the file and the function that it is derived from. Files of
kubernetes/kubernetes are in `pkg/controller/job/`, those of
kubernetes-sigs/jobset in `pkg/controllers/`, with the lines of commit 08dfbdfd
(August 2026).
"""

import re

_DEFAULT_BACKOFF = 10  # seconds: job_controller.go, DefaultJobPodFailureBackOff
_LONGEST_BACKOFF = 600  # job_controller.go, MaxJobPodFailureBackOff


class Controllers:
  """Controllers of Jobs and JobSets, for one replicated Job.

  Args:
    manifest: Rendered manifest of a JobSet.
  """

  def __init__(self, manifest):
    [workers] = manifest['spec']['replicatedJobs']
    self.job = workers['template']['spec']
    self.policy = manifest['spec']['failurePolicy']
    self.counted = self.restarts = 0

  def run(self, attempts) -> str:
    """Returns 'completed', 'failed', or 'running' after all attempts.

    Args:
      attempts: Statuses of the pods of each attempt: a number, or None for an
        evicted pod (its condition is DisruptionTarget).
    """
    for statuses in attempts:
      failure = end_of_job(self.job, statuses)
      if failure is None:
        return 'completed'
      if not self._apply_action(action(self.policy, *failure)):
        return 'failed'
    return 'running'

  def _apply_action(self, action: str) -> bool:
    """Applies an action (failure_policy.go:36, `actionFunctionMap`).

    The counted restarts are compared with `maxRestarts` in line 226.
    """
    if action == 'FailJobSet':
      return False
    if action == 'RestartJobSet':
      if self.counted >= self.policy['maxRestarts']:
        return False
      self.counted += 1
    self.restarts += 1
    return True


def action(policy, reason: str, message: str) -> str:
  """Returns the action of the JobSet's first matching rule.

  See failure_policy.go:87 and 142. An absent list of reasons or of patterns
  (JobSet 0.10 and later) matches all. A pattern is searched anywhere in the
  message (line 168).
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
  """Returns the reason and message of a failed Job; None if all pods succeed.

  job_controller.go, `syncJob`: pods that match FailJob are checked first, then
  the count of failed pods against `backoffLimit`, then the failed indexes.
  """
  failed = [s for s in statuses if s != 0]
  if not failed:
    return None
  matches = [matched(job, status) for status in failed]
  for action, message in matches:
    if action == 'FailJob':  # getFailJobMessage
      return 'PodFailurePolicy', message
  counted = sum(action != 'Ignore' for action, _ in matches)
  if counted > job.get('backoffLimit', 2**31 - 1):
    return 'BackoffLimitExceeded', 'Job has reached the specified backoff limit'
  indexes = sum(
    action == 'FailIndex' or (action == 'Count' and _is_over(job))
    for action, _ in matches
  )
  if 'maxFailedIndexes' in job and indexes > job['maxFailedIndexes']:
    return 'MaxFailedIndexesExceeded', 'Job has exceeded the maximal number'
  raise AssertionError(f'{statuses}: the Job would continue without a process')


def _is_over(job) -> bool:
  """Returns whether one more failure exceeds the limit of an index."""
  return job.get('backoffLimitPerIndex') == 0


def matched(job, status: int | None) -> tuple[str, str]:
  """Returns the first matching rule's action and message.

  See pod_failure_policy.go, `matchPodFailurePolicy`.
  """
  for i, rule in enumerate(job['podFailurePolicy']['rules']):
    codes = rule.get('onExitCodes')
    if codes is None:
      if status is None:
        action = rule['action']
        return (
          action,
          f'Pod d/p has condition C matching {action} rule at index {i}',
        )
    elif (status in codes['values']) == (codes['operator'] == 'In'):
      action = rule['action']
      return action, (
        f'Container c for pod d/p failed with exit code {status} matching '
        f'{action} rule at index {i}'
      )
  return 'Count', ''


def seconds_until_replaced(job, statuses) -> int:
  """Returns the backoff before failed pods are replaced.

  See backoff_utils.go, `getRemainingTime` and `getRemainingTimePerIndex`. The
  time doubles with each failed pod of the Job, ignored or not. With
  `backoffLimitPerIndex`, it doubles with each failed pod of the index.
  """
  failures = 1 if 'backoffLimitPerIndex' in job else len(statuses)
  return min(_DEFAULT_BACKOFF * 2 ** (failures - 1), _LONGEST_BACKOFF)
