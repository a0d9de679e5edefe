"""Reader for tensors in T5X checkpoints.

This module does not require T5X. T5X writes checkpoints with Orbax. Older
versions wrote MessagePack files, which contain small arrays and the names of
TensorStore folders with the others.
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
from xlflax.storage import bucket_staging, tensorstore_specs
from xlflax.training import nonfinite_checks, param_tree
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.utils import errors

_MSGPACK = 'checkpoint'
_STATE = 'state'
_ORBAX_METADATA = '_METADATA'
_TARGET = 'target/'
_DRIVERS = ('zarr', 'zarr3')  # TensorStore drivers that T5X uses.
# Number of values that small checkpoints may omit or compress as zeros.
_NUM_UNSTORED_VALUES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Tensor:
  """Parameter that is stored in a checkpoint.

  Attributes:
    name: Path of the parameter, without the leading 'target'.
    shape: Shape of the parameter.
    read: Function that reads the parameter and returns it as float32.
  """

  name: str
  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]


def find_t5x_tensors(checkpoint: str | pathlib.Path) -> dict[str, Tensor]:
  """Finds a checkpoint's parameters without reading their values.

  Args:
    checkpoint: Folder of a checkpoint, such as `checkpoint_1000`.

  Returns:
    Mapping from names to parameters.

  Raises:
    CheckpointError: If the folder is not a T5X checkpoint or is damaged.
  """
  folder = bucket_staging.stage_input(checkpoint).absolute()
  if (folder / _MSGPACK).is_file():
    tensors = _from_msgpack(folder)
  elif (folder / _STATE / _ORBAX_METADATA).is_file():
    tensors = _from_orbax(folder / _STATE)
  else:
    raise _not_a_checkpoint_error(folder)
  if not tensors:
    raise errors.CheckpointError(
      'The checkpoint does not contain parameters under `target`. It must be '
      'written by the T5X trainer',
      where=str(folder),
    )
  _check_size(folder, tensors)
  return {tensor.name: tensor for tensor in tensors}


def _check_size(folder: pathlib.Path, tensors: list[Tensor]) -> None:
  """Checks that the files are large enough for the shapes of the parameters.

  Missing chunks of an array are read as zeros, so a few bytes can represent an
  array of any size. Trained parameters need at least one byte per value, even
  if they are compressed.

  Raises:
    CheckpointError: If the files are too small to contain the parameters.
  """
  num_values = sum(math.prod(tensor.shape) for tensor in tensors)
  num_bytes = sum(
    path.stat().st_size for path in folder.rglob('*') if path.is_file()
  )
  if num_values > num_bytes + _NUM_UNSTORED_VALUES:
    raise errors.CheckpointError(
      'The files of the checkpoint are too small for its parameters. They '
      f'contain {num_bytes:,} bytes for {num_values:,} values, but at least '
      'one byte per value is required',
      where=str(folder),
      fix='Copy the checkpoint again, with all of its files.',
    )


def parse_step(checkpoint: str | pathlib.Path) -> int:
  """Parses the training step from a checkpoint's name. The default is 0."""
  number = pathlib.Path(checkpoint).absolute().name.rpartition('_')[2]
  return int(number) if number.isdigit() else 0


def _not_a_checkpoint_error(folder: pathlib.Path) -> errors.CheckpointError:
  """Returns an error that suggests a checkpoint inside the folder."""
  checkpoints = sorted(folder.glob('checkpoint_*'), key=parse_step)
  if checkpoints:
    hint = f'Pass {checkpoints[-1]}'
  else:
    hint = 'Pass a folder such as MODEL_DIR/checkpoint_1000'
  return errors.CheckpointError(
    f'A T5X checkpoint must contain the file {_MSGPACK} or '
    f'{_STATE}/{_ORBAX_METADATA}',
    got=str(folder),
    fix=hint,
  )


def _from_orbax(state: pathlib.Path) -> list[Tensor]:
  """Finds the parameters of an Orbax checkpoint."""
  try:
    metadata: Any = ocp.PyTreeCheckpointHandler().metadata(state)
    tree = getattr(metadata, 'tree', metadata)
    shapes = {
      name: tuple(leaf.shape)
      for name, leaf in param_tree.flatten_params(tree).items()
      if name.startswith(_TARGET)
    }
  except Exception as error:
    raise _read_error(state, error) from error
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
    params = checkpoint_reader.restore_subtree(state.parent, state.name, item)
  except Exception as error:
    raise _read_error(state, error, name) from error
  return np.asarray(param_tree.flatten_params(params)[name], np.float32)


def _from_msgpack(folder: pathlib.Path) -> list[Tensor]:
  """Finds the parameters of a MessagePack checkpoint."""
  try:
    content = flax.serialization.msgpack_restore(
      (folder / _MSGPACK).read_bytes()
    )
    leaves = dict(_leaves(content['optimizer']['target']))
    return [_tensor(folder, name, leaf) for name, leaf in leaves.items()]
  except errors.XlflaxError:
    raise
  except Exception as error:
    raise _read_error(folder, error) from error


def _leaves(tree, prefix: str = ''):
  """Yields the name and the array, or TensorStore spec, of each parameter."""
  if isinstance(tree, dict) and 'kvstore' not in tree and 'base' not in tree:
    for key, value in tree.items():
      yield from _leaves(value, f'{prefix}{key}/')
  else:
    yield prefix.removesuffix('/'), tree


def _tensor(folder: pathlib.Path, name: str, leaf) -> Tensor:
  """Creates a `Tensor` from an array or from a TensorStore spec."""
  if not isinstance(leaf, dict):
    array = np.asarray(leaf, np.float32)
    return Tensor(name, array.shape, lambda: array)
  while 'base' in leaf:  # Skips drivers that cast values.
    leaf = leaf['base']
  if leaf['driver'] not in _DRIVERS:
    raise ValueError(
      f'Tensor {name} is stored with the driver {leaf["driver"]!r}, which is '
      'not supported'
    )
  # The path at which the array was written, possibly on another file system.
  # Only the last component of the path is used.
  path = leaf['kvstore'].get('path') or leaf['path']
  store = _open(
    leaf['driver'],
    safe_paths.path_inside(folder, path.rstrip('/').split('/')[-1]),
  )

  def read() -> np.ndarray:
    try:
      values = np.asarray(store.read().result()).astype(np.float32)
    except Exception as error:
      raise _read_error(folder, error, name) from error
    nonfinite_checks.check_finite(name, values, where=folder)
    return values

  return Tensor(name, tuple(store.shape), read)


def _open(driver: str, path: pathlib.Path):
  """Opens the array that TensorStore has written to a folder."""
  return tensorstore.open(
    {'driver': driver, 'kvstore': tensorstore_specs.kvstore_spec(f'{path}/')},
    read=True,
    open=True,
  ).result()


def _read_error(where, error: Exception, name: str = '') -> errors.XlflaxError:
  """Returns an error with the first line of a library's message."""
  message = (str(error).strip() or type(error).__name__).splitlines()[0]
  return errors.CheckpointError(
    'The T5X checkpoint cannot be read',
    got=f'{name}: {message}' if name else message,
    where=str(where),
    fix='Copy the checkpoint again, with all of its files.',
  )
