"""Jobs under Kubernetes: manifests, and `kubectl apply`.

One pod for each node, with one process that has all its accelerators.
"""

import dataclasses
import os
import shutil
import subprocess

from xlflax.foundation import errors
from xlflax.launch import base, kubernetes_flags, manifests, registry, yaml_text
from xlflax.launch import kubernetes_settings as settings_lib

_EXAMPLE = r"""# four nodes of eight GPUs under Kubernetes, runs on the claim `runs`
xlflax launch kubernetes --name=mlm --image=registry/xlflax:gpu --nodes=4 \
    --volume=claim:runs:/shared -- train --gin_file=... \
    --model_dir=/shared/runs/mlm
"""


@registry.register(
  'kubernetes', help='an indexed Job or a JobSet', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesJob(settings_lib.KubernetesSettings, base.Job):
  """A job for a Kubernetes cluster; `KubernetesSettings` says of what."""

  commands = (*base.DISTRIBUTED_COMMANDS, *base.SHARDED_COMMANDS)

  flags = kubernetes_flags.FLAGS
  flag_kinds = {
    'Volume': settings_lib.Volume.parse,
    'Toleration': settings_lib.Toleration.parse,
  }

  def render(self) -> str:
    """Returns the manifests as YAML documents."""
    return yaml_text.dumped(*manifests.manifests(self))

  def launch(self) -> int:
    """Applies the manifests, and prints the cluster's answer."""
    print(submit(self, dict(os.environ)))
    return 0


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
    input=job.render(),
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
