"""Manifests: what is applied for a job under Kubernetes.

Two kinds: a plain indexed Job with a headless Service, whose pods are replaced
one by one, and a JobSet, whose controller starts all pods anew together.
"""

from typing import Any

from xlflax.foundation import errors
from xlflax.launch import kubernetes_settings as settings_lib
from xlflax.launch import pods

_DISRUPTED = {'type': 'DisruptionTarget', 'status': 'True'}
_QUEUE = 'kueue.x-k8s.io/queue-name'
_JOB_NAME = 'batch.kubernetes.io/job-name'
# Each Job of a set gets a slice of TPUs, which is a node pool, for itself.
_EXCLUSIVE = {
  'alpha.jobset.sigs.k8s.io/exclusive-topology': 'cloud.google.com/gke-nodepool'
}


def manifests(job: settings_lib.KubernetesSettings) -> list[dict[str, Any]]:
  """Returns the objects to apply, as plain data."""
  if job.kind is settings_lib.Kind.JOBSET:
    return [_jobset(job)]
  return [_service(job), _job(job)]


def _labels(job: settings_lib.KubernetesSettings) -> dict[str, str]:
  return {
    **job.labels,
    'app.kubernetes.io/name': 'xlflax',
    'app.kubernetes.io/instance': job.name,
  }


def _metadata(
  job: settings_lib.KubernetesSettings, *, queued: bool = True
) -> dict[str, Any]:
  queue = {_QUEUE: job.queue} if job.queue and queued else {}
  return pods.without_none(
    {
      'name': job.name,
      'namespace': job.namespace,
      'labels': _labels(job) | queue,
    }
  )


def _service(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  """Names for the pods: NAME-0.NAME and so on."""
  return {
    'apiVersion': 'v1',
    'kind': 'Service',
    'metadata': _metadata(job, queued=False),
    'spec': {
      'clusterIP': 'None',
      'publishNotReadyAddresses': True,
      'selector': {_JOB_NAME: job.name},
      'ports': [{'name': 'coordinator', 'port': pods.PORT}],
    },
  }


def _job(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  policy = [
    _rule('FailJob', errors.ExitStatus.MISTAKE),
    _rule('Ignore', errors.ExitStatus.STOPPED),
    {'action': 'Ignore', 'onPodConditions': [_DISRUPTED]},
  ]
  # Failures count for each index, and so does the time until its pod is
  # replaced: counted together, ten minutes for seven pods.
  limits = {'backoffLimitPerIndex': job.restarts, 'maxFailedIndexes': 0}
  return {
    'apiVersion': 'batch/v1',
    'kind': 'Job',
    'metadata': _metadata(job),
    'spec': _job_spec(job, policy, limits),
  }


def _jobset(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': _metadata(job)
    | ({'annotations': _EXCLUSIVE} if job.slices > 1 else {}),
    'spec': {
      'network': {
        'enableDNSHostnames': True,
        'subdomain': job.name,
        'publishNotReadyAddresses': True,
      },
      'failurePolicy': {
        'maxRestarts': job.restarts,
        'rules': [
          # The message of a Job that its policy failed ends with this.
          _set_rule('mistake', 'FailJobSet')
          | {'onJobFailureMessagePatterns': ['FailJob rule at index 0$']},
          _set_rule('stopped', 'RestartJobSetAndIgnoreMaxRestarts'),
        ],
      },
      'replicatedJobs': [
        {
          'name': 'workers',
          'replicas': job.slices,
          'template': {'spec': _workers(job)},
        }
      ],
    },
  }


def _set_rule(name: str, action: str) -> dict[str, Any]:
  """What a JobSet does after the policy of its Job failed it."""
  reasons = ['PodFailurePolicy']
  return {'name': name, 'action': action, 'onJobFailureReasons': reasons}


def _workers(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  """The Job of a JobSet, whose reason of failure tells statuses apart.

  A mistake, a stop or a disruption fails the Job by its policy: the reason is
  PodFailurePolicy, and the message names the rule, of which the mistake's is
  the first. Anything else is over the limit of restarts, 0, which the Job
  controller looks at next (BackoffLimitExceeded).
  """
  policy = [
    _rule('FailJob', errors.ExitStatus.MISTAKE),
    _rule('FailJob', errors.ExitStatus.STOPPED),
    {'action': 'FailJob', 'onPodConditions': [_DISRUPTED]},
  ]
  return _job_spec(job, policy, {'backoffLimit': 0})


def _rule(action: str, status: errors.ExitStatus) -> dict[str, Any]:
  return {
    'action': action,
    'onExitCodes': {
      'containerName': pods.CONTAINER,
      'operator': 'In',
      'values': [int(status)],
    },
  }


def _job_spec(job, policy, limits: dict[str, int]) -> dict[str, Any]:
  return {
    'completionMode': 'Indexed',
    'completions': job.nodes,
    'parallelism': job.nodes,
    **limits,
    'podFailurePolicy': {'rules': policy},
    'template': pods.template(job, labels=_labels(job)),
  }
