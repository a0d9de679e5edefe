"""Reader that loads a checkpoint's parameters one at a time."""

import pathlib
from typing import Any

import numpy as np
import tensorstore

from xlflax.storage import paths, tensorstore_specs
from xlflax.training import nonfinite_checks
from xlflax.training.checkpointing import checkpoint_items, checkpoint_reader

_BLOCK_BYTES = 1 << 26  # Number of bytes of an array that are read at once.


class Reader:
  """Reader that loads single parameters of a checkpoint by name.

  If the run maintains an exponential moving average of the parameters, the
  average is read.

  Attributes:
    shapes: Mapping from the name of each parameter to its shape.
  """

  def __init__(self, checkpoint: pathlib.Path):
    self._checkpoint = checkpoint
    self.shapes = checkpoint_reader.saved_shapes(checkpoint)
    self._averaged = any(
      name.startswith('ema/')
      for name in checkpoint_reader.saved_shapes(checkpoint, 'train')
    )

  def verify(self) -> None:
    """Checks that the checkpoint's files have not changed.

    Raises:
      CheckpointError: If a file has changed since the checkpoint was written.
    """
    checkpoint_reader.verify_checkpoint(
      self._checkpoint, 'train' if self._averaged else 'params'
    )

  def __call__(
    self, parameter: str, rows: np.ndarray | None = None
  ) -> np.ndarray:
    """Reads a parameter.

    Args:
      parameter: Name of the parameter.
      rows: Indices of the table rows to read. If None, all rows are read.

    Returns:
      The values as float32.

    Raises:
      CheckpointError: If the parameter contains NaN or infinity.
    """
    if self._averaged:
      array = self._open('train', f'ema/{parameter}')
    else:
      item = checkpoint_items.item_of(self._checkpoint, parameter)
      array = self._open(item, parameter)
    values = _read(array, rows)
    nonfinite_checks.check_finite(parameter, values, where=self._checkpoint)
    return values

  def _open(self, item: str, name: str) -> Any:
    """Opens the stored array, so that slices of it can be read."""
    return tensorstore.open(
      {
        'driver': 'zarr',
        'kvstore': {
          'driver': 'ocdbt',
          'base': tensorstore_specs.kvstore_spec(
            f'{paths.to_absolute_path(self._checkpoint)}/{item}/'
          ),
          'path': name.replace('/', '.') + '/',
        },
      },
      read=True,
      open=True,
    ).result()


def _read(stored: Any, rows: np.ndarray | None) -> np.ndarray:
  """Reads an array or some of its rows as float32, block by block."""
  if rows is not None:
    return np.asarray(stored[rows].read().result(), np.float32)
  num_rows = stored.shape[0] if stored.shape else 0
  chunk_rows = (stored.chunk_layout.read_chunk.shape or (0,))[0]
  if not 0 < chunk_rows < num_rows:
    return np.asarray(stored.read().result(), np.float32)

  # A chunk can consist of few rows, so a block consists of several chunks.
  row_bytes = stored.dtype.numpy_dtype.itemsize * stored[0].size
  chunks_per_block = max(1, _BLOCK_BYTES // (chunk_rows * row_bytes))
  block_rows = chunk_rows * chunks_per_block
  values = np.empty(stored.shape, np.float32)
  for start in range(0, num_rows, block_rows):
    block = slice(start, min(start + block_rows, num_rows))
    values[block] = stored[block].read().result()
  return values
