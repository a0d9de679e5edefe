"""Tensors of a T5X checkpoint, one at a time; T5X itself is not needed.

T5X writes its checkpoints by Orbax; before, by MessagePack, which holds small
arrays and says in which TensorStore folders the others are.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import tensorstore

from xlflax.interop import safe_paths
from xlflax.storage import bucket_staging
from xlflax.training import nonfinite_checks, param_tree
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.utils import errors

_MSGPACK = 'checkpoint'
_STATE = 'state'
_ORBAX_METADATA = '_METADATA'
_TARGET = 'target/'
_DRIVERS = ('zarr', 'zarr3')  # of what TensorStore reads, those of T5X
_SLACK = 1 << 20  # numbers that small checkpoints may pack as zeros


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A parameter of a checkpoint.

  Attributes:
    name: its path, without 'target'.
    shape: its shape.
    read: reads it, in float32.
  """

  name: str
  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]


def find_t5x_tensors(checkpoint: str | pathlib.Path) -> dict[str, Tensor]:
  """The parameters of a checkpoint, by name; no values are read of them.

  Args:
    checkpoint: a folder such as `checkpoint_1000`.

  Raises:
    CheckpointError: it is no checkpoint of T5X, or it is damaged.
  """
  folder = bucket_staging.stage_input(checkpoint).absolute()
  if (folder / _MSGPACK).is_file():
    found = _from_msgpack(folder)
  elif (folder / _STATE / _ORBAX_METADATA).is_file():
    found = _from_orbax(folder / _STATE)
  else:
    raise _no_checkpoint(folder)
  if not found:
    raise errors.CheckpointError(
      'The checkpoint has no parameters',
      got='no target',
      expected="what T5X's trainer writes",
      where=str(folder),
    )
  _check_size(folder, found)
  return {tensor.name: tensor for tensor in found}


def _check_size(folder: pathlib.Path, found: list[Tensor]) -> None:
  """Refuses shapes that the files cannot have the numbers of.

  Arrays may lack chunks, which are zeros then: a few bytes can stand for any
  size. Trained parameters take a byte each at least, however they are packed.
  """
  numbers = sum(math.prod(tensor.shape) for tensor in found)
  there = sum(p.stat().st_size for p in folder.rglob('*') if p.is_file())
  if numbers > there + _SLACK:
    raise errors.CheckpointError(
      'The parameters of the checkpoint are not there',
      got=f'{numbers:,} numbers in files of {there:,} bytes',
      expected='a byte for each number, at least',
      where=str(folder),
      fix='copy it again, with all of its files',
    )


def step_of(checkpoint: str | pathlib.Path) -> int:
  """The step that a checkpoint's name tells; 0 if it tells none."""
  number = pathlib.Path(checkpoint).absolute().name.rpartition('_')[2]
  return int(number) if number.isdigit() else 0


def _no_checkpoint(folder: pathlib.Path) -> errors.CheckpointError:
  inside = sorted(folder.glob('checkpoint_*'), key=step_of)
  return errors.CheckpointError(
    'This is no checkpoint of T5X',
    got=str(folder),
    expected=f'a folder with {_MSGPACK} or {_STATE}/{_ORBAX_METADATA}',
    fix=f'take {inside[-1]}'
    if inside
    else 'take a folder such as MODEL_DIR/checkpoint_1000',
  )


def _from_orbax(state: pathlib.Path) -> list[Tensor]:
  try:
    metadata: Any = ocp.PyTreeCheckpointHandler().metadata(state)
    tree = getattr(metadata, 'tree', metadata)
    shapes = {
      name: tuple(leaf.shape)
      for name, leaf in param_tree.flatten_params(tree).items()
      if name.startswith(_TARGET)
    }
  except Exception as error:
    raise _damaged(state, error) from error
  return [
    Tensor(
      name.removeprefix(_TARGET),
      shape,
      functools.partial(_read_orbax, state, name, shape),
    )
    for name, shape in shapes.items()
  ]


def _read_orbax(state: pathlib.Path, name: str, shape) -> np.ndarray:
  item = param_tree.unflatten_params(
    {name: np.broadcast_to(np.float32(0), shape)}
  )
  try:
    found = checkpoint_reader.restore_subtree(state.parent, state.name, item)
  except Exception as error:
    raise _damaged(state, error, name) from error
  return np.asarray(param_tree.flatten_params(found)[name], np.float32)


def _from_msgpack(folder: pathlib.Path) -> list[Tensor]:
  try:
    content = flax.serialization.msgpack_restore(
      (folder / _MSGPACK).read_bytes()
    )
    leaves = dict(_leaves(content['optimizer']['target']))
    return [_tensor(folder, name, leaf) for name, leaf in leaves.items()]
  except errors.XlflaxError:
    raise
  except Exception as error:
    raise _damaged(folder, error) from error


def _leaves(tree, prefix: str = ''):
  """(name, array or TensorStore's description) of each parameter."""
  if isinstance(tree, dict) and 'kvstore' not in tree and 'base' not in tree:
    for key, value in tree.items():
      yield from _leaves(value, f'{prefix}{key}/')
  else:
    yield prefix.removesuffix('/'), tree


def _tensor(folder: pathlib.Path, name: str, leaf) -> Tensor:
  if not isinstance(leaf, dict):
    array = np.asarray(leaf, np.float32)
    return Tensor(name, array.shape, lambda: array)
  while 'base' in leaf:  # of what casts when it reads
    leaf = leaf['base']
  if leaf['driver'] not in _DRIVERS:
    raise ValueError(f'{name} is stored by {leaf["driver"]!r}')
  # Where it was written, possibly in another place or a bucket.
  path = leaf['kvstore'].get('path') or leaf['path']
  store = _open(
    leaf['driver'],
    safe_paths.path_inside(folder, path.rstrip('/').split('/')[-1]),
  )

  def read() -> np.ndarray:
    try:
      values = np.asarray(store.read().result()).astype(np.float32)
    except Exception as error:
      raise _damaged(folder, error, name) from error
    nonfinite_checks.check_finite(name, values, where=folder)
    return values

  return Tensor(name, tuple(store.shape), read)


def _open(driver: str, path: pathlib.Path):
  """Opens an array; there is a folder for each, with its description."""
  return tensorstore.open(
    {'driver': driver, 'kvstore': {'driver': 'file', 'path': f'{path}/'}},
    read=True,
    open=True,
  ).result()


def _damaged(where, error: Exception, name: str = '') -> errors.XlflaxError:
  first = (str(error).strip() or type(error).__name__).splitlines()[0]
  return errors.CheckpointError(
    'A checkpoint of T5X cannot be read',
    got=f'{name}: {first}' if name else first,
    expected='a complete checkpoint',
    where=str(where),
    fix='copy it again, with all of its files',
  )
