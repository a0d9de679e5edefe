"""Cloud TPU jobs, which run a command on all workers of a queued resource.

JAX automatically detects the workers in one or several slices. The job is a
shell script that is rendered from the template `tpu/create_and_run.sh.j2` in
`launch/templates`.
"""

import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from types import FrameType
from typing import Any

from xlflax.launch import job_base, launcher_registry, preflight, templates
from xlflax.utils import errors, signals, validation

# Nodes are named NAME-1023, with at most 63 characters.
_NAME = re.compile('[a-z]([-a-z0-9]{0,56}[a-z0-9])?')
# Cloud TPU names v5e slices v5litepod-N.
_ACCELERATOR_TYPE = re.compile(r'(v\d+[a-z]*|tpu\d+x)-\d+')
# URL schemes that pip supports. Workers copy packages from gs:// before that.
_PACKAGE_SCHEMES = ('https://', 'http://', 'git+https://', 'git+ssh://')
_PACKAGE_FILES = ('.whl', '.tar.gz', '.zip')
_DOCKER = 'sudo docker run --rm --privileged --network=host --ipc=host'
_WATCHDOG_SECONDS = 60
_EXAMPLE = r"""# A spot TPU slice of several workers. A preempted slice is created again.
xlflax launch tpu --name=mlm --zone=us-east5-a --spot \
    --accelerator_type=v5litepod-16 --runtime_version=v2-alpha-tpuv5-lite \
    --package=gs://bucket/xlflax-0.1.0-py3-none-any.whl -- train \
    --gin_file=... --model_dir=gs://bucket/runs/mlm
"""


@launcher_registry.register(
  'tpu', help='all workers of Cloud TPU slices', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuJob(job_base.Job):
  """A job that runs on Cloud TPU.

  Attributes:
    command: Command that each worker runs.
    name: Name of the queued resource and of its nodes.
    zone: Google Cloud zone, such as us-east5-a.
    accelerator_type: TPU type, such as v5litepod-16.
    runtime_version: Software version of the TPU VMs, such as
      v2-alpha-tpuv5-lite.
    project: Google Cloud project. If None, gcloud's current project is used.
    num_slices: Number of TPU slices, which are connected by the data center
      network.
    spot: Whether to use spot TPUs, which are cheaper but may be preempted.
    network: VPC network to which the TPUs are attached.
    subnetwork: VPC subnetwork to which the TPUs are attached.
    service_account: Service account with which the TPUs access buckets and
      delete abandoned TPUs.
    internal_ips: Whether to create the TPUs without external IP addresses.
    create_arg: Additional argument for `gcloud compute tpus queued-resources
      create`, such as --reserved.
    image: Container image with xlflax. If None, `package` is installed.
    package: Package of xlflax to install on the workers: the URL of a wheel or
      source archive (https:// or gs://), or of a repository (git+https://).
    setup_command: Shell command that prepares each worker. If None, Python 3.11
      and `package` are installed, or `image` is pulled.
    entrypoint: Shell command that runs xlflax on the workers. Defaults to
      venv/bin/xlflax, or to xlflax in a container if `image` is set.
    env: Environment variable for the run, as NAME=VALUE.
    max_restarts: Maximum number of restarts after a failure. Restarts of a run
      that a signal stopped are not counted. After a preemption, a restart
      requests new TPUs.
    keep_alive: Whether to keep the TPUs after the run has ended.
    abandon_minutes: Minutes after which the workers delete the TPUs if no run
      or setup command is active and the launching machine has not connected. 0
      disables the deletion.
    poll_seconds: Seconds between two requests for the state of the TPUs.
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
  create_arg: tuple[str, ...] = ()
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
        'The --name of a queued resource must consist of at most 58 '
        'lowercase letters, digits and hyphens. It must start with a letter, '
        'and must not end with a hyphen',
        got=self.name,
      )
    if not _ACCELERATOR_TYPE.fullmatch(
      self.accelerator_type
    ) or self.accelerator_type.startswith(('v5e-', 'v5lite-')):
      raise errors.ConfigError(
        '--accelerator_type must consist of a TPU version and a number of '
        'cores or chips, such as v4-32, v5litepod-16, v5p-128 or v6e-16',
        got=self.accelerator_type,
        fix='Run `gcloud compute tpus accelerator-types list --zone=ZONE` to '
        'list the types of a zone.',
      )
    for argument in self.create_arg:
      if not argument.startswith('--'):
        raise errors.ConfigError(
          'Each value of --create_arg must be a complete option of `gcloud`, '
          'such as --reserved or --valid-until-duration=6h',
          got=argument,
        )
    if not (self.package or self.image or self.setup_command is not None):
      raise errors.ConfigError(
        'One of --package, --image and --setup_command is required to install '
        'xlflax on the workers',
        fix=(
          'Pass the URL of a wheel or repository, such as '
          '--package=git+https://HOST/xlflax or '
          '--package=gs://BUCKET/xlflax.whl.'
        ),
      )

  def check(self) -> None:
    """Checks gin files, output directories and the package to install."""
    job_base.check_gin_files(self.command, has_own_files=True)
    job_base.check_model_dir(self.command)
    preflight.check_shared_outputs(
      self.command,
      (),
      fix='Pass a bucket, such as gs://BUCKET/...',
      can_mount=False,
    )
    preflight.warn_of_unmounted_inputs(
      self.command, (), place='Each worker or its image'
    )
    if self.package is not None and self.setup_command is None:
      self._check_package(self.package)

  def _check_package(self, package: str) -> None:
    """Raises ConfigError if the workers cannot download the package."""
    is_object = package.startswith('gs://') and package.endswith(_PACKAGE_FILES)
    if not is_object and not package.startswith(_PACKAGE_SCHEMES):
      raise errors.ConfigError(
        '--package must have the form gs://BUCKET/NAME.whl, '
        'https://HOST/NAME.whl or git+https://HOST/REPOSITORY, so that the '
        'workers can install the package',
        got=package,
        fix='Copy a local wheel to a bucket with `gcloud storage cp`.',
      )

  def context(self) -> dict[str, Any]:
    """Returns the values of the variables in the shell script's template.

    - job: This object.
    - location: gcloud flags for the zone and the project.
    - nodes: Names of the TPU slices.
    - create_flags: Flags for `gcloud compute tpus queued-resources create`.
    - run: A worker's command line, as shell code.
    - abandon_minutes: Minutes until unused TPUs are deleted, or 0 if they are
      never deleted.
    - check_seconds: Seconds between checks for unused TPUs.
    - user_error_status, restartable_status: Exit statuses for user errors and
      for failures after which the run is restarted.
    - preempted_status, interrupted_status: Exit statuses of a process after a
      preemption, and after a signal before its first step. The latter is also
      the exit status of a job that a signal has stopped.
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
      'preempted_status': int(errors.ExitStatus.STOPPED),
      'interrupted_status': int(errors.ExitStatus.INTERRUPTED),
    }

  @property
  def nodes(self) -> list[str]:
    """Names of the TPU slices."""
    if self.num_slices == 1:
      return [self.name]
    return [f'{self.name}-{i}' for i in range(self.num_slices)]

  def _create_flags(self) -> list[str]:
    """Returns the gcloud flags that describe the TPUs."""
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
      *self.create_arg,
    ]

  def _run(self) -> str:
    """Returns a worker's command line."""
    variables = {'PYTHONUNBUFFERED': '1'} | job_base.parse_variables(
      self.env, '--env'
    )
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
    """Runs the script of the job and returns its exit status."""
    return run_script(self, dict(os.environ))


