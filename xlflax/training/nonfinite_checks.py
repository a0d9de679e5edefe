"""Refuses parameters that are NaN or infinite where they enter and leave.

A model with one such value answers everything alike, which looks like a bad
model and not like a damaged file.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.utils import errors

_PIECE = 1 << 22  # values that are looked at together


def check_finite(
  name: str, values: np.ndarray, *, where: str | pathlib.Path, fix: str = ''
) -> None:
  """Refuses an array of the host with a value that is not finite.

  Args:
    name: of the tensor or parameter.
    values: of any shape and type.
    where: it comes from.
    fix: what to do about it; '' for what helps with a file.

  Raises:
    CheckpointError: a value is NaN or infinite; their number is told.
  """
  flat = values.reshape(-1)
  odd = sum(
    int(np.count_nonzero(~np.isfinite(flat[start : start + _PIECE])))
    for start in range(0, flat.size, _PIECE)
  )
  if odd:
    raise _not_finite(
      [f'{odd:,} of {flat.size:,} values of {name}'], where, fix
    )


def check_arrays(
  named: Mapping[str, jax.Array], *, where: str | pathlib.Path, fix: str = ''
) -> None:
  """As `check_finite`, of arrays on devices; every process finds the same.

  Args:
    named: name -> array, each sharded in any way.
    where: as of `check_finite`.
    fix: as of `check_finite`.
  """
  if all(_is_on_host(array) for array in named.values()):
    for name, array in named.items():
      for shard in array.addressable_shards:
        check_finite(name, np.asarray(shard.data), where=where, fix=fix)
    return
  is_finite = _finite_each(dict(named))
  odd = [name for name, finite in is_finite.items() if not bool(finite)]
  if odd:
    raise _not_finite([f'values of {", ".join(odd[:8])}'], where, fix)


@jax.jit
def _finite_each(named: dict[str, Any]) -> dict[str, jax.Array]:
  return {name: jnp.isfinite(array).all() for name, array in named.items()}


def _is_on_host(array: jax.Array) -> bool:
  """Whether all of it can be looked at here without a transfer."""
  return array.is_fully_addressable and all(
    device.platform == 'cpu' for device in array.devices()
  )


def _not_finite(found: list[str], where, fix: str) -> errors.CheckpointError:
  return errors.CheckpointError(
    'Parameters are not finite',
    got='; '.join(found) + ' are NaN or infinite',
    expected='finite numbers',
    where=str(where),
    fix=fix
    or 'copy the file again, or take a checkpoint before the training '
    'that left it so',
  )


def or_null(value: Any) -> Any:
  """Plain JSON values in which NaN and infinity are null."""
  if isinstance(value, Mapping):
    return {key: or_null(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [or_null(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
