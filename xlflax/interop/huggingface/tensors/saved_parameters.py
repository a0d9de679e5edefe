"""A checkpoint's parameters, read one at a time."""

import pathlib
from typing import Any

import jax
import numpy as np

from xlflax.training import finite_values
from xlflax.training import params as params_lib
from xlflax.training.checkpointing import saved_checkpoints


class Reader:
  """Reads parameters by name; running averages, if the run keeps them.

  Attributes:
    shapes: of the parameters, by name.
  """

  def __init__(self, checkpoint: pathlib.Path):
    self._checkpoint = checkpoint
    self.shapes = saved_checkpoints.saved_shapes(checkpoint)
    self._averaged = any(
      name.startswith('ema/')
      for name in saved_checkpoints.saved_shapes(checkpoint, 'train')
    )

  def verify(self) -> None:
    """Raises CheckpointError if the files have changed."""
    item = 'train' if self._averaged else 'params'
    saved_checkpoints.verify(self._checkpoint, item)

  def __call__(self, parameter: str) -> np.ndarray:
    """The values; raises CheckpointError if one is not finite."""
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shape = self.shapes[parameter]
    leaf = jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding)
    name = f'ema/{parameter}' if self._averaged else parameter
    found: Any = saved_checkpoints.read_part(
      self._checkpoint,
      'train' if self._averaged else 'params',
      params_lib.nest({name: leaf}),
    )
    (value,) = jax.tree.leaves(found)
    values = np.asarray(value)
    finite_values.check(parameter, values, where=self._checkpoint)
    return values
