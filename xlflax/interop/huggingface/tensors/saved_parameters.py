"""A checkpoint's parameters, read one at a time."""

import pathlib
from typing import Any

import numpy as np
import tensorstore

from xlflax.storage import paths, tensorstore_specs
from xlflax.training import nonfinite_checks
from xlflax.training.checkpointing import checkpoint_reader

_PIECE = 1 << 26  # bytes of an array that are read at once


class Reader:
  """Reads parameters by name; running averages, if the run keeps them.

  Attributes:
    shapes: of the parameters, by name.
  """

  def __init__(self, checkpoint: pathlib.Path):
    self._checkpoint = checkpoint
    self.shapes = checkpoint_reader.saved_shapes(checkpoint)
    self._averaged = any(
      name.startswith('ema/')
      for name in checkpoint_reader.saved_shapes(checkpoint, 'train')
    )

  def verify(self) -> None:
    """Raises CheckpointError if the files have changed."""
    checkpoint_reader.verify_checkpoint(self._checkpoint, self._item)

  def __call__(
    self, parameter: str, rows: np.ndarray | None = None
  ) -> np.ndarray:
    """The values, or some rows; CheckpointError if one is not finite."""
    name = f'ema/{parameter}' if self._averaged else parameter
    values = _read(self._stored(name), rows)
    nonfinite_checks.check_finite(parameter, values, where=self._checkpoint)
    return values

  @property
  def _item(self) -> str:
    return 'train' if self._averaged else 'params'

  def _stored(self, name: str) -> Any:
    """The array as it is stored, where parts of it can be read."""
    return tensorstore.open(
      {
        'driver': 'zarr',
        'kvstore': {
          'driver': 'ocdbt',
          'base': tensorstore_specs.kvstore_spec(
            f'{paths.to_absolute_path(self._checkpoint)}/{self._item}/'
          ),
          'path': name.replace('/', '.') + '/',
        },
      },
      read=True,
      open=True,
    ).result()


def _read(stored: Any, rows: np.ndarray | None) -> np.ndarray:
  """An array, or rows of it, float32; a piece of the file at a time."""
  if rows is not None:
    return np.asarray(stored[rows].read().result(), np.float32)
  length = stored.shape[0] if stored.shape else 0
  piece = (stored.chunk_layout.read_chunk.shape or (0,))[0]
  if not 0 < piece < length:
    return np.asarray(stored.read().result(), np.float32)
  row = stored.dtype.numpy_dtype.itemsize * stored[0].size
  piece *= max(1, _PIECE // (piece * row))  # chunks can be of few rows
  values = np.empty(stored.shape, np.float32)
  for start in range(0, length, piece):
    part = slice(start, min(start + piece, length))
    values[part] = stored[part].read().result()
  return values
