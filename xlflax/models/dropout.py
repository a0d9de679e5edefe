"""Dropout with masks that cost a few integer operations per element.

A mask that is drawn with `jax.random` takes one evaluation of the Threefry
cipher, about a hundred operations, per element. Here, the cipher is evaluated
once per call and yields two words. An integer hash keyed by these words yields
the bits of each element. On a CPU, the mask of this module costs about an
eighth of a mask drawn with `jax.random`, and fuses with the surrounding
operations. In the backward pass, recomputing the mask is cheaper than storing
it.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import custom_vjp

# 2^32 divided by the golden ratio, rounded to an odd number.
_WEYL = np.uint32(0x9E3779B1)


class Dropout(nn.Module):
  """Layer that zeros elements with probability `rate` and scales up the rest.

  Attributes:
    rate: Probability that an element is set to zero.
  """

  rate: float

  @nn.compact
  def __call__(self, inputs: jax.Array, *, deterministic: bool) -> jax.Array:
    """Applies dropout with a key from the random stream 'dropout'.

    Args:
      inputs: Array of any shape.
      deterministic: Whether to disable dropout.

    Returns:
      An array of the shape and dtype of `inputs`.
    """
    if deterministic or not self.rate:
      return inputs
    return apply_dropout(self.make_rng('dropout'), inputs, rate=self.rate)


def apply_dropout(
  key: jax.Array, inputs: jax.Array, *, rate: float
) -> jax.Array:
  """Sets random elements of an array to zero and scales up the rest.

  The choice of elements depends only on the key and the index of an element,
  not on sharding, dtype or device.

  Args:
    key: Random key of any `jax.random` implementation.
    inputs: Array of any shape.
    rate: Probability that an element is set to zero, 0 <= rate < 1.

  Returns:
    An array of the shape and dtype of `inputs`.
  """
  key_words = jax.random.bits(key, (2,), jnp.uint32)
  return _drop(rate, _keep_mask, key_words, inputs)


def drop_weights(
  key: jax.Array, weights: jax.Array, *, rate: float
) -> jax.Array:
  """Applies dropout to attention weights with the mask of the fused kernels.

  The function uses the mask of `attention_keep_mask`, which costs kernels fewer
  operations per weight than the mask of `apply_dropout`.

  Args:
    key: Random key for the dropout mask.
    weights: Attention weights of shape [..., T, S].
    rate: Probability that a weight is set to zero, 0 <= rate < 1.

  Returns:
    An array of the shape and dtype of `weights`.
  """
  key_words = jax.random.bits(key, (2,), jnp.uint32)
  return _drop(rate, attention_keep_mask, key_words, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _drop(
  rate: float, make_mask, key_words: jax.Array, inputs: jax.Array
) -> jax.Array:
  """Applies dropout with the mask make_mask(key_words, shape, rate=rate)."""
  scaled = inputs * jnp.asarray(1 / (1 - rate), inputs.dtype)
  mask = make_mask(key_words, inputs.shape, rate=rate)
  # The zeros are float32: XLA:GPU would read zeros of the dtype of the inputs
  # from memory if the gradient of a gather starts with such zeros.
  return jnp.where(mask, scaled.astype(jnp.float32), 0.0).astype(inputs.dtype)


def _drop_forward(rate, make_mask, key_words, inputs):
  outputs = _drop(rate, make_mask, key_words, inputs)
  return outputs, custom_vjp.prevent_cse(key_words)


def _drop_backward(rate, make_mask, key_words, gradient):
  no_gradient = np.zeros(key_words.shape, jax.dtypes.float0)
  return no_gradient, _drop(rate, make_mask, key_words, gradient)


_drop.defvjp(_drop_forward, _drop_backward)


def keep_threshold(rate: float) -> np.uint32:
  """Returns the uint32 threshold that dropout compares with random bits.

  Elements with random bits below the threshold are dropped.
  """
  return np.uint32(rate * 2**32)


def _keep_mask(key_words, shape, *, rate: float) -> jax.Array:
  """Returns a bool array of the given shape, False for dropped elements."""
  return random_bits(key_words, shape) >= keep_threshold(rate)


def random_bits(key_words: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Returns 32 random bits per element, computed as a keyed hash of its index.

  The hash is two rounds of the mixing function 'lowbias32' (Wellons 2018,
  "Prospecting for hash functions"), with one word of the key before each round.
  For a given key, the hash is a bijection of the index modulo 2^32.

  Args:
    key_words: Key of the hash, uint32 of shape [2].
    shape: Shape of the array of random bits.

  Returns:
    A uint32 array of the shape.
  """
  return _bits(key_words, _indices(shape))


