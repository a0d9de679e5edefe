"""Jobs on Cloud TPU: a queued resource, and the command on all its workers.

JAX detects the workers of a slice, and several slices, by itself.
"""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import string
import subprocess
import tempfile

from xlflax.foundation import errors, ranges
from xlflax.launch import base, registry

# Nodes are called NAME-1023, in at most 63 characters.
_NAME = re.compile('[a-z]([-a-z0-9]{0,56}[a-z0-9])?')
_EXAMPLE = r"""# a TPU slice of several workers, with new ones where it is taken away
xlflax launch tpu --name=mlm --zone=us-east5-a --spot \
    --accelerator_type=v5litepod-16 --runtime_version=v2-alpha-tpuv5-lite \
    --source=git+https://HOST/xlflax -- train --gin_file=... --model_dir=gs://bucket/runs/mlm
"""
_STOP = """cd && cd .xlflax && kill -TERM -- "-$(cat pid)"
tail -n 20 --pid="$(cat pid)" -f log"""
# The images of TPU VMs have Python 3.10. What is installed already stays.
_SETUP = """wanted={wanted}
[[ $(cat venv/wanted 2> /dev/null) == "$wanted" ]] || {{
  sudo apt-get update -qq && sudo apt-get install -qqy git python3.11-venv &&
  python3.11 -m venv --clear venv && venv/bin/pip install -q "$wanted" &&
  echo "$wanted" > venv/wanted
}}"""
_CONTAINER = 'sudo docker run --rm --privileged --network=host --ipc=host'


class _Script(string.Template):
  """A shell script, in which @@name stands for what a job has."""

  delimiter = '@@'


def _text(name: str) -> str:
  """A file of this room: `tpu.sh` runs here; on a worker `tpu_start.sh`, by
  `setsid` and `nohup` so that the run outlives the connection (the shell around
  it stays for its status where a signal ends the run), and `tpu_ask.sh`."""
  path = pathlib.Path(__file__).parent / name
  return path.read_text('utf-8')


@registry.register(
  'tpu', help='all workers of Cloud TPU slices', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuJob(base.Job):
  """A job on Cloud TPU.

  Attributes:
    command: what each worker runs.
    name: of the queued resource; of its nodes too.
    zone: such as 'us-east5-a'.
    accelerator_type: such as 'v5litepod-16'.
    runtime_version: of the TPU VMs' software, such as 'v2-alpha-tpuv5-lite'.
    project: None takes gcloud's own.
    slices: how many of `accelerator_type`, joined over the network.
    spot: cheaper TPUs that may be taken away.
    image: of a container that has xlflax; None installs `source`.
    source: of xlflax, for pip on the workers: the URL of a wheel, an archive
      or a repository ('git+https://...').
    setup: shell command run on each worker first; None installs Python 3.11
      and xlflax into `venv`, or fetches the image.
    program: what `xlflax` is on the workers; shell code, as `setup` is. None:
      what `setup` gives.
    restarts: how often new TPUs are asked for after a loss.
    keep: whether the TPUs stay when the run has ended.
    poll_seconds: between looks at a waiting resource.
  """

  flags = """
--name (required): as of gcloud
--zone (required): as of gcloud
--accelerator_type (required): as of gcloud
--runtime_version (required): as of gcloud
--project: default: gcloud's own
--slices N (Processes, default 1)
--spot (switch): cheaper TPUs that may be taken away
--image: container that has xlflax (default: --source is installed)
--source URL: of a wheel, archive or repository (git+https://...) of xlflax,
  which the workers can read
--setup COMMAND: run on each worker first (default: what installs Python 3.11
  and --source into venv, or fetches --image)
--program COMMAND: what xlflax is on the workers (default: venv/bin/xlflax, or
  that of --image)
--restarts N (Natural, default 20)
--keep (switch): do not give the TPUs back at the end
"""
  command: tuple[str, ...]
  name: str
  zone: str
  accelerator_type: str
  runtime_version: str
  project: str | None = None
  slices: ranges.Processes = 1
  spot: bool = False
  image: str | None = None
  source: str | None = None
  setup: str | None = base.multiline(default=None)
  program: str | None = None
  restarts: ranges.Natural = 20
  keep: bool = False
  poll_seconds: ranges.Natural = 30

  def __post_init__(self):
    base.check_text(self)
    base.check_image(self.image)
    if not _NAME.fullmatch(self.name):
      raise errors.ConfigError(
        'The name is not usable on Google Cloud',
        got=self.name,
        expected='at most 58 lower-case letters, digits and hyphens, a letter '
        'first',
        where='--name',
      )
    if not (self.source or self.image or self.setup is not None):
      raise errors.ConfigError(
        'The workers have no xlflax',
        expected='--source, --image or --setup',
        fix='give the URL of a wheel, an archive or a repository, such as '
        '--source=git+https://HOST/xlflax or --source=https://HOST/xlflax.whl',
      )

  @property
  def nodes(self) -> list[str]:
    """Names of the slices."""
    if self.slices == 1:
      return [self.name]
    return [f'{self.name}-{i}' for i in range(self.slices)]

  def render(self) -> str:
    """Returns the shell script that does all of it."""
    place = [f'--zone={self.zone}'] + (
      [f'--project={self.project}'] if self.project else []
    )
    create = [
      f'--accelerator-type={self.accelerator_type}',
      f'--runtime-version={self.runtime_version}',
    ]
    create += (
      [f'--node-id={self.name}']
      if self.slices == 1
      else [f'--node-count={self.slices}', f'--node-prefix={self.name}']
    )
    create += ['--spot'] if self.spot else []
    return _Script(_text('tpu.sh')).substitute(
      name=shlex.quote(self.name),
      place=shlex.join(place),
      nodes=shlex.join(self.nodes),
      restarts=self.restarts,
      create=shlex.join(create),
      poll=self.poll_seconds,
      setup=shlex.quote(self._setup()),
      run=shlex.quote(self._run()),
      start=shlex.quote(_text('tpu_start.sh').strip()),
      ask=shlex.quote(_text('tpu_ask.sh').strip()),
      stop=shlex.quote(_STOP),
      give_back='true' if self.keep else 'delete',
    )

  def _setup(self) -> str:
    if self.setup is not None:
      return self.setup
    if self.image:
      return f'sudo docker pull -q {self.image}'
    wanted = shlex.quote(f'xlflax[tpu,buckets] @ {self.source}')
    return _SETUP.format(wanted=wanted)

  def _run(self) -> str:
    """The command line of a worker."""
    program = self.program or (
      f'{_CONTAINER} {self.image} xlflax' if self.image else 'venv/bin/xlflax'
    )
    words = [*self.command, *base.platform_flags(self.command, 'tpu')]
    stopped = f'--stopped_status={errors.ExitStatus.STOPPED}'
    return f'{program} {shlex.join([*words, stopped])}'

  def launch(self) -> int:
    """Runs the script here, to its end."""
    return run(self, dict(os.environ))


def run(job: TpuJob, environment: dict[str, str]) -> int:
  """Runs the script here, to its end; returns its status.

  Raises:
    ConfigError: there is no gcloud here.
  """
  if not shutil.which('gcloud', path=environment.get('PATH')):
    raise errors.ConfigError(
      'There is no gcloud here',
      fix='install the Google Cloud CLI, or print the script by --dry_run',
    )
  with tempfile.NamedTemporaryFile('w', suffix='.sh') as file:
    file.write(job.render())
    file.flush()
    return subprocess.run(
      ['bash', file.name], env=environment, check=False
    ).returncode
