"""Dropout whose mask costs a few integer operations per element.

The usual mask takes one evaluation of the Threefry cipher, about a hundred
operations, per element. Here the cipher gives two words per call, and an
integer hash keyed by them gives the bits of each element, so that a mask
costs about an eighth on a CPU, fuses into the operations around it, and is
cheaper to compute again in the backward pass than to keep.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import recompute

_WEYL = np.uint32(0x9E3779B1)  # 2^32 / golden ratio, made odd


class Dropout(nn.Module):
  """Sets elements to zero with probability `rate` and scales up the rest.

  Attributes:
    rate: probability of an element to be dropped.
  """

  rate: float

  @nn.compact
  def __call__(self, inputs: jax.Array, *, deterministic: bool) -> jax.Array:
    """Same shape and dtype as `inputs`; draws from the stream 'dropout'."""
    if deterministic or not self.rate:
      return inputs
    return drop(self.make_rng('dropout'), inputs, rate=self.rate)


def drop(key: jax.Array, inputs: jax.Array, *, rate: float) -> jax.Array:
  """Sets random elements of `inputs` to zero and scales up the others.

  The choice depends only on the key and the element's index, not on sharding,
  dtype or device.

  Args:
    key: a key of any kind that `jax.random` has.
    inputs: any shape.
    rate: probability of zero, 0 <= rate < 1.

  Returns:
    Same shape and dtype as `inputs`.
  """
  words = jax.random.bits(key, (2,), jnp.uint32)
  return _drop(rate, random_bits, words, inputs)


def drop_weights(
  key: jax.Array, weights: jax.Array, *, rate: float
) -> jax.Array:
  """`drop` of attention's weights [..., T, S], by the bits of `weight_bits`.

  Fused kernels drop the same, for fewer operations per weight.
  """
  words = jax.random.bits(key, (2,), jnp.uint32)
  return _drop(rate, weight_bits, words, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _drop(rate: float, bits, words: jax.Array, inputs: jax.Array) -> jax.Array:
  kept = bits(words, inputs.shape) >= threshold(rate)
  scaled = inputs * jnp.asarray(1 / (1 - rate), inputs.dtype)
  return jnp.where(kept, scaled, jnp.zeros_like(inputs))


def _drop_forward(rate, bits, words, inputs):
  return _drop(rate, bits, words, inputs), recompute.distinct(words)


def _drop_backward(rate, bits, words, gradient):
  no_gradient = np.zeros(words.shape, jax.dtypes.float0)
  return no_gradient, _drop(rate, bits, words, gradient)


_drop.defvjp(_drop_forward, _drop_backward)


def threshold(rate: float) -> np.uint32:
  """Returns the least random bits of an element that is kept."""
  return np.uint32(rate * 2**32)


def random_bits(words: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """32 random bits per element: a keyed hash of its index.

  Two rounds of the mixing function 'lowbias32' (Wellons 2018, "Prospecting
  for hash functions"), with one word of the key before each. For one key it
  is a bijection of the index, which counts modulo 2^32.

  Args:
    words: uint32 [2], the key.
    shape: of the result.

  Returns:
    uint32 of the shape.
  """
  index = jnp.zeros(shape, jnp.uint32)
  stride = 1
  for axis in reversed(range(len(shape))):
    step = np.uint32(stride % 2**32)
    index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * step
    stride *= shape[axis]
  return bits_of_index(words, index)


def bits_of_index(words: jax.Array, index: jax.Array) -> jax.Array:
  """The bits that `random_bits` gives to the elements of some indices."""
  return _mix(_mix(index * _WEYL ^ words[0]) + words[1])


def weight_bits(words: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """32 random bits for each weight of attention, uint32 [..., T, S].

  A row's bits and a column's, each a full hash of its index, and one
  multiplicative mixing of the two for each weight.
  """
  rows = random_bits(words, (*shape[:-1], 1))
  columns = column_bits(words, shape[-1])
  return bits_of_pair(rows, columns.reshape((1,) * (len(shape) - 1) + (-1,)))


def column_bits(words: jax.Array, size: int) -> jax.Array:
  """uint32 [size]: the bits of columns, under the words' other order."""
  return random_bits(words[::-1], (size,))


def bits_of_pair(row: jax.Array, column: jax.Array) -> jax.Array:
  """Mixes bits of a row and of a column, uint32 of shapes that broadcast.

  It is the mixing function without its last step, which leaves the upper half
  of the bits alone.
  """
  bits = row ^ column
  bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
  return (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)


def _mix(bits: jax.Array) -> jax.Array:
  bits = bits_of_pair(bits, jnp.uint32(0))
  return bits ^ (bits >> 16)