def _flags(values: dict[str, Any]) -> list[str]:
  """Formats the values that are not None as flags."""
  return [f'--{k}={v}' for k, v in values.items() if v is not None]


def run_script(job: TpuJob, environment: dict[str, str]) -> int:
  """Runs a job's script on this machine and returns its exit status.

  A signal that stops this process also stops the script, which stops the run
  and deletes the TPUs. After SIGHUP, the script ends and the run continues.

  Args:
    job: The job to run.
    environment: Environment variables for the script.

  Raises:
    ConfigError: If gcloud is not installed.
  """
  if not shutil.which('gcloud', path=environment.get('PATH')):
    raise errors.ConfigError(
      '`gcloud` was not found',
      fix='Install the Google Cloud CLI, or print the script with --dry_run.',
    )
  with tempfile.NamedTemporaryFile('w', suffix='.sh') as file:
    file.write(job.render())
    file.flush()
    return _run_to_end(['bash', file.name], environment)


def _run_to_end(command: list[str], environment: dict[str, str]) -> int:
  """Runs a command, forwards signals to it and returns its exit status."""
  process: subprocess.Popen | None = None
  received: list[int] = []

  def forward(number: int, frame: FrameType | None) -> None:
    del frame
    received.append(number)
    if process is not None:
      # The script handles SIGINT and SIGTERM in the same way, but not SIGUSR1.
      hangup = number == signal.SIGHUP
      process.send_signal(signal.SIGHUP if hangup else signal.SIGTERM)

  previous_handlers = {
    number: signal.signal(number, forward)
    for number in filter(signals.is_handled, signals.SIGNALS)
  }
  try:
    process = subprocess.Popen(command, env=environment)
    if received:  # Signals that arrived before the command was started.
      forward(received[0], None)
    status = process.wait()
  finally:
    for number, handler in previous_handlers.items():
      signal.signal(number, handler)
  return status if status >= 0 else 128 - status
