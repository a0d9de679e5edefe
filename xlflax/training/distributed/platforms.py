"""The kind of device that a job was given, and whether it is there.

JAX trains on the CPU where it finds no accelerator, with a warning that
nobody reads. A job that asks for GPUs or TPUs fails instead.
"""

import enum
import os

import jax

from xlflax.training.devices import gpu_runtime
from xlflax.utils import accelerator_packages, errors


class Platform(enum.Enum):
  """What a process computes on."""

  CPU = 'cpu'
  GPU = 'gpu'
  TPU = 'tpu'


def choose_platform(platform: Platform | None) -> None:
  """Keeps JAX from looking for accelerators where the CPU is asked for.

  Where there may be GPUs, it sets what their runtime reads. Must run before the
  first use of a device.
  """
  if platform is Platform.CPU:
    jax.config.update('jax_platforms', 'cpu')
  elif accelerator_packages.installed_packages('gpu'):
    gpu_runtime.set_defaults(os.environ)


def check_platform(
  platform: Platform | None, *, found: str | None = None
) -> None:
  """Raises unless JAX computes on what was asked for.

  Args:
    platform: what was asked for; None takes what there is.
    found: JAX's default backend; None asks JAX.

  Raises:
    ConfigError: it computes on something else. Where JAX has the package for
      such devices, the status is FAILURE, as another node may have them.
  """
  if platform is None:
    return
  found = _found() if found is None else found
  if found == platform.value:
    return
  lacks = not accelerator_packages.installed_packages(platform.value)
  if platform is not Platform.CPU and lacks:
    fix, status = (
      f'install xlflax with the extra {platform.value!r}',
      errors.ExitStatus.MISTAKE,
    )
  else:
    fix, status = (
      "look at the machine's driver (nvidia-smi) and at what the scheduler "
      'gave this process (CUDA_VISIBLE_DEVICES); JAX_PLATFORMS must not say '
      'otherwise',
      errors.ExitStatus.FAILURE,
    )
  raise errors.ConfigError(
    f'There is no {platform.value.upper()} here',
    got=found,
    expected=platform.value,
    where=f'--platform={platform.value}',
    fix=fix,
    status=status,
  )


def _found() -> str:
  """JAX's default backend, or why it has none."""
  try:
    return jax.default_backend()
  except RuntimeError as error:
    return str(error).splitlines()[0]
