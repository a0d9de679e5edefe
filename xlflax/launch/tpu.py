"""Jobs on Cloud TPU: a queued resource, and a command on all of its workers.

JAX detects the workers of one or several slices by itself. The job is a shell
script, the template `tpu/create_and_run.sh.j2` of `launch/templates`.
"""

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from typing import Any

from xlflax.launch import job_base, launcher_registry, preflight, templates
from xlflax.utils import errors, validation

# Nodes are named NAME-1023, with at most 63 characters.
_NAME = re.compile('[a-z]([-a-z0-9]{0,56}[a-z0-9])?')
# URL schemes that pip supports. Workers copy packages from gs:// before that.
_PACKAGE_SCHEMES = ('https://', 'http://', 'git+https://', 'git+ssh://')
_PACKAGE_FILES = ('.whl', '.tar.gz', '.zip')
_DOCKER = 'sudo docker run --rm --privileged --network=host --ipc=host'
_WATCHDOG_SECONDS = 60
_EXAMPLE = r"""# A spot TPU slice of several workers. A preempted slice is created again.
xlflax launch tpu --name=mlm --zone=us-east5-a --spot \
    --accelerator_type=v5litepod-16 --runtime_version=v2-alpha-tpuv5-lite \
    --package=gs://bucket/xlflax-1.0-py3-none-any.whl -- train \
    --gin_file=... --model_dir=gs://bucket/runs/mlm
"""


