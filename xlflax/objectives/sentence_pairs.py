"""Operations on batches that store a pair's texts as separate sequences.

The layouts `ExampleLayout.DUAL` and `ExampleLayout.INTERLEAVED` create such
batches.
"""

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors

_Side = dict[str, jax.Array]


def split_sides(batch, *, objective: str) -> tuple[_Side, _Side]:
  """Splits a batch of pairs into the first and the second texts.

  Args:
    batch: Mapping from batch keys to arrays of a batch, which contains both
      texts of each pair.
    objective: Name of the objective, for error messages.

  Returns:
    Two batches of single sequences, with the first and the second texts.

  Raises:
    ConfigError: If the batch does not contain the second texts of the pairs.
  """
  first, second = (
    batch_keys.select_side(batch, prefix) for prefix in ('', batch_keys.PAIRED)
  )
  if not second:
    required_key = batch_keys.PAIRED + batch_keys.TOKEN_IDS
    raise errors.ConfigError(
      f'Objective {objective!r} requires the two texts of a pair as separate '
      f'sequences. The batch must contain {required_key}, but it contains only '
      f'the keys {sorted(batch)}',
      fix='Use a dataset with ExampleLayout.DUAL or ExampleLayout.INTERLEAVED.',
    )
  return first, second


def encoding_parts(model, batch) -> list[_Side]:
  """Splits a batch into sub-batches that are encoded separately.

  A batch of single sequences is not split. The two texts of B pairs are merged
  into one batch of 2B sequences. If a sharing plan selects parameters by
  language, the first and the second texts are separate batches.
  """
  first, second = (
    batch_keys.select_side(batch, prefix) for prefix in ('', batch_keys.PAIRED)
  )
  if not second:
    return [first]
  if parameter_sharing.get_sharing_plan(model) is not None:
    return [first, second]
  return [interleave_sides(first, second)]


def split_keys(rng: jax.Array, parts: list) -> list[jax.Array]:
  """Returns one random key for each sub-batch.

  A single sub-batch receives `rng` itself.
  """
  return [rng] if len(parts) == 1 else list(jax.random.split(rng, len(parts)))


def interleave_sides(first: _Side, second: _Side) -> _Side:
  """Merges both texts of B pairs into one batch of 2B sequences.

  Sequences 2b and 2b + 1 are the texts of pair b. Unlike concatenation,
  interleaving does not move sequences between devices.

  Before: `{'token_ids': [a, b]}` and `{'token_ids': [c, d]}`. After:
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
  """Swaps the texts of interleaved pairs: [a, c, b, d] becomes [c, a, d, b]."""
  pairs = rows.reshape(-1, 2, *rows.shape[1:])
  return pairs[:, ::-1].reshape(rows.shape)