def _bits(key_words: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the hash of each index."""
  return _mix(_mix(index * _WEYL ^ key_words[0]) + key_words[1])


def _indices(shape: tuple[int, ...]) -> jax.Array:
  """Returns each element's index modulo 2^32, uint32 of the given shape."""
  index = jnp.zeros(shape, jnp.uint32)
  stride = 1
  for axis in reversed(range(len(shape))):
    step = np.uint32(stride % 2**32)
    index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * step
    stride *= shape[axis]
  return index


def attention_keep_mask(
  key_words: jax.Array, shape: tuple[int, ...], *, rate: float
) -> jax.Array:
  """Computes a dropout mask for attention weights, False for dropped weights.

  Args:
    key_words: Key of the hash, uint32 of shape [2].
    shape: Shape of the weights, [..., T, S].
    rate: Probability that a weight is dropped.

  Returns:
    A bool array of shape [..., T, S].
  """
  rows = row_bits(key_words, _indices((*shape[:-1], 1)))
  columns = column_bits(key_words, shape[-1])
  columns = columns.reshape((1,) * (len(shape) - 1) + (-1,))
  return pair_keep_mask(rows, columns, rate=rate)


def row_bits(key_words: jax.Array, index: jax.Array) -> jax.Array:
  """Returns a random odd integer per row of attention weights, for dropout.

  Args:
    key_words: Key of the hash, uint32 of shape [2].
    index: Index of each row among all rows of attention weights, uint32 of any
      shape.

  Returns:
    An int32 array with the same shape as `index`.
  """
  bits = _bits(key_words, index)
  return jax.lax.bitcast_convert_type(bits | np.uint32(1), jnp.int32)


def column_bits(key_words: jax.Array, size: int) -> jax.Array:
  """Returns a random odd integer per column of attention weights, for dropout.

  Unlike in `row_bits`, the words of the key are used in reverse order.

  Args:
    key_words: Key of the hash, uint32 of shape [2].
    size: Number of columns of the attention weights.

  Returns:
    An int32 array of shape [size].
  """
  return row_bits(key_words[::-1], _indices((size,)))


def pair_keep_mask(
  row: jax.Array, column: jax.Array, *, rate: float
) -> jax.Array:
  """Computes an attention dropout mask from random numbers per row and column.

  The mask is True for the attention weights that are kept. The mask costs one
  multiplication modulo 2^32 per weight (Dietzfelbinger et al. 1997, "A reliable
  randomized algorithm for the closest-pair problem"). The weights in a row are
  as independent of each other as the numbers of the columns, and the weights in
  a column are as independent as the numbers of the rows. Two rows depend on
  each other only if small multiples of their numbers are equal.

  Args:
    row: Random numbers of the rows, as returned by `row_bits`.
    column: Random numbers of the columns, as returned by `column_bits`. The
      shapes of `row` and `column` must broadcast.
    rate: Probability that a weight is dropped.

  Returns:
    A bool array of the broadcast shape.
  """
  return row * column >= np.int32(int(keep_threshold(rate)) - 2**31)


def _mix(bits: jax.Array) -> jax.Array:
  """Applies the mixing function 'lowbias32' to each element."""
  bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
  bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
  return bits ^ (bits >> 16)
