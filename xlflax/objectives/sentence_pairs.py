"""Batches whose pairs have two rows: `Layout.SIDES` and `Layout.ADJACENT`."""

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors

_Side = dict[str, jax.Array]


def split_sides(batch, *, objective: str) -> tuple[_Side, _Side]:
  """Returns the two sides of a batch, each with the keys of one row.

  Raises:
    ConfigError: the batch has one side only.
  """
  first, second = (
    batch_keys.select_side(batch, prefix) for prefix in ('', batch_keys.PAIRED)
  )
  if not second:
    raise errors.ConfigError(
      'An objective needs the two sides of a pair as separate rows',
      got=f'a batch with {sorted(batch)}',
      expected=f'also {batch_keys.PAIRED}{batch_keys.TOKEN_IDS}',
      where=f'objective {objective!r}',
      fix='use a stream with Layout.SIDES or Layout.ADJACENT',
    )
  return first, second


def encoding_parts(model, batch) -> list[_Side]:
  """Splits a batch into the parts that are encoded one after the other.

  A one-sided batch is one part; the two sides of pairs are one part of 2B
  rows, or two parts if a sharing plan binds parameters side by side.
  """
  first, second = (
    batch_keys.select_side(batch, prefix) for prefix in ('', batch_keys.PAIRED)
  )
  if not second:
    return [first]
  if parameter_sharing.plan_of(model) is not None:
    return [first, second]
  return [interleave_sides(first, second)]


def split_keys(rng: jax.Array, parts: list) -> list[jax.Array]:
  """Returns a key for each of `parts`; for one part it is `rng` itself."""
  return [rng] if len(parts) == 1 else list(jax.random.split(rng, len(parts)))


def interleave_sides(first: _Side, second: _Side) -> _Side:
  """Puts both sides in one batch: rows 2b and 2b + 1 are the sides of pair b.

  Unlike a concatenation, it moves no row to another device.

  Before: `{'token_ids': [a, b]}` and `{'token_ids': [c, d]}`; after:
  `{'token_ids': [a, c, b, d]}`.
  """
  return {
    key: jnp.stack([first[key], second[key]], axis=1).reshape(
      (-1,) + first[key].shape[1:]
    )
    for key in first
    if key in second
  }


def swap_sides(rows: jax.Array) -> jax.Array:
  """Exchanges the sides of interleaved rows: [a, c, b, d] -> [c, a, d, b]."""
  pairs = rows.reshape(-1, 2, *rows.shape[1:])
  return pairs[:, ::-1].reshape(rows.shape)
