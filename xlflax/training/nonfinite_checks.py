"""Checks for non-finite parameters when models are loaded or exported.

If a model contains a single NaN, its predictions are the same for all inputs.
The model then appears to be badly trained, although its file is damaged.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.utils import errors

_CHUNK_SIZE = 1 << 22  # Number of values that are checked at a time.


def check_finite(
  name: str, values: np.ndarray, *, where: str | pathlib.Path, fix: str = ''
) -> None:
  """Checks that all values of a host array are finite.

  Args:
    name: Name of the tensor or parameter.
    values: Array of any shape and dtype on the host.
    where: Location of the array, such as a file, for the error message.
    fix: Hint for the error message. If empty, the hint is about damaged files.

  Raises:
    CheckpointError: If values are NaN or infinite. The message contains their
      number.
  """
  flat = values.reshape(-1)
  num_nonfinite = sum(
    int(np.count_nonzero(~np.isfinite(flat[start : start + _CHUNK_SIZE])))
    for start in range(0, flat.size, _CHUNK_SIZE)
  )
  if num_nonfinite:
    raise _nonfinite_error(
      f'{name} contains NaN or infinity in {num_nonfinite:,} of '
      f'{flat.size:,} values',
      where,
      fix,
    )


def check_arrays(
  named: Mapping[str, jax.Array], *, where: str | pathlib.Path, fix: str = ''
) -> None:
  """Checks that all values of device arrays are finite.

  All processes get the same result.

  Args:
    named: Arrays by name, each with any sharding.
    where: Location of the arrays, as in `check_finite`.
    fix: Hint for the error message, as in `check_finite`.

  Raises:
    CheckpointError: If values are NaN or infinite.
  """
  if all(_is_on_host(array) for array in named.values()):
    for name, array in named.items():
      for shard in array.addressable_shards:
        check_finite(name, np.asarray(shard.data), where=where, fix=fix)
    return
  is_finite = _are_finite(dict(named))
  names = [name for name, finite in is_finite.items() if not bool(finite)]
  if names:
    raise _nonfinite_error(
      f'Some values of {", ".join(names[:8])} are NaN or infinite', where, fix
    )


@jax.jit
def _are_finite(named: dict[str, Any]) -> dict[str, jax.Array]:
  """Returns for each array whether all values are finite."""
  return {name: jnp.isfinite(array).all() for name, array in named.items()}


def _is_on_host(array: jax.Array) -> bool:
  """Returns whether an array can be read in this process without a transfer."""
  return array.is_fully_addressable and all(
    device.platform == 'cpu' for device in array.devices()
  )


def _nonfinite_error(problem: str, where, fix: str) -> errors.CheckpointError:
  return errors.CheckpointError(
    'All values of the parameters must be finite numbers',
    got=problem,
    where=str(where),
    fix=fix
    or 'Copy the file again, or use a checkpoint from before the training '
    'diverged.',
  )


def or_null(value: Any) -> Any:
  """Replaces NaN and infinity with None in plain JSON values."""
  if isinstance(value, Mapping):
    return {key: or_null(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [or_null(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
