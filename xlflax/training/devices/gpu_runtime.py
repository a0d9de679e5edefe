"""What a run on GPUs sets in its environment, and what a plan reads there.

JAX takes three quarters of a GPU's memory for its arrays unless told otherwise,
so a run asks for more before it makes its devices. What is set already stays.
"""

import os
from collections.abc import MutableMapping

from xlflax.utils import errors

MEMORY = 'XLA_CLIENT_MEM_FRACTION'
_FORMER = 'XLA_PYTHON_CLIENT_MEM_FRACTION'  # its deprecated name
# CUDA, cuDNN and NCCL need the rest.
SHARE = 0.9
# NCCL says what failed and on which link; by default it says nothing.
_NCCL = {'NCCL_DEBUG': 'WARN'}


def share_of_memory(
  environment: MutableMapping[str, str] | None = None,
) -> float:
  """Returns the share of a GPU's memory that a run's arrays may take.

  Args:
    environment: the process's variables; None takes its own.

  Raises:
    ConfigError: the variable is no share.
  """
  environment = os.environ if environment is None else environment
  name = MEMORY if MEMORY in environment else _FORMER
  text = environment.get(name) or str(SHARE)
  try:
    share = float(text)
  except ValueError:
    share = 0.0
  if not 0 < share <= 1:
    raise errors.ConfigError(
      "The share of a GPU's memory is not usable",
      got=text,
      expected='a number above 0, at most 1',
      where=f'the variable {name}',
      fix=f'unset it for {SHARE}',
    )
  return share


def set_defaults(environment: MutableMapping[str, str]) -> None:
  """Sets what a run on GPUs needs and the environment does not say."""
  if not (environment.get(MEMORY) or environment.get(_FORMER)):
    environment[MEMORY] = str(SHARE)
  for name, value in _NCCL.items():
    environment.setdefault(name, value)
