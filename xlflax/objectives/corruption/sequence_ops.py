"""Rows rewritten on the device: gathers and marks with static shapes."""

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys


def gather_clipped(array: jax.Array, index: jax.Array) -> jax.Array:
  """Returns `array [B, N]` at `index [B, K]`, clipped to the row.

  Unlike in `masking.gather_rows`, an index may occur more than once.
  """
  return jax.vmap(lambda row, i: row.at[i].get(mode='clip'))(array, index)


def scatter_add(length: int, index: jax.Array, values: jax.Array) -> jax.Array:
  """Adds `values [B, K]` at `index [B, K]`: int32 [B, length].

  Values beyond the row are dropped (use `length` to drop a value).
  """
  zeros = jnp.zeros((index.shape[0], length), jnp.int32)
  return jax.vmap(lambda row, i, value: row.at[i].add(value, mode='drop'))(
    zeros, index, values.astype(jnp.int32)
  )


def scatter_set(
  array: jax.Array, index: jax.Array, values: jax.Array
) -> jax.Array:
  """Puts `values [B, K]` at `index` of `array [B, N]`; drops those beyond."""
  return jax.vmap(lambda row, i, value: row.at[i].set(value, mode='drop'))(
    array, index, values
  )


def exclusive_sum(array: jax.Array) -> jax.Array:
  """Sums the values before each position of a row: [B, N] -> [B, N]."""
  return jnp.cumsum(array, axis=1) - array


def column_indices(length: int) -> jax.Array:
  """Returns 0 .. length - 1, int32 [1, length]."""
  return jnp.arange(length, dtype=jnp.int32)[None, :]


def one_text(rows):
  """Merges the segments of rows into one, with running positions.

  Before: segment_ids [[1, 1, 2, 0]], positions [[0, 1, 0, 0]]; after:
  [[1, 1, 1, 0]] and [[0, 1, 2, 0]]. Rows of one segment do not change.
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
  """Makes rows of one segment each, as `xlflax.data.batch_keys` documents them.

  Args:
    token_ids: int32 [B, L].
    lengths: int [B], tokens of each row; the rest is padding.
    languages: int [B].
  """
  places = column_indices(token_ids.shape[1])
  present = (places < lengths[:, None]).astype(jnp.int32)
  return {
    batch_keys.TOKEN_IDS: token_ids.astype(jnp.int32),
    batch_keys.SEGMENT_IDS: present,
    batch_keys.POSITIONS: places * present,
    batch_keys.LANGUAGE_IDS: languages[:, None] * present,
  }
