"""Kubernetes jobs, rendered as manifests for `kubectl apply`.

Each node runs one pod with one process, which uses all of the pod's
accelerators. The manifests are rendered from the templates
`kubernetes/*.yaml.j2` in `launch/templates`. `KubernetesJob.context` returns
the templates' variables.
"""

import dataclasses
import enum
import logging
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any, Literal, Self

from xlflax.launch import job_base, launcher_registry, preflight, templates
from xlflax.utils import errors, validation

_PORT = 55527
# Nodes of a large job start minutes apart.
_JOIN_TIMEOUT = 3600
_RESERVED_VARIABLES = (
  'XLFLAX_COORDINATOR',
  'XLFLAX_NUM_PROCESSES',
  'XLFLAX_PROCESS_ID',
  'XLFLAX_NUM_SLICES',
  'XLFLAX_SLICE_ID',
)
_EFFECTS = ('NoSchedule', 'PreferNoSchedule', 'NoExecute')
_SHARED_MEMORY = '/dev/shm'
_NETWORK_RESOURCES = {
  'eks_efa': {'vpc.amazonaws.com/efa': '32', 'hugepages-2Mi': '5120Mi'},
  'gke_tcpxo': {},
}
_MIN_BYTES = 2**20  # A smaller amount of memory probably lacks a unit.
_EXAMPLE = r"""# Four nodes of eight GPUs. Runs are stored on the claim `runs`.
xlflax launch kubernetes --name=mlm --image=registry/xlflax:gpu --nnodes=4 \
    --volume=claim:runs:/shared --fs_group=1000 -- train --gin_file=... \
    --model_dir=/shared/runs/mlm
"""


class Manifest(enum.Enum):
  """Type of Kubernetes object that describes a job."""

  JOB = 'job'
  JOBSET = 'jobset'