@launcher_registry.register(
  'tpu', help='all workers of Cloud TPU slices', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuJob(job_base.Job):
  """A job on Cloud TPU.

  Attributes:
    command: Command that each worker runs.
    name: Name of the queued resource and of its nodes.
    zone: Zone, such as us-east5-a.
    accelerator_type: TPU type, such as v5litepod-16.
    runtime_version: Software version of the TPU VMs, such as
      v2-alpha-tpuv5-lite.
    project: Google Cloud project. If None, that of gcloud.
    num_slices: Number of slices, which are connected by the network.
    spot: Whether to use cheaper TPUs that may be preempted.
    network: VPC network of the TPUs.
    subnetwork: VPC subnetwork of the TPUs.
    service_account: Service account of the TPUs, for access to buckets and for
      deleting abandoned TPUs.
    internal_ips: Whether to create the TPUs without external IP addresses.
    image: Container image with xlflax. If None, `package` is installed.
    package: Wheel, source archive (https:// or gs://) or repository
      (git+https://) of xlflax to install on the workers.
    setup_command: Shell command that prepares each worker. If None, Python 3.11
      and `package` are installed, or `image` is pulled.
    entrypoint: Shell command that runs xlflax on the workers. If None,
      venv/bin/xlflax, or xlflax in a container of `image`.
    env: Environment variable NAME=VALUE of the run.
    max_restarts: Maximum number of restarts and of new TPUs after preemption.
    keep_alive: Whether to keep the TPUs at the end.
    abandon_minutes: Minutes after which the workers delete the TPUs if no run
      is active and the launching machine has not connected. 0 disables it.
    poll_seconds: Seconds between requests for the state of the TPUs.
  """

  internal_fields = ('poll_seconds',)
  command: tuple[str, ...]
  name: str
  zone: str
  accelerator_type: str
  runtime_version: str
  project: str | None = None
  num_slices: validation.NumProcesses = 1
  spot: bool = False
  network: str | None = None
  subnetwork: str | None = None
  service_account: str | None = None
  internal_ips: bool = False
  image: str | None = None
  package: str | None = None
  setup_command: str | None = job_base.multiline(default=None)
  entrypoint: str | None = None
  env: tuple[str, ...] = ()
  max_restarts: validation.NonNegativeInt = 20
  keep_alive: bool = False
  abandon_minutes: validation.NonNegativeInt = 60
  poll_seconds: validation.NonNegativeInt = 30

  def __post_init__(self):
    job_base.check_text(self)
    job_base.check_image(self.image)
    job_base.parse_variables(self.env, '--env')
    if not _NAME.fullmatch(self.name):
      raise errors.ConfigError(
        'Invalid name of a queued resource',
        got=self.name,
        expected='at most 58 lower-case letters, digits and hyphens, starting '
        'with a letter',
        where='--name',
      )
    if not (self.package or self.image or self.setup_command is not None):
      raise errors.ConfigError(
        'Installing xlflax on the workers requires a package or an image',
        expected='--package, --image or --setup_command',
        fix='Pass the URL of a wheel or a repository, such as '
        '--package=git+https://HOST/xlflax or --package=gs://BUCKET/xlflax.whl.',
      )

  def check(self) -> None:
    """Checks the gin files, the model directory and the package."""
    job_base.check_gin_files(self.command, has_own_files=True)
    preflight.check_shared_model_dir(
      self.command, (), fix='Pass --model_dir=gs://BUCKET/...'
    )
    if self.package is not None and self.setup_command is None:
      self._check_package(self.package)

  def _check_package(self, package: str) -> None:
    """Raises ConfigError if the workers cannot download the package."""
    is_object = package.startswith('gs://') and package.endswith(_PACKAGE_FILES)
    if not is_object and not package.startswith(_PACKAGE_SCHEMES):
      raise errors.ConfigError(
        'The workers cannot install the package from this location',
        got=package,
        expected='gs://BUCKET/NAME.whl, https://HOST/NAME.whl or '
        'git+https://HOST/REPOSITORY',
        where='--package',
        fix='Copy a local wheel to a bucket with `gcloud storage cp`.',
      )

  def context(self) -> dict[str, Any]:
    """Returns the variables of the template.

    - job: This object.
    - location: Flags of gcloud for zone and project.
    - nodes: Names of the slices.
    - create_flags: Flags of `gcloud compute tpus queued-resources create`.
    - run: Command line of a worker, as shell code.
    - abandon_minutes: Minutes until unused TPUs are deleted; 0 if never.
    - check_seconds: Seconds between checks for unused TPUs.
    - user_error_status, restartable_status: Exit statuses.
    """
    return {
      'job': self,
      'location': _flags({'zone': self.zone, 'project': self.project}),
      'nodes': self.nodes,
      'create_flags': self._create_flags(),
      'run': self._run(),
      'abandon_minutes': 0 if self.keep_alive else self.abandon_minutes,
      'check_seconds': _WATCHDOG_SECONDS,
      'user_error_status': int(errors.ExitStatus.MISTAKE),
      'restartable_status': int(errors.ExitStatus.FAILURE),
    }

  @property
  def nodes(self) -> list[str]:
    """Names of the slices."""
    if self.num_slices == 1:
      return [self.name]
    return [f'{self.name}-{i}' for i in range(self.num_slices)]

  def _create_flags(self) -> list[str]:
    """Returns the flags of gcloud that describe the TPUs."""
    has_several_slices = self.num_slices > 1
    return [
      *_flags(
        {
          'accelerator-type': self.accelerator_type,
          'runtime-version': self.runtime_version,
          'node-id': None if has_several_slices else self.name,
          'node-count': self.num_slices if has_several_slices else None,
          'node-prefix': self.name if has_several_slices else None,
          'network': self.network,
          'subnetwork': self.subnetwork,
          'service-account': self.service_account,
        }
      ),
      *(['--internal-ips'] if self.internal_ips else []),
      *(['--spot'] if self.spot else []),
    ]

  def _run(self) -> str:
    """Returns the command line of a worker."""
    variables = job_base.parse_variables(self.env, '--env')
    assignments = [f'{k}={shlex.quote(v)}' for k, v in variables.items()]
    if self.entrypoint:
      prefix = ' '.join(['env', *assignments, '']) if assignments else ''
      entrypoint = prefix + self.entrypoint
    elif self.image:
      options = [f'--env={assignment}' for assignment in assignments]
      entrypoint = ' '.join([_DOCKER, *options, self.image, 'xlflax'])
    else:
      entrypoint = ' '.join([*assignments, 'venv/bin/xlflax'])
    arguments = [*self.command, *job_base.platform_flags(self.command, 'tpu')]
    return f'{entrypoint} {shlex.join([*arguments, job_base.PREEMPTION_FLAG])}'

  def render(self) -> str:
    """Returns the shell script that runs the job."""
    return templates.render_shell('tpu/create_and_run.sh.j2', self.context())

  def launch(self) -> int:
    """Runs the script to its end."""
    return run_script(self, dict(os.environ))


def _flags(values: dict[str, Any]) -> list[str]:
  """Formats the values that are not None as flags."""
  return [f'--{k}={v}' for k, v in values.items() if v is not None]


def run_script(job: TpuJob, environment: dict[str, str]) -> int:
  """Runs the script of a job on this machine and returns its status.

  Args:
    job: The job.
    environment: Environment variables of the script.

  Raises:
    ConfigError: If gcloud is missing.
  """
  if not shutil.which('gcloud', path=environment.get('PATH')):
    raise errors.ConfigError(
      '`gcloud` was not found',
      fix='Install the Google Cloud CLI, or print the script with --dry_run.',
    )
  with tempfile.NamedTemporaryFile('w', suffix='.sh') as file:
    file.write(job.render())
    file.flush()
    return subprocess.run(
      ['bash', file.name], env=environment, check=False
    ).returncode
