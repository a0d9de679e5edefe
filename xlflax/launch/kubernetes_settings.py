"""What a job under Kubernetes is made of: settings, and how flags say them."""

import dataclasses
import enum
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Self

from xlflax.foundation import errors, ranges
from xlflax.launch import base

# Variables by which the processes of a job find each other.
_OWN_VARIABLES = """XLFLAX_COORDINATOR XLFLAX_NUM_PROCESSES XLFLAX_PROCESS_ID
  XLFLAX_NUM_SLICES XLFLAX_SLICE_ID""".split()


class Kind(enum.Enum):
  """What the manifest is of."""

  JOB = 'job'  # plain Kubernetes
  JOBSET = 'jobset'  # needs the JobSet controller


class Source(enum.Enum):
  """What is mounted into the pods."""

  CLAIM = 'claim'  # a PersistentVolumeClaim
  HOST = 'host'  # a directory of the node
  SECRET = 'secret'
  CONFIG = 'config'  # a ConfigMap


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volume:
  """Something that is mounted into the pods.

  Attributes:
    source: of which kind it is.
    name: of the claim, secret or ConfigMap; of a host: the directory.
    path: where it is mounted.
    read_only: whether nothing may be written there.
  """

  source: Source
  name: str
  path: str
  read_only: bool = False

  @classmethod
  def parse(cls, text: str) -> Self:
    """Reads `claim:runs:/shared` or `host:/dev/x:/dev/x:ro`.

    Raises:
      ConfigError: the text has another form.
    """
    read_only = text.endswith(':ro')
    kind, *rest = text.removesuffix(':ro').split(':')
    known = kind in [s.value for s in Source]
    if not known or len(rest) != 2 or not rest[1].startswith('/'):
      raise errors.ConfigError(
        'A volume is not understood',
        got=text,
        expected='KIND:NAME:DIR or KIND:NAME:DIR:ro, KIND one of '
        + ', '.join(s.value for s in Source)
        + ', DIR beginning with /',
        where='--volume',
      )
    source = Source(kind)
    return cls(source=source, name=rest[0], path=rest[1], read_only=read_only)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toleration:
  """A taint of nodes that the pods tolerate.

  Attributes:
    key: of the taint.
    value: None tolerates every value.
    effect: None tolerates every effect.
  """

  key: str
  value: str | None = None
  effect: str | None = None

  _EFFECTS = ('NoSchedule', 'PreferNoSchedule', 'NoExecute')

  @classmethod
  def parse(cls, text: str) -> Self:
    """Reads `KEY`, `KEY=VALUE` or either with `:EFFECT`.

    Raises:
      ConfigError: the text has another form.
    """
    taint, _, effect = text.partition(':')
    key, sign, value = taint.partition('=')
    if not key or (effect and effect not in cls._EFFECTS):
      raise errors.ConfigError(
        'A toleration is not understood',
        got=text,
        expected='KEY, KEY=VALUE, and :EFFECT after them, one of '
        + ', '.join(cls._EFFECTS),
        where='--toleration',
      )
    return cls(key=key, value=value if sign else None, effect=effect or None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesSettings:
  """A job for a Kubernetes cluster.

  Attributes:
    command: what each process runs.
    name: of the job and what belongs to it.
    image: of the container; its entry point is not used.
    nodes: how many pods, each on a node of its own accelerators; of each
      slice, where there are several.
    slices: how many slices of TPUs a JobSet joins over the network.
    kind: indexed Job or JobSet.
    accelerators: per pod; 0 for a job on CPUs.
    accelerator: the resource's name.
    cpu: of each pod, such as '32'; requested, and its limit.
    memory: of each pod, such as '256Gi'; likewise.
    resources: further resources of each pod by name; likewise.
    shared_memory: size of /dev/shm.
    env: variables of the container.
    annotations: of the pods.
    labels: of all objects and pods.
    node_selector: labels that a node must have.
    tolerations: taints that nodes may have, beside that of the accelerator.
    volumes: what is mounted; none where runs and data are in buckets.
    pull_secrets: by which the image is fetched.
    patches: YAML files that are merged into the pods' template, in order
      (`launch.pod_patches`).
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
  nodes: ranges.Count = 1
  slices: ranges.Processes = 1
  kind: Kind = Kind.JOBSET
  accelerators: ranges.Natural = 8
  accelerator: str = 'nvidia.com/gpu'
  cpu: str | None = None
  memory: str | None = None
  resources: Mapping[str, str] = dataclasses.field(default_factory=dict)
  shared_memory: str = '16Gi'
  env: Mapping[str, str] = base.multiline(default_factory=dict)
  annotations: Mapping[str, str] = base.multiline(default_factory=dict)
  labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
  node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
  tolerations: Sequence[Toleration] = ()
  volumes: Sequence[Volume] = ()
  pull_secrets: Sequence[str] = ()
  patches: Sequence[pathlib.Path] = ()
  service_account: str | None = None
  namespace: str | None = None
  queue: str | None = None
  priority_class: str | None = None
  restarts: ranges.Natural = 20
  grace_seconds: ranges.Natural = 180

  def __post_init__(self):
    base.check_text(self)
    base.check_image(self.image)
    for name in self.env:
      if not re.fullmatch(r'[A-Za-z_.-][\w.-]*', name, re.ASCII):
        raise errors.ConfigError(
          'This is no name of a variable',
          got=name,
          expected='letters, digits and _, no digit first',
          where='--env',
        )
    if self.slices > 1 and (self.kind, self.platform) != (Kind.JOBSET, 'tpu'):
      raise errors.ConfigError(
        'Several slices are TPUs of a JobSet',
        got=f'--slices={self.slices}, --manifest={self.kind.value}, '
        f'--accelerator={self.accelerator}',
        expected='--manifest=jobset --accelerator=google.com/tpu',
        where='--slices',
      )
    # Pods are called NAME-workers-I-N-xxxxx, which may have 63 characters.
    most = 43 - len(str(self.slices - 1))
    legal = re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', self.name)
    if not legal or len(self.name) > most:
      raise errors.ConfigError(
        'The name is not usable in Kubernetes',
        got=self.name,
        expected=f'at most {most} lower-case letters, digits and hyphens, a '
        'letter first',
        where='--name',
      )
    self._check_names()

  def _check_names(self):
    for name in _OWN_VARIABLES:
      if name in self.env:
        raise errors.ConfigError(
          'The launcher sets this variable',
          got=name,
          where='--env',
          fix='leave it out',
        )
    paths = ['/dev/shm', *(volume.path for volume in self.volumes)]
    twice = {path for path in paths if paths.count(path) > 1}
    if twice:
      raise errors.ConfigError(
        'Two volumes have one place',
        got=', '.join(sorted(twice)),
        where='--volume',
      )

  @property
  def platform(self) -> str | None:
    """'gpu' or 'tpu'; None for a job on CPUs."""
    if not self.accelerators:
      return None
    return 'tpu' if self.accelerator.startswith('google.com/tpu') else 'gpu'

  @property
  def own_flags(self) -> list[str]:
    """What the launcher adds to the command."""
    if self.command[0] not in base.DISTRIBUTED_COMMANDS:
      return []
    flags = [f'--stopped_status={errors.ExitStatus.STOPPED}']
    flags += base.platform_flags(self.command, self.platform)
    if base.flag_value(self.command, '--join_timeout') is None:
      # Nodes of a large job come minutes apart.
      flags.append('--join_timeout=3600')
    return flags