class GpuNetwork(enum.Enum):
  """GPU network that requires additional pod settings."""

  GKE_TCPXO = 'gke_tcpxo'
  EKS_EFA = 'eks_efa'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volume:
  """A volume that is mounted into the pods.

  Attributes:
    source: Type of the volume: a PersistentVolumeClaim, a host directory, a
      secret or a ConfigMap.
    name: Name of the PersistentVolumeClaim, secret or ConfigMap, or path of a
      directory on the node.
    path: Directory in the container at which the volume is mounted.
    read_only: Whether to mount the volume read-only.
  """

  source: Literal['claim', 'host', 'secret', 'config']
  name: str
  path: str
  read_only: bool = False

  @classmethod
  def parse(cls, text: str) -> Self:
    """Parses a volume in the format `SOURCE:NAME:DIR` or `SOURCE:NAME:DIR:ro`.

    Raises:
      ConfigError: If the text does not have this format.
    """
    read_only = text.endswith(':ro')
    source, *name_and_path = text.removesuffix(':ro').split(':')
    if (
      source not in ('claim', 'host', 'secret', 'config')
      or len(name_and_path) != 2
      or not name_and_path[1].startswith('/')
    ):
      raise errors.ConfigError(
        'Each value of --volume must have the form SOURCE:NAME:/DIR or '
        'SOURCE:NAME:/DIR:ro, where SOURCE is claim, host, secret or config',
        got=text,
      )
    name, path = name_and_path
    return cls(source=source, name=name, path=path, read_only=read_only)  # type: ignore[arg-type]

  @property
  def kubernetes_name(self) -> str:
    """Name of the volume, derived from its directory: '/a/b' becomes 'a-b'."""
    name = re.sub('[^a-z0-9]+', '-', self.path.lower()).strip('-')
    return name[:63].strip('-')

  @property
  def is_writable(self) -> bool:
    """True if the pods can write to the volume and share its files."""
    return self.source in ('claim', 'host') and not self.read_only


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toleration:
  """A node taint that the pods tolerate.

  Attributes:
    key: Key of the node taint.
    value: Value of the taint. If None, every value is tolerated.
    effect: Effect of the taint. If None, every effect is tolerated.
  """

  key: str
  value: str | None = None
  effect: str | None = None

  @classmethod
  def parse(cls, text: str) -> Self:
    """Parses a toleration in the format `KEY[=VALUE][:EFFECT]`.

    Raises:
      ConfigError: If the text does not have this format.
    """
    taint, _, effect = text.partition(':')
    key, sign, value = taint.partition('=')
    if not key or (effect and effect not in _EFFECTS):
      raise errors.ConfigError(
        'Each value of --toleration must have the form KEY[=VALUE][:EFFECT], '
        f'where EFFECT is one of {", ".join(_EFFECTS)}',
        got=text,
      )
    return cls(key=key, value=value if sign else None, effect=effect or None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecretVariable:
  """An environment variable whose value is read from a Kubernetes secret.

  Attributes:
    variable: Name of the environment variable.
    secret: Name of the Kubernetes secret.
    key: Key of the value within the secret.
  """

  variable: str
  secret: str
  key: str

  @classmethod
  def parse(cls, text: str) -> Self:
    """Parses a secret variable in the format `VARIABLE=SECRET:KEY`.

    Raises:
      ConfigError: If the text does not have this format.
    """
    variable, _, reference = text.partition('=')
    secret, _, key = reference.partition(':')
    if not (variable and secret and key):
      raise errors.ConfigError(
        'Each value of --secret_env must have the form VARIABLE=SECRET:KEY',
        got=text,
      )
    return cls(variable=variable, secret=secret, key=key)


@launcher_registry.register(
  'kubernetes', help='an indexed Job or a JobSet', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesJob(job_base.Job):
  """A job that runs on Kubernetes.

  Attributes:
    command: Command that each process runs.
    name: Name of the job and of all its Kubernetes objects.
    image: Container image. The image's entry point is not used.
    nnodes: Number of pods, each of which runs one process. With several TPU
      slices, this is the number of pods per slice.
    num_slices: Number of TPU slices that a JobSet connects over the network.
    manifest: Type of manifest: a JobSet, which requires the JobSet controller,
      or an indexed Job.
    gpus_per_pod: Number of GPUs or TPU chips per pod. Use 0 for CPU jobs.
    gpu_resource: Resource name of the accelerators, such as nvidia.com/gpu or
      google.com/tpu.
    cpu: CPU request and limit per pod, such as 32.
    memory: Memory request and limit per pod, such as 256Gi.
    resource: Additional resource per pod, as NAME=AMOUNT, such as
      vpc.amazonaws.com/efa=32.
    shared_memory: Size of the shared memory (/dev/shm) of each pod, such as
      16Gi. NCCL exchanges data through it.
    env: Environment variable for the container, as NAME=VALUE.
    secret_env: Environment variable whose value is read from a Kubernetes
      secret, as VARIABLE=SECRET:KEY, such as WANDB_API_KEY=wandb:key.
    annotation: Annotation for the pods, as NAME=VALUE.
    label: Label for all objects and pods, as NAME=VALUE.
    node_selector: Label that a node must have, as NAME=VALUE.
    toleration: Taint that a node may have, in the form KEY, KEY=VALUE,
      KEY:EFFECT or KEY=VALUE:EFFECT. The accelerators' taint is always
      tolerated.
    topology_key: Key of a node label, such as cloud.google.com/gke-nodepool.
      All pods of a slice, or of a job without slices, run on nodes with the
      same value of this label.
    volume: Volume to mount at DIR, as SOURCE:NAME:DIR[:ro], such as
      claim:runs:/shared, host:/data:/data:ro, secret:NAME:DIR or
      config:NAME:DIR.
    gpu_network: Type of network between the GPUs, if it requires additional
      settings. This can be GPUDirect-TCPXO on GKE, or EFA on EKS.
    gke_network: Names of the eight GKE networks that GPUDirect-TCPXO requires.
    nccl_socket_ifname: Network interface for NCCL's control connections, such
      as eth0 (NCCL_SOCKET_IFNAME).
    host_network: Whether the pods use the network of their nodes instead of the
      pod network.
    pull_secret: Kubernetes secret with the credentials of the image registry.
    service_account: Service account with which the pods access buckets.
    fs_group: Id of the group that owns the mounted volumes (fsGroup), so that a
      container whose user is not root can write to them.
    namespace: Namespace of all objects. If None, kubectl's current namespace is
      used.
    queue: Kueue LocalQueue that admits the job.
    priority_class: Name of the pods' priority class.
    ttl_seconds: Seconds after which a finished job is deleted. If None, the job
      is kept.
    max_restarts: Maximum number of restarts after a failure. Restarts after
      preemption or a drained node are not counted, and user errors are not
      retried.
    termination_grace_period: Time in seconds for an evicted pod to save its
      last checkpoint.
    template: Jinja2 template that replaces the manifest's default template.
  """

  commands = (*job_base.DISTRIBUTED_COMMANDS, *job_base.SHARDED_COMMANDS)
  command: tuple[str, ...]
  name: str
  image: str
  nnodes: validation.PositiveInt = 1
  num_slices: validation.NumProcesses = 1
  manifest: Manifest = Manifest.JOBSET
  gpus_per_pod: validation.NonNegativeInt = 8
  gpu_resource: str = 'nvidia.com/gpu'
  cpu: str | None = None
  memory: str | None = None
  resource: tuple[str, ...] = ()
  shared_memory: str = '16Gi'
  env: tuple[str, ...] = job_base.multiline(default=())
  secret_env: tuple[str, ...] = ()
  annotation: tuple[str, ...] = job_base.multiline(default=())
  label: tuple[str, ...] = ()
  node_selector: tuple[str, ...] = ()
  toleration: tuple[str, ...] = ()
  topology_key: str | None = None
  volume: tuple[str, ...] = ()
  gpu_network: GpuNetwork | None = None
  gke_network: tuple[str, ...] = tuple(f'vpc{i}' for i in range(1, 9))
  nccl_socket_ifname: str | None = None
  host_network: bool = False
  pull_secret: tuple[str, ...] = ()
  service_account: str | None = None
  fs_group: validation.NonNegativeInt | None = None
  namespace: str | None = None
  queue: str | None = None
  priority_class: str | None = None
  ttl_seconds: validation.NonNegativeInt | None = None
  max_restarts: validation.NonNegativeInt = 20
  termination_grace_period: validation.NonNegativeInt = 180
  template: pathlib.Path | None = None

  def __post_init__(self):
    job_base.check_text(self)
    job_base.check_image(self.image)
    self._check_name()
    self._check_variables()
    if self.num_slices > 1 and (
      self.manifest is not Manifest.JOBSET or self.platform != 'tpu'
    ):
      raise errors.ConfigError(
        f'--num_slices={self.num_slices} requires --manifest=jobset and '
        '--gpu_resource=google.com/tpu, but found '
        f'--manifest={self.manifest.value} and '
        f'--gpu_resource={self.gpu_resource}'
      )
    if len(self.gke_network) != 8:
      raise errors.ConfigError(
        'GPUDirect-TCPXO requires the names of eight networks in --gke_network',
        got=', '.join(self.gke_network),
      )
    # All options are parsed here, so that invalid values are reported when the
    # job is constructed.
    volumes = [*self._volumes()]
    for option in ('resource', 'annotation', 'label', 'node_selector'):
      job_base.parse_pairs(getattr(self, option), f'--{option}')
    for text in self.toleration:
      Toleration.parse(text)
    directories = [_SHARED_MEMORY, *(volume.path for volume in volumes)]
    for directory in directories:
      if directories.count(directory) > 1:
        raise errors.ConfigError(
          'A directory given with --volume is already used by another volume',
          got=directory,
        )

  def _check_name(self):
    """Raises ConfigError if the name is not valid or too long."""
    # Pods are named NAME-workers-I-N-xxxxx, with at most 63 characters.
    max_length = 43 - len(str(self.num_slices - 1))
    is_valid = re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', self.name)
    if not is_valid or len(self.name) > max_length:
      raise errors.ConfigError(
        'The --name of a Kubernetes job must consist of at most '
        f'{max_length} lowercase letters, digits and hyphens. It must start '
        'with a letter, and must not end with a hyphen',
        got=self.name,
      )

  def _check_variables(self):
    """Raises ConfigError if the names of the variables are not valid."""
    secrets = [SecretVariable.parse(text).variable for text in self.secret_env]
    env = job_base.parse_variables(self.env, '--env')
    job_base.parse_variables([f'{name}=' for name in secrets], '--secret_env')
    for option, names in (('--env', env), ('--secret_env', secrets)):
      for name in names:
        if name in _RESERVED_VARIABLES:
          raise errors.ConfigError(
            f'The environment variable {name} is set by the launcher, so it '
            f'cannot be set with {option}',
            got=name,
            where=option,
            fix=f'Remove {name} from {option}.',
          )

  def _volumes(self) -> list[Volume]:
    """Returns the volumes to mount into the pods."""
    return [Volume.parse(text) for text in self.volume]

  def _warn_of_missing_units(self):
    """Logs a warning for small numbers, which Kubernetes reads as bytes."""
    for option in ('memory', 'shared_memory'):
      value = getattr(self, option)
      if value and value.isdecimal() and 0 < int(value) < _MIN_BYTES:
        logging.warning(
          'Kubernetes reads --%s=%s as %s bytes. Did you mean --%s=%sGi?',
          option,
          value,
          value,
          option,
          value,
        )

  @property
  def platform(self) -> str | None:
    """Accelerator platform of the job, 'gpu' or 'tpu', or None for CPU jobs."""
    if not self.gpus_per_pod:
      return None
    return 'tpu' if self.gpu_resource.startswith('google.com/tpu') else 'gpu'

  def check(self) -> None:
    """Checks that gin files exist and that all pods can write to the output.

    Logs a warning for amounts of memory that probably lack a unit.
    """
    self._warn_of_missing_units()
    job_base.check_gin_files(self.command, has_own_files=True)
    job_base.check_model_dir(self.command)
    if self.template is not None:  # The template may mount further volumes.
      return
    volumes = self._volumes()
    preflight.check_shared_outputs(
      self.command,
      [v.path for v in volumes if v.is_writable],
      fix='Mount a shared volume with --volume=claim:NAME:/DIR, without :ro, '
      'and pass a directory below /DIR, or pass a bucket.',
      read_only_mounts=[v.path for v in volumes if not v.is_writable],
    )
    if self.nnodes * self.num_slices > 1:
      preflight.warn_of_host_outputs(
        self.command, {v.path: v.name for v in volumes if v.source == 'host'}
      )
    preflight.warn_of_unmounted_inputs(
      self.command, [v.path for v in volumes], place='The image'
    )

  def context(self) -> dict[str, Any]:
    """Returns the variables that are available in the templates.

    - job: This object.
    - command: The container's command, with the flags that the launcher adds.
    - coordinator: 'HOST:PORT' of process 0.
    - port: The coordinator's port.
    - env, annotations, labels, node_selector, resources: Dicts of strings.
    - secret_env, tolerations, volumes: Lists of `SecretVariable`, `Toleration`
      and `Volume`.
    - gpu_network: Name of the network between the GPUs, or None.
    - topology_key: Node label whose value is the same for all pods, or None.
    - is_plain_job: Whether the manifest is an indexed Job.
    - user_error_status, preempted_status, interrupted_status: Exit statuses of
      a process after a user error, after a preemption, and after a signal
      before its first step.
    """
    is_plain_job = self.manifest is Manifest.JOB
    first_pod = self.name + ('-0' if is_plain_job else '-workers-0-0')
    topology_key = self.topology_key
    if self.num_slices > 1 and topology_key is None:
      topology_key = 'cloud.google.com/gke-nodepool'  # One slice each.
    network = self.gpu_network.value if self.gpu_network else None
    resources = {
      'cpu': self.cpu,
      'memory': self.memory,
      self.gpu_resource: str(self.gpus_per_pod) if self.gpus_per_pod else None,
      **(_NETWORK_RESOURCES[network] if network else {}),
      **job_base.parse_pairs(self.resource, '--resource'),
    }
    return {
      'job': self,
      'command': [*self.command, *self._added_flags()],
      'coordinator': f'{first_pod}.{self.name}:{_PORT}',
      'port': _PORT,
      'env': job_base.parse_variables(self.env, '--env'),
      'secret_env': [SecretVariable.parse(text) for text in self.secret_env],
      'annotations': job_base.parse_pairs(self.annotation, '--annotation'),
      'labels': job_base.parse_pairs(self.label, '--label'),
      'node_selector': job_base.parse_pairs(
        self.node_selector, '--node_selector'
      ),
      'tolerations': [Toleration.parse(text) for text in self.toleration],
      'volumes': self._volumes(),
      'resources': {k: v for k, v in resources.items() if v is not None},
      'gpu_network': network,
      'topology_key': topology_key,
      'is_plain_job': is_plain_job,
      'user_error_status': int(errors.ExitStatus.MISTAKE),
      'preempted_status': int(errors.ExitStatus.STOPPED),
      'interrupted_status': int(errors.ExitStatus.INTERRUPTED),
    }

  def _added_flags(self) -> list[str]:
    """Returns the flags that the launcher adds to the command."""
    if self.command[0] not in job_base.DISTRIBUTED_COMMANDS:
      return []
    flags = [job_base.PREEMPTION_FLAG]
    flags += job_base.platform_flags(self.command, self.platform)
    if job_base.flag_value(self.command, job_base.JOIN_TIMEOUT_FLAG) is None:
      flags.append(f'{job_base.JOIN_TIMEOUT_FLAG}={_JOIN_TIMEOUT}')
    return flags

  def render(self) -> str:
    """Returns the Kubernetes manifests as YAML."""
    return templates.render_yaml(
      f'kubernetes/{self.manifest.value}.yaml.j2', self.context(), self.template
    )

  def launch(self) -> int:
    """Applies the manifests and prints the cluster's response."""
    print(apply_manifests(self, dict(os.environ)))
    return 0


def apply_manifests(job: KubernetesJob, environment: dict[str, str]) -> str:
  """Applies a job's manifests and returns kubectl's output.

  Args:
    job: The job to submit.
    environment: Environment variables for kubectl.

  Raises:
    ConfigError: If kubectl is missing, if the cluster rejects the manifests, or
      if a job with this name exists already.
  """
  if not shutil.which('kubectl', path=environment.get('PATH')):
    raise errors.ConfigError(
      '`kubectl` was not found',
      fix='Install kubectl, or print the manifests with --dry_run.',
    )
  result = subprocess.run(
    ['kubectl', 'apply', '-f', '-'],
    input=job.render(),
    text=True,
    env=environment,
    capture_output=True,
    check=False,
  )
  # kubectl does not start an existing job again, even if it has finished, and
  # cannot change its command.
  is_existing_job = re.search(
    rf'^job(set)?\.\S+/{job.name} (unchanged|configured)$',
    result.stdout,
    re.MULTILINE,
  )
  if is_existing_job or 'field is immutable' in result.stderr:
    namespace = f' --namespace={job.namespace}' if job.namespace else ''
    raise errors.ConfigError(
      'A job with this name already exists, so no job was started',
      got=job.name,
      where='--name',
      fix='To start the job again, delete the existing one with `kubectl '
      f'delete {job.manifest.value} {job.name}{namespace}`. To keep it, pass '
      'another --name.',
    )
  if result.returncode:
    raise errors.ConfigError(
      "Kubernetes rejected the job's manifests", got=result.stderr.strip()
    )
  return result.stdout.strip()
