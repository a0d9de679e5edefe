"""Jobs under Kubernetes: manifests, and `kubectl apply`.

One pod for each node, with one process that has all its accelerators. Two
kinds: a plain indexed Job with a headless Service, whose pods are replaced one
by one, and a JobSet, whose controller starts all pods anew together.
"""

import argparse
import dataclasses
import enum
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from xlflax import enums, errors
from xlflax.launch import job as job_lib
from xlflax.launch import registry

_PORT = 55527
_CONTAINER = 'xlflax'
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_DISRUPTED = {'type': 'DisruptionTarget', 'status': 'True'}
_JOIN_TIMEOUT = 3600  # seconds; nodes of a large job come minutes apart
_QUEUE = 'kueue.x-k8s.io/queue-name'


class Kind(enum.Enum):
  """What the manifest is of."""

  JOB = 'job'  # plain Kubernetes
  JOBSET = 'jobset'  # needs the JobSet controller


_EXAMPLE = r"""# four nodes of eight GPUs under Kubernetes, runs on the claim `runs`
xlflax launch kubernetes --name=mlm --image=registry/xlflax:gpu --nodes=4 \
    --claim=runs -- train --gin_file=... --model_dir=/shared/runs/mlm
"""


@registry.register(
  'kubernetes', help='an indexed Job or a JobSet', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesJob(job_lib.Job):
  """A job for a Kubernetes cluster.

  Attributes:
    command: what each process runs.
    name: of the job and what belongs to it.
    image: of the container; its entry point is not used.
    nodes: how many pods, each on a node of its own accelerators.
    kind: indexed Job or JobSet.
    accelerators: per pod; 0 for a job on CPUs.
    accelerator: the resource's name.
    cpu: requested per pod, such as '32'.
    memory: requested per pod, such as '256Gi'.
    shared_memory: size of /dev/shm.
    node_selector: labels that a node must have.
    claim: a PersistentVolumeClaim, for runs and data; None where both are in
      buckets (gs://, s3://).
    mount: where the claim is mounted.
    service_account: the pods' identity, for buckets.
    namespace: None takes kubectl's own.
    queue: a Kueue LocalQueue.
    priority_class: of the pods.
    restarts: how often the job starts again after a failure. An order to stop
      (pre-emption, drained node) does not count, and a mistake ends the job.
    grace_seconds: for the last checkpoint, when a pod has to go.
  """

  command: tuple[str, ...]
  name: str
  image: str
  nodes: int = 1
  kind: Kind = Kind.JOBSET
  accelerators: int = 8
  accelerator: str = 'nvidia.com/gpu'
  cpu: str | None = None
  memory: str | None = None
  shared_memory: str = '16Gi'
  node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
  claim: str | None = None
  mount: str = '/shared'
  service_account: str | None = None
  namespace: str | None = None
  queue: str | None = None
  priority_class: str | None = None
  restarts: int = 20
  grace_seconds: int = 180

  @classmethod
  def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    _add_job_flags(parser)
    _add_resource_flags(parser)
    _add_placement_flags(parser)
    _add_cluster_flags(parser)
    _add_failure_flags(parser)

  def __post_init__(self):
    enums.coerce(self, 'kind', Kind)
    # Pods are called NAME-workers-0-N, which may have 63 characters.
    if not re.fullmatch(r'[a-z]([-a-z0-9]{0,40}[a-z0-9])?', self.name):
      raise errors.ConfigError(
        'The name is not usable in Kubernetes',
        got=self.name,
        expected='at most 42 lower-case letters, digits and hyphens, a '
        'letter first',
        where='--name',
      )
    if self.nodes < 1 or self.accelerators < 0 or self.restarts < 0:
      raise errors.ConfigError(
        'The size of the job is not usable',
        got=f'nodes={self.nodes}, accelerators={self.accelerators}, '
        f'restarts={self.restarts}',
        expected='1 or more nodes, 0 or more of the others',
      )

  def rendered(self) -> str:
    """Returns the manifests as YAML documents."""
    import yaml

    class Dumper(yaml.SafeDumper):
      def ignore_aliases(self, data):
        return True

    return '---\n'.join(
      yaml.dump(
        manifest, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
      )
      for manifest in manifests(self)
    )

  def start(self) -> int:
    """Applies the manifests, and prints the cluster's answer."""
    print(submit(self, dict(os.environ)))
    return 0


def _add_job_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what the job is."""
  for name in ('name', 'image'):
    parser.add_argument(f'--{name}', required=True)
  parser.add_argument(
    '--nodes',
    type=int,
    default=1,
    metavar='N',
    help='pods, with one process each',
  )
  parser.add_argument(
    '--manifest',
    dest='kind',
    choices=[k.value for k in Kind],
    default='jobset',
    help='a JobSet, which needs its controller, or a plain '
    'indexed Job (default: %(default)s)',
  )


def _add_resource_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what each pod has."""
  parser.add_argument(
    '--accelerators',
    type=int,
    default=8,
    metavar='N',
    help='of each pod (default: %(default)s)',
  )
  parser.add_argument(
    '--accelerator',
    default='nvidia.com/gpu',
    metavar='RESOURCE',
    help='default: %(default)s',
  )
  for name, text in (('cpu', 'such as 32'), ('memory', 'such as 256Gi')):
    parser.add_argument(f'--{name}', help=f'requested by each pod, {text}')
  parser.add_argument(
    '--shared_memory',
    default='16Gi',
    help='size of /dev/shm (default: %(default)s)',
  )


def _add_placement_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of nodes and volumes."""
  parser.add_argument(
    '--node_selector',
    action=_AddLabel,
    default={},
    metavar='LABEL=VALUE',
    help='nodes that may be used; may be repeated',
  )
  parser.add_argument('--claim', help='PersistentVolumeClaim of runs and data')
  parser.add_argument(
    '--mount',
    default='/shared',
    metavar='DIR',
    help='where it is mounted (default: %(default)s)',
  )


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of the cluster's own objects."""
  for name, text in (
    ('service_account', "the pods' identity, for buckets"),
    ('namespace', "default: kubectl's own"),
    ('queue', 'LocalQueue of Kueue'),
    ('priority_class', 'of the pods'),
  ):
    parser.add_argument(f'--{name}', help=text)


def _add_failure_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of restarts."""
  parser.add_argument(
    '--restarts',
    type=int,
    default=20,
    metavar='N',
    help='how often the job starts again (default: %(default)s)',
  )
  parser.add_argument(
    '--grace',
    dest='grace_seconds',
    type=int,
    default=180,
    metavar='SECONDS',
    help='for the last '
    'checkpoint of a pod that has to go (default: %(default)s)',
  )


def manifests(job: KubernetesJob) -> list[dict[str, Any]]:
  """Returns the objects to apply, as plain data."""
  if job.kind is Kind.JOBSET:
    return [_jobset(job)]
  return [_service(job), _job(job)]


def _metadata(job: KubernetesJob, *, queued: bool = True) -> dict[str, Any]:
  labels = {
    'app.kubernetes.io/name': 'xlflax',
    'app.kubernetes.io/instance': job.name,
  }
  if job.queue and queued:
    labels[_QUEUE] = job.queue
  return _without_none(
    {'name': job.name, 'namespace': job.namespace, 'labels': labels}
  )


def _service(job: KubernetesJob) -> dict[str, Any]:
  """Names for the pods: NAME-0.NAME and so on."""
  return {
    'apiVersion': 'v1',
    'kind': 'Service',
    'metadata': _metadata(job, queued=False),
    'spec': {
      'clusterIP': 'None',
      'publishNotReadyAddresses': True,
      'selector': {'batch.kubernetes.io/job-name': job.name},
      'ports': [{'name': 'coordinator', 'port': _PORT}],
    },
  }


def _job(job: KubernetesJob) -> dict[str, Any]:
  policy = [
    _rule('FailJob', errors.ExitStatus.MISTAKE),
    _rule('Ignore', errors.ExitStatus.STOPPED),
    {'action': 'Ignore', 'onPodConditions': [_DISRUPTED]},
  ]
  # All pods fail when one does, so a restart counts once for each.
  spec = _job_spec(job, policy, backoff=job.restarts * job.nodes)
  spec['template']['spec']['subdomain'] = job.name
  return {
    'apiVersion': 'batch/v1',
    'kind': 'Job',
    'metadata': _metadata(job),
    'spec': spec,
  }


def _jobset(job: KubernetesJob) -> dict[str, Any]:
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': _metadata(job),
    'spec': {
      'network': {
        'enableDNSHostnames': True,
        'subdomain': job.name,
        'publishNotReadyAddresses': True,
      },
      'failurePolicy': {
        'maxRestarts': job.restarts,
        'rules': [
          _set_rule('mistake', 'FailJobSet', 'MaxFailedIndexesExceeded'),
          _set_rule(
            'stopped', 'RestartJobSetAndIgnoreMaxRestarts', 'PodFailurePolicy'
          ),
        ],
      },
      'replicatedJobs': [
        {'name': 'workers', 'replicas': 1, 'template': {'spec': _workers(job)}}
      ],
    },
  }


def _set_rule(name: str, action: str, reason: str) -> dict[str, Any]:
  """What a JobSet does after its Job failed for a reason."""
  return {'name': name, 'action': action, 'onJobFailureReasons': [reason]}


def _workers(job: KubernetesJob) -> dict[str, Any]:
  """The Job of a JobSet, whose reasons of failure tell statuses apart.

  A mistake fails its index, of which none may fail (MaxFailedIndexesExceeded).
  A stop or a disruption fails the Job by its policy (PodFailurePolicy).
  Anything else is over the limit of restarts, 0 (BackoffLimitExceeded).
  """
  policy = [
    _rule('FailIndex', errors.ExitStatus.MISTAKE),
    _rule('FailJob', errors.ExitStatus.STOPPED),
    {'action': 'FailJob', 'onPodConditions': [_DISRUPTED]},
  ]
  limits = {'backoffLimitPerIndex': job.restarts + 1, 'maxFailedIndexes': 0}
  return _job_spec(job, policy, backoff=0) | limits


def _rule(action: str, status: errors.ExitStatus) -> dict[str, Any]:
  return {
    'action': action,
    'onExitCodes': {
      'containerName': _CONTAINER,
      'operator': 'In',
      'values': [int(status)],
    },
  }


def _job_spec(job, policy, *, backoff: int) -> dict[str, Any]:
  return {
    'completionMode': 'Indexed',
    'completions': job.nodes,
    'parallelism': job.nodes,
    'backoffLimit': backoff,
    'podFailurePolicy': {'rules': policy},
    'template': {
      'metadata': {'labels': _metadata(job, queued=False)['labels']},
      'spec': _pod(job),
    },
  }


def _pod(job: KubernetesJob) -> dict[str, Any]:
  volumes: list[dict[str, Any]] = [
    {
      'name': 'shm',
      'emptyDir': {'medium': 'Memory', 'sizeLimit': job.shared_memory},
    }
  ]
  if job.claim:
    volumes.append(
      {'name': 'runs', 'persistentVolumeClaim': {'claimName': job.claim}}
    )
  tolerations = (
    [{'key': job.accelerator, 'operator': 'Exists', 'effect': 'NoSchedule'}]
    if job.accelerators
    else None
  )
  return _without_none(
    {
      'restartPolicy': 'Never',
      'terminationGracePeriodSeconds': job.grace_seconds,
      'serviceAccountName': job.service_account,
      'priorityClassName': job.priority_class,
      'nodeSelector': dict(job.node_selector) or None,
      'tolerations': tolerations,
      'containers': [_container(job)],
      'volumes': volumes,
    }
  )


def _container(job: KubernetesJob) -> dict[str, Any]:
  mounts = [{'name': 'shm', 'mountPath': '/dev/shm'}]
  if job.claim:
    mounts.append({'name': 'runs', 'mountPath': job.mount})
  # Kubernetes itself would replace $(NAME) by a variable.
  command = [word.replace('$(', '$$(') for word in job.command]
  return {
    'name': _CONTAINER,
    'image': job.image,
    'command': ['xlflax', *command, *_own_flags(job)],
    'env': _variables(job),
    'ports': [{'name': 'coordinator', 'containerPort': _PORT}],
    'resources': _resources(job),
    'volumeMounts': mounts,
  }


def _own_flags(job: KubernetesJob) -> list[str]:
  """What the launcher adds to the command."""
  flags = [f'--stopped_status={errors.ExitStatus.STOPPED}']
  platform = 'tpu' if job.accelerator.startswith('google.com/tpu') else 'gpu'
  flags += job_lib.platform_flag(
    job.command, platform if job.accelerators else None
  )
  if job_lib.flag_value(job.command, '--join_timeout') is None:
    flags.append(f'--join_timeout={_JOIN_TIMEOUT}')
  return flags


def _variables(job: KubernetesJob) -> list[dict[str, Any]]:
  first = (
    f'{job.name}-workers-0-0' if job.kind is Kind.JOBSET else f'{job.name}-0'
  )
  plain = {
    'PYTHONUNBUFFERED': '1',
    'XLFLAX_COORDINATOR': f'{first}.{job.name}:{_PORT}',
    'XLFLAX_NUM_PROCESSES': str(job.nodes),
  }
  if not job.accelerators:
    plain['JAX_PLATFORMS'] = 'cpu'
  return [
    *({'name': k, 'value': v} for k, v in plain.items()),
    {
      'name': 'XLFLAX_PROCESS_ID',
      'valueFrom': {'fieldRef': {'fieldPath': _INDEX}},
    },
  ]


def _resources(job: KubernetesJob) -> dict[str, Any]:
  requests = _without_none({'cpu': job.cpu, 'memory': job.memory})
  limits = {job.accelerator: str(job.accelerators)} if job.accelerators else {}
  return {
    name: values
    for name, values in (('requests', requests), ('limits', limits))
    if values
  }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
  return {k: v for k, v in values.items() if v is not None}


class _AddLabel(argparse.Action):
  """Adds LABEL=VALUE to a dict."""

  def __call__(self, parser, namespace, value, option_string=None):
    label, sign, text = value.partition('=')
    if not label or not sign:
      raise errors.ConfigError(
        'A label has no value',
        got=value,
        expected='LABEL=VALUE',
        where=option_string,
      )
    labels = getattr(namespace, self.dest)
    setattr(namespace, self.dest, labels | {label: text})


def submit(job: KubernetesJob, environment: dict[str, str]) -> str:
  """Gives the manifests to the cluster; returns its answer.

  Raises:
    ConfigError: there is no kubectl here, or the cluster refused them.
  """
  if not shutil.which('kubectl', path=environment.get('PATH')):
    raise errors.ConfigError(
      'There is no kubectl here',
      fix='install it, or print the manifests by --dry_run',
    )
  result = subprocess.run(
    ['kubectl', 'apply', '-f', '-'],
    input=job.rendered(),
    text=True,
    env=environment,
    capture_output=True,
    check=False,
  )
  if result.returncode:
    raise errors.ConfigError(
      'Kubernetes refused the job', got=result.stderr.strip()
    )
  return result.stdout.strip()
