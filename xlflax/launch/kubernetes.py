"""Jobs under Kubernetes: manifests for `kubectl apply`.

Each node has one pod with one process, which uses all accelerators of the pod.
The manifests are the templates `kubernetes/*.yaml.j2` of `launch/templates`,
whose variables `KubernetesJob.context` returns.
"""

import dataclasses
import enum
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
_EXAMPLE = r"""# Four nodes of eight GPUs. Runs are stored on the claim `runs`.
xlflax launch kubernetes --name=mlm --image=registry/xlflax:gpu --nnodes=4 \
    --volume=claim:runs:/shared -- train --gin_file=... \
    --model_dir=/shared/runs/mlm
"""


class Manifest(enum.Enum):
  """Type of the Kubernetes object that describes a job."""

  JOB = 'job'
  JOBSET = 'jobset'


class GpuNetwork(enum.Enum):
  """Network between GPUs that requires additional settings in the pods."""

  GKE_TCPXO = 'gke_tcpxo'
  EKS_EFA = 'eks_efa'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volume:
  """A volume that is mounted into the pods.

  Attributes:
    source: Type of the volume.
    name: Name of the claim, secret or ConfigMap, or a directory of the node.
    path: Directory at which the volume is mounted.
    read_only: Whether the pods cannot write to the volume.
  """

  source: Literal['claim', 'host', 'secret', 'config']
  name: str
  path: str
  read_only: bool = False

  @classmethod
  def parse(cls, text: str) -> Self:
    """Parses `SOURCE:NAME:DIR` or `SOURCE:NAME:DIR:ro`.

    Raises:
      ConfigError: If the text has another form.
    """
    read_only = text.endswith(':ro')
    source, *name_and_path = text.removesuffix(':ro').split(':')
    if (
      source not in ('claim', 'host', 'secret', 'config')
      or len(name_and_path) != 2
      or not name_and_path[1].startswith('/')
    ):
      raise errors.ConfigError(
        'Invalid value for --volume',
        got=text,
        expected='SOURCE:NAME:/DIR or SOURCE:NAME:/DIR:ro with a source of '
        'claim, host, secret or config',
        where='--volume',
      )
    name, path = name_and_path
    return cls(source=source, name=name, path=path, read_only=read_only)  # type: ignore[arg-type]

  @property
  def kubernetes_name(self) -> str:
    """Name of the volume, derived from its directory: '/a/b' becomes 'a-b'."""
    name = re.sub('[^a-z0-9]+', '-', self.path.lower()).strip('-')
    return name[:63].strip('-')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toleration:
  """A taint of nodes that the pods tolerate.

  Attributes:
    key: Key of the taint.
    value: Value of the taint. If None, every value is tolerated.
    effect: Effect of the taint. If None, every effect is tolerated.
  """

  key: str
  value: str | None = None
  effect: str | None = None

  @classmethod
  def parse(cls, text: str) -> Self:
    """Parses `KEY[=VALUE][:EFFECT]`.

    Raises:
      ConfigError: If the text has another form.
    """
    taint, _, effect = text.partition(':')
    key, sign, value = taint.partition('=')
    if not key or (effect and effect not in _EFFECTS):
      raise errors.ConfigError(
        'Invalid value for --toleration',
        got=text,
        expected='KEY[=VALUE][:EFFECT] with an effect of '
        + ', '.join(_EFFECTS),
        where='--toleration',
      )
    return cls(key=key, value=value if sign else None, effect=effect or None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecretVariable:
  """An environment variable whose value is in a Kubernetes secret.

  Attributes:
    variable: Name of the variable.
    secret: Name of the secret.
    key: Key in the secret.
  """

  variable: str
  secret: str
  key: str

  @classmethod
  def parse(cls, text: str) -> Self:
    """Parses `VARIABLE=SECRET:KEY`.

    Raises:
      ConfigError: If the text has another form.
    """
    variable, _, reference = text.partition('=')
    secret, _, key = reference.partition(':')
    if not (variable and secret and key):
      raise errors.ConfigError(
        'Invalid value for --secret_env',
        got=text,
        expected='VARIABLE=SECRET:KEY',
        where='--secret_env',
      )
    return cls(variable=variable, secret=secret, key=key)


@launcher_registry.register(
  'kubernetes', help='an indexed Job or a JobSet', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesJob(job_base.Job):
  """A job under Kubernetes.

  Attributes:
    command: Command that each process runs.
    name: Name of the job and of all objects that belong to it.
    image: Container image. Its entry point is not used.
    nnodes: Number of pods, with one process each; of each slice, if there are
      several.
    num_slices: Number of TPU slices that a JobSet connects over the network.
    manifest: A JobSet, which needs its controller, or an indexed Job.
    gpus_per_pod: Number of GPUs, or TPU chips, of each pod. 0 for CPU jobs.
    gpu_resource: Resource name of the accelerators, such as nvidia.com/gpu or
      google.com/tpu.
    cpu: CPU request and limit of each pod, such as 32.
    memory: Memory request and limit of each pod, such as 256Gi.
    resource: Further resource NAME=AMOUNT of each pod, such as
      vpc.amazonaws.com/efa=32.
    shared_memory: Size of /dev/shm, which NCCL needs.
    env: Environment variable NAME=VALUE of the container.
    secret_env: Environment variable VARIABLE=SECRET:KEY whose value is a key of
      a secret, such as WANDB_API_KEY=wandb:key.
    annotation: Annotation NAME=VALUE of the pods.
    label: Label NAME=VALUE of all objects and pods.
    node_selector: Label NAME=VALUE that a node must have.
    toleration: Taint KEY[=VALUE][:EFFECT] that a node may have. The taint of
      the accelerators is always tolerated.
    topology_key: Node label, such as cloud.google.com/gke-nodepool. All pods
      (of each slice) run on nodes with the same value.
    volume: Volume SOURCE:NAME:DIR[:ro] to mount at DIR, such as
      claim:runs:/shared, host:/data:/data:ro, secret:NAME:DIR or
      config:NAME:DIR.
    gpu_network: Network between the GPUs that needs extra settings:
      GPUDirect-TCPXO on GKE, or EFA on EKS.
    gke_network: Names of the eight networks of GPUDirect-TCPXO.
    nccl_socket_ifname: Network interface of NCCL's control connections, such as
      eth0 (NCCL_SOCKET_IFNAME).
    host_network: Whether the pods use the network of their nodes.
    pull_secret: Secret with the credentials of the image registry.
    service_account: Service account of the pods, for access to buckets.
    fs_group: Group that owns the mounted volumes. The image's user is not root.
    namespace: Namespace of all objects. If None, that of kubectl.
    queue: Kueue LocalQueue that admits the job.
    priority_class: Priority class of the pods.
    ttl_seconds: Seconds after which a finished job is deleted. If None, it is
      kept.
    max_restarts: Maximum number of restarts. Preempted pods and drained nodes
      do not count, and user errors are not retried.
    termination_grace_period: Seconds that an evicted pod has for its last
      checkpoint.
    template: Jinja2 template that replaces that of the manifest.
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
        '--num_slices requires TPUs and a JobSet',
        got=f'--num_slices={self.num_slices} '
        f'--manifest={self.manifest.value} --gpu_resource={self.gpu_resource}',
        expected='--manifest=jobset --gpu_resource=google.com/tpu',
        where='--num_slices',
      )
    if len(self.gke_network) != 8:
      raise errors.ConfigError(
        'GPUDirect-TCPXO requires eight networks',
        got=', '.join(self.gke_network),
        expected='eight names',
        where='--gke_network',
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
          'Two volumes are mounted at the same directory',
          got=directory,
          where='--volume',
        )

  def _check_name(self):
    """Raises ConfigError if the name is not valid or too long."""
    # Pods are named NAME-workers-I-N-xxxxx, with at most 63 characters.
    max_length = 43 - len(str(self.num_slices - 1))
    is_valid = re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', self.name)
    if not is_valid or len(self.name) > max_length:
      raise errors.ConfigError(
        'Invalid name of a Kubernetes job',
        got=self.name,
        expected=f'at most {max_length} lower-case letters, digits and '
        'hyphens, starting with a letter',
        where='--name',
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
            f'The launcher sets the environment variable {name} itself',
            got=name,
            where=option,
            fix=f'Remove {name} from {option}.',
          )

  def _volumes(self) -> list[Volume]:
    """Returns the volumes that are mounted into the pods."""
    return [Volume.parse(text) for text in self.volume]

  @property
  def platform(self) -> str | None:
    """Platform of the job, 'gpu' or 'tpu', or None for a job on CPUs."""
    if not self.gpus_per_pod:
      return None
    return 'tpu' if self.gpu_resource.startswith('google.com/tpu') else 'gpu'

  def check(self) -> None:
    """Checks the gin files, and that all pods share the model directory."""
    job_base.check_gin_files(self.command, has_own_files=True)
    if self.template is None:
      preflight.check_shared_model_dir(
        self.command,
        [v.path for v in self._volumes() if v.source in ('claim', 'host')],
        fix='Mount a shared volume with --volume=claim:NAME:/DIR and pass '
        '--model_dir=/DIR/..., or pass a bucket.',
      )

  def context(self) -> dict[str, Any]:
    """Returns the variables of the templates.

    - job: This object.
    - command: Command of the container, with the flags that the launcher adds.
    - coordinator: 'HOST:PORT' of process 0.
    - port: Port of the coordinator.
    - env, annotations, labels, node_selector, resources: Dicts of strings.
    - secret_env, tolerations, volumes: Lists of the classes of this module.
    - gpu_network: Name of the network between the GPUs, or None.
    - topology_key: Node label of which all pods share the value, or None.
    - is_plain_job: Whether the manifest is an indexed Job.
    - user_error_status, preempted_status: Exit statuses.
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
    """Returns the manifests as YAML."""
    return templates.render_yaml(
      f'kubernetes/{self.manifest.value}.yaml.j2', self.context(), self.template
    )

  def launch(self) -> int:
    """Applies the manifests and prints the response of the cluster."""
    print(apply_manifests(self, dict(os.environ)))
    return 0


def apply_manifests(job: KubernetesJob, environment: dict[str, str]) -> str:
  """Applies the manifests of a job and returns the output of kubectl.

  Args:
    job: The job.
    environment: Environment variables of kubectl.

  Raises:
    ConfigError: If kubectl is missing or the cluster rejects the manifests.
  """
  if not shutil.which('kubectl', path=environment.get('PATH')):
    raise errors.ConfigError(
      '`kubectl` was not found',
      fix='Install it, or print the manifests with --dry_run.',
    )
  result = subprocess.run(
    ['kubectl', 'apply', '-f', '-'],
    input=job.render(),
    text=True,
    env=environment,
    capture_output=True,
    check=False,
  )
  if result.returncode:
    raise errors.ConfigError(
      'Kubernetes rejected the job', got=result.stderr.strip()
    )
  return result.stdout.strip()
