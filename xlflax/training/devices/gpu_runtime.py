"""Environment variables that configure the GPU runtime.

By default, JAX uses three quarters of a GPU's memory for arrays. A run
increases this fraction before it initializes its devices. Variables that are
already set are kept.
"""

import os
from collections.abc import MutableMapping

from xlflax.utils import errors

MEMORY = 'XLA_CLIENT_MEM_FRACTION'
_DEPRECATED_MEMORY = (
  'XLA_PYTHON_CLIENT_MEM_FRACTION'  # Former name of `MEMORY`.
)
# The remaining memory is required by CUDA, cuDNN and NCCL.
DEFAULT_MEMORY_FRACTION = 0.9
# NCCL logs the failed operation and link. By default, it logs nothing.
_NCCL_VARIABLES = {'NCCL_DEBUG': 'WARN'}


def memory_fraction(
  environment: MutableMapping[str, str] | None = None,
) -> float:
  """Returns the fraction of a GPU's memory that a run's arrays may use.

  Args:
    environment: Environment variables. If None, the process's own variables are
      used.

  Raises:
    ConfigError: If the value of the environment variable is not a number
      greater than 0 and at most 1.
  """
  environment = os.environ if environment is None else environment
  name = MEMORY if MEMORY in environment else _DEPRECATED_MEMORY
  text = environment.get(name) or str(DEFAULT_MEMORY_FRACTION)
  try:
    fraction = float(text)
  except ValueError:
    fraction = 0.0
  if not 0 < fraction <= 1:
    raise errors.ConfigError(
      f'The environment variable {name} must contain the fraction of GPU '
      'memory to use, which is a number greater than 0 and at most 1',
      got=text,
      fix='Unset the variable to use the default value, '
      f'{DEFAULT_MEMORY_FRACTION}.',
    )
  return fraction


def set_defaults(environment: MutableMapping[str, str]) -> None:
  """Sets environment variables for GPUs, except those that are already set."""
  if not (environment.get(MEMORY) or environment.get(_DEPRECATED_MEMORY)):
    environment[MEMORY] = str(DEFAULT_MEMORY_FRACTION)
  for name, value in _NCCL_VARIABLES.items():
    environment.setdefault(name, value)
