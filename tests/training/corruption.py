"""Simulated hardware faults: flipped bits."""

import jax
import jax.numpy as jnp
import numpy as np


def flip_bit(array, position=(), bit: int = 0) -> jax.Array:
  """Returns the array with one flipped bit."""
  values = np.array(array)
  if values.dtype == np.bool_:
    values[position] = ~values[position]
    return jnp.asarray(values)
  unsigned = np.dtype(f'uint{8 * values.dtype.itemsize}')
  bit_words = values.view(unsigned)
  bit_words[position] ^= unsigned.type(1 << bit)
  return jnp.asarray(bit_words.view(values.dtype))


def on_device(array: jax.Array, device, *, bit: int = 0) -> jax.Array:
  """Returns the array with a flipped bit in one device's buffer.

  Other processes call it with the same arguments or leave it out: an array
  is only a handle of the buffers of its own process.
  """
  parts = []
  for shard in array.addressable_shards:
    part = np.asarray(shard.data)
    if shard.device == device:
      part = np.asarray(flip_bit(part, (0,) * part.ndim, bit))
    parts.append(jax.device_put(part, shard.device))
  return jax.make_array_from_single_device_arrays(
    array.shape, array.sharding, parts
  )
