"""Jobs for SkyPilot: the YAML of a managed job, for `sky jobs launch`."""

import argparse
import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from xlflax.foundation import errors, numeric_flags, ranges
from xlflax.launch import job as job_lib
from xlflax.launch import registry, values, yaml_text

_PORT = 55527
# A lost peer ends JAX's processes by SIGABRT.
_ABORTED = 134
_EXAMPLE = r"""# two nodes of eight GPUs wherever SkyPilot finds them, runs in a bucket
xlflax launch skypilot --name=mlm --accelerators=H100:8 --nodes=2 --spot \
    --image=registry/xlflax:gpu -- train --gin_file=... \
    --model_dir=gs://bucket/runs/mlm > mlm.yaml && sky jobs launch mlm.yaml
"""
_RUN = """\
export XLFLAX_COORDINATOR="$(head -n 1 <<< "$SKYPILOT_NODE_IPS"):{port}"
export XLFLAX_NUM_PROCESSES="$SKYPILOT_NUM_NODES"
export XLFLAX_PROCESS_ID="$SKYPILOT_NODE_RANK"
exec {command}
"""


@registry.register('skypilot', help='YAML for SkyPilot', example=_EXAMPLE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SkyPilotJob(job_lib.Job):
  """A managed job of SkyPilot; nothing is submitted from here.

  Attributes:
    command: what each node runs.
    name: of the job.
    nodes: how many machines, with one process each.
    accelerators: of each, such as 'H100:8'; None for a job on CPUs.
    infra: where, such as 'gcp/us-central1'; None leaves it to SkyPilot.
    spot: cheaper machines that may be taken away.
    image: of a container that has xlflax; None: see `setup`.
    setup: shell command that each new machine runs first.
    program: what `xlflax` is on the machines; shell code, as `setup` is.
    env: variables.
    mounts: directories of the machines -> buckets or directories here.
  """

  command: tuple[str, ...]
  name: str
  nodes: ranges.Count = 1
  accelerators: str | None = None
  infra: str | None = None
  spot: bool = False
  image: str | None = None
  setup: str | None = values.lines(default=None)
  program: str = 'xlflax'
  env: Mapping[str, str] = values.lines(default_factory=dict)
  mounts: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @classmethod
  def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    _add_machine_flags(parser)
    _add_run_flags(parser)

  def __post_init__(self):
    values.check(self)
    values.check_image(self.image)
    values.check_variables(self.env, r'[A-Za-z_]\w*')
    if (self.accelerators or '').lower().startswith('tpu'):
      raise errors.ConfigError(
        'TPUs are not started through SkyPilot',
        got=f'--accelerators={self.accelerators}',
        expected='GPUs, such as H100:8',
        fix='use `xlflax launch tpu`, or Kubernetes',
      )

  def rendered(self) -> str:
    """Returns the YAML."""
    return yaml_text.dumped(self._task())

  def _task(self) -> dict[str, Any]:
    values = {
      'name': self.name,
      'num_nodes': self.nodes,
      'resources': self._resources(),
      'envs': {'PYTHONUNBUFFERED': '1', **self.env},
      'file_mounts': dict(self.mounts) or None,
      'setup': self.setup,
      'run': self._run(),
    }
    return {k: v for k, v in values.items() if v is not None}

  def _resources(self) -> dict[str, Any]:
    values = {
      'infra': self.infra,
      'accelerators': self.accelerators,
      'use_spot': self.spot or None,
      'image_id': f'docker:{self.image}' if self.image else None,
      # A mistake (2) or a bug (1) ends the job; a lost machine never does.
      'job_recovery': {
        'max_restarts_on_errors': 0,
        'recover_on_exit_codes': [
          int(errors.ExitStatus.FAILURE),
          int(errors.ExitStatus.STOPPED),
          _ABORTED,
        ],
      },
    }
    return {k: v for k, v in values.items() if v is not None}

  def _run(self) -> str:
    words = [
      *self.command,
      f'--stopped_status={errors.ExitStatus.STOPPED}',
      *job_lib.platform_flag(
        self.command, 'gpu' if self.accelerators else 'cpu'
      ),
    ]
    command = f'{self.program} {shlex.join(words)}'
    return _RUN.format(port=_PORT, command=command)

  def start(self) -> int:
    """Prints the YAML: `sky jobs launch` takes it."""
    print(self.rendered(), end='')
    return 0


def _add_machine_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of the machines."""
  parser.add_argument('--name', required=True)
  parser.add_argument(
    '--nodes',
    type=numeric_flags.of(ranges.Count),
    default=1,
    help='with one process each',
  )
  parser.add_argument(
    '--accelerators', help='of each node, such as H100:8 (default: none)'
  )
  parser.add_argument(
    '--infra', help='where, such as gcp/us-central1 (default: anywhere)'
  )
  parser.add_argument(
    '--spot', action='store_true', help='machines that may be taken away'
  )


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what runs on them."""
  parser.add_argument('--image', help='container that has xlflax')
  parser.add_argument(
    '--setup',
    metavar='COMMAND',
    help='run on each new machine first, where there is no image',
  )
  parser.add_argument(
    '--program',
    default='xlflax',
    metavar='COMMAND',
    help='what xlflax is on the machines (default: %(default)s)',
  )
  parser.add_argument(
    '--env',
    action=job_lib.AddPair,
    default={},
    metavar='NAME=VALUE',
    help='a variable; may be repeated',
  )
  parser.add_argument(
    '--mount',
    dest='mounts',
    action=job_lib.AddPair,
    default={},
    metavar='DIR=SOURCE',
    help='a bucket, or a directory here, as a directory there; may be repeated',
  )
