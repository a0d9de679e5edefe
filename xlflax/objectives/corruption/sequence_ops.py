"""Gather and scatter operations with static shapes on batches of sequences."""

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys


def gather_clipped(array: jax.Array, index: jax.Array) -> jax.Array:
  """Gathers values along each sequence, and clips out-of-range indices.

  Unlike in `masking.gather_rows`, an index may occur more than once.

  Args:
    array: Array of shape [B, N].
    index: Indices to gather within each sequence, an integer array of shape
      [B, K].

  Returns:
    Array of shape [B, K].
  """
  return jax.vmap(lambda row, i: row.at[i].get(mode='clip'))(array, index)


def scatter_add(length: int, index: jax.Array, values: jax.Array) -> jax.Array:
  """Scatters values into an array of zeros by addition.

  Args:
    length: Length of each sequence in the result. Values at indices of `length`
      or more are dropped.
    index: Indices within each sequence, an integer array of shape [B, K].
    values: Values to add at the indices, of shape [B, K].

  Returns:
    int32 array of shape [B, length].
  """
  zeros = jnp.zeros((index.shape[0], length), jnp.int32)
  return jax.vmap(lambda row, i, value: row.at[i].add(value, mode='drop'))(
    zeros, index, values.astype(jnp.int32)
  )


def scatter_set(
  array: jax.Array, index: jax.Array, values: jax.Array
) -> jax.Array:
  """Replaces the values at the given indices of each sequence.

  Args:
    array: Array of shape [B, N] in which values are replaced.
    index: Indices within each sequence, an integer array of shape [B, K].
      Values at indices of N or more are dropped.
    values: New values at the indices, of shape [B, K].

  Returns:
    Array of shape [B, N].
  """
  return jax.vmap(lambda row, i, value: row.at[i].set(value, mode='drop'))(
    array, index, values
  )


def exclusive_sum(array: jax.Array) -> jax.Array:
  """Returns exclusive cumulative sums along each sequence, [B, N]."""
  return jnp.cumsum(array, axis=1) - array


def column_indices(length: int) -> jax.Array:
  """Returns the column indices 0 .. length - 1, int32 [1, length]."""
  return jnp.arange(length, dtype=jnp.int32)[None, :]


def merge_segments(rows):
  """Merges all segments of a sequence into one, and renumbers its positions.

  Before: segment_ids [[1, 1, 2, 0]], positions [[0, 1, 0, 0]]. After:
  [[1, 1, 1, 0]] and [[0, 1, 2, 0]]. Sequences of one segment do not change.
  """
  if batch_keys.SEGMENT_IDS not in rows:
    return rows
  present = (rows[batch_keys.SEGMENT_IDS] > 0).astype(jnp.int32)
  return {
    **rows,
    batch_keys.SEGMENT_IDS: present,
    batch_keys.POSITIONS: column_indices(present.shape[1]) * present,
  }


def make_sequences(
  token_ids: jax.Array, lengths: jax.Array, languages: jax.Array
):
  """Creates a batch of sequences with one segment each.

  The batch contains token ids, segment ids, positions and language ids.

  Args:
    token_ids: Token ids of the sequences, int32 [B, L].
    lengths: Number of tokens in each sequence, int [B]. The remaining positions
      are padding.
    languages: Language id of each sequence, int [B].
  """
  positions = column_indices(token_ids.shape[1])
  present = (positions < lengths[:, None]).astype(jnp.int32)
  return {
    batch_keys.TOKEN_IDS: token_ids.astype(jnp.int32),
    batch_keys.SEGMENT_IDS: present,
    batch_keys.POSITIONS: positions * present,
    batch_keys.LANGUAGE_IDS: languages[:, None] * present,
  }
