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

from xlflax.models import custom_vjp

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
    return apply_dropout(self.make_rng('dropout'), inputs, rate=self.rate)


def apply_dropout(
  key: jax.Array, inputs: jax.Array, *, rate: float
) -> jax.Array:
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
  key_words = jax.random.bits(key, (2,), jnp.uint32)
  return _drop(rate, _kept, key_words, inputs)


def drop_weights(
  key: jax.Array, weights: jax.Array, *, rate: float
) -> jax.Array:
  """`apply_dropout` of attention's weights [..., T, S], kept as `weights_kept` says.

  Fused kernels drop the same, for fewer operations per weight.
  """
  key_words = jax.random.bits(key, (2,), jnp.uint32)
  return _drop(rate, weights_kept, key_words, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _drop(rate: float, kept, words: jax.Array, inputs: jax.Array) -> jax.Array:
  scaled = inputs * jnp.asarray(1 / (1 - rate), inputs.dtype)
  where = kept(words, inputs.shape, rate=rate)
  # XLA:GPU would read zeros of the inputs' dtype from memory, where a gather's
  # gradient begins with such zeros.
  return jnp.where(where, scaled.astype(jnp.float32), 0.0).astype(inputs.dtype)


def _drop_forward(rate, kept, words, inputs):
  return _drop(rate, kept, words, inputs), custom_vjp.prevent_cse(words)


def _drop_backward(rate, kept, words, gradient):
  no_gradient = np.zeros(words.shape, jax.dtypes.float0)
  return no_gradient, _drop(rate, kept, words, gradient)


_drop.defvjp(_drop_forward, _drop_backward)


def keep_threshold(rate: float) -> np.uint32:
  """Returns the least random bits of an element that is kept."""
  return np.uint32(rate * 2**32)


def _kept(words, shape, *, rate: float) -> jax.Array:
  return random_bits(words, shape) >= keep_threshold(rate)


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
  return _bits(words, _indices(shape))


def _bits(words: jax.Array, index: jax.Array) -> jax.Array:
  return _mix(_mix(index * _WEYL ^ words[0]) + words[1])


def _indices(shape: tuple[int, ...]) -> jax.Array:
  index = jnp.zeros(shape, jnp.uint32)
  stride = 1
  for axis in reversed(range(len(shape))):
    step = np.uint32(stride % 2**32)
    index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * step
    stride *= shape[axis]
  return index


def weights_kept(
  words: jax.Array, shape: tuple[int, ...], *, rate: float
) -> jax.Array:
  """Which weights of attention are kept, bool [..., T, S].

  Args:
    words: uint32 [2], the key.
    shape: of the weights.
    rate: probability to be dropped.
  """
  rows = row_bits(words, _indices((*shape[:-1], 1)))
  columns = column_bits(words, shape[-1])
  columns = columns.reshape((1,) * (len(shape) - 1) + (-1,))
  return pair_kept(rows, columns, rate=rate)


def row_bits(words: jax.Array, index: jax.Array) -> jax.Array:
  """Odd random numbers of rows of weights, int32 of the shape of `index`.

  Args:
    words: uint32 [2], the key.
    index: uint32, of each row among all.
  """
  bits = _bits(words, index)
  return jax.lax.bitcast_convert_type(bits | np.uint32(1), jnp.int32)


def column_bits(words: jax.Array, size: int) -> jax.Array:
  """int32 [size]: likewise of columns, under the words' other order."""
  return row_bits(words[::-1], _indices((size,)))


def pair_kept(row: jax.Array, column: jax.Array, *, rate: float) -> jax.Array:
  """Whether dropout keeps the weight of a row and a column, bool.

  One product modulo 2^32 (Dietzfelbinger et al. 1997, "A reliable randomized
  algorithm for the closest-pair problem"): the weights of a row are as
  independent as its columns' numbers, those of a column as its rows', and two
  rows depend on each other only where small multiples of their numbers are the
  same.

  Args:
    row: of `row_bits`.
    column: of `column_bits`; the shapes broadcast.
    rate: probability to be dropped.
  """
  return row * column >= np.int32(int(keep_threshold(rate)) - 2**31)


def _mix(bits: jax.Array) -> jax.Array:
  bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
  bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
  return bits ^ (bits >> 16)
