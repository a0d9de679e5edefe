"""Selection and verification of the device type on which JAX computes.

If JAX finds no accelerator, it trains on the CPU with a warning that is easily
overlooked. A job that requests GPUs or TPUs fails instead.
"""

import enum
import os

import jax

from xlflax.training.devices import gpu_runtime
from xlflax.utils import accelerator_packages, errors


class Platform(enum.Enum):
  """Type of device on which JAX computes."""

  CPU = 'cpu'
  GPU = 'gpu'
  TPU = 'tpu'


def choose_platform(platform: Platform | None) -> None:
  """Configures JAX to use a platform.

  If the CPU is requested, JAX does not search for accelerators. If the packages
  for GPUs are installed, the environment variables of their runtime are set.
  This function must be called before the first use of a device.

  Args:
    platform: Requested device type. If None, JAX selects it.
  """
  if platform is Platform.CPU:
    jax.config.update('jax_platforms', 'cpu')
  elif accelerator_packages.installed_packages('gpu'):
    gpu_runtime.set_defaults(os.environ)


def check_platform(
  platform: Platform | None, *, found: str | None = None
) -> None:
  """Checks that JAX computes on the requested platform.

  Args:
    platform: Requested platform. If None, any platform is accepted.
    found: Name of JAX's default backend. If None, it is detected.

  Raises:
    ConfigError: If JAX computes on a different platform. The exit status is
      `ExitStatus.FAILURE` if the packages for the platform are installed,
      because another node may have such devices.
  """
  if platform is None:
    return
  backend = _default_backend() if found is None else found
  if backend == platform.value:
    return
  is_package_missing = not accelerator_packages.installed_packages(
    platform.value
  )
  if platform is not Platform.CPU and is_package_missing:
    fix = f'Install xlflax with the extra {platform.value!r}.'
    status = errors.ExitStatus.MISTAKE
  else:
    fix = (
      'Check the driver (nvidia-smi), the devices that the scheduler assigned '
      'to this process (CUDA_VISIBLE_DEVICES), and that JAX_PLATFORMS does not '
      'select a different platform.'
    )
    status = errors.ExitStatus.FAILURE
  raise errors.ConfigError(
    f'No {platform.value.upper()} was found, but --platform={platform.value} '
    'requires one',
    got=backend,
    expected=platform.value,
    fix=fix,
    status=status,
  )


def _default_backend() -> str:
  """Returns the default backend of JAX, or the error if it has none."""
  try:
    return jax.default_backend()
  except RuntimeError as error:
    return str(error).splitlines()[0]
