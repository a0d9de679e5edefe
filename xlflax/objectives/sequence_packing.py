"""Short texts share rows: fewer tokens are padding, on the device."""

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives.corruption import masking
from xlflax.objectives.model_calls import Pooling

_TOGETHER = 64  # rows that are packed with each other: a device's own ones
_KEYS = (
  batch_keys.TOKEN_IDS,
  batch_keys.SEGMENT_IDS,
  batch_keys.POSITIONS,
  batch_keys.LANGUAGE_IDS,
  batch_keys.SIDE_IDS,
)
_WIDTH = 128  # tokens of a packed row, or of one text that is longer


class Packed(NamedTuple):
  """Texts of N rows, one after the other in fewer and wider ones.

  Attributes:
    batch: arrays [R, W]; a text is a segment, and its positions are its own.
    inside: bool [blocks, N / blocks, R * W / blocks], where a text stands.
    placed: bool [N], texts that had room.
  """

  batch: Mapping[str, jax.Array]
  inside: jax.Array
  placed: jax.Array

  def pool(
    self, states: jax.Array, pooling: Pooling, vocabulary: VocabularySpec
  ) -> jax.Array:
    """Pools states [R, W, H] of the batch to float32 [N, H]; see `inputs`."""
    of_text = pooling is Pooling.MEAN
    is_counted = masking.is_text if of_text else masking.is_present
    counted = is_counted(self.batch, vocabulary)
    if pooling is Pooling.FIRST:
      counted &= self.batch[batch_keys.POSITIONS] == 0
    blocks, _, size = self.inside.shape
    weights = self.inside & counted.reshape(blocks, 1, size)
    total = jnp.einsum(
      'bnt,bth->bnh',
      weights.astype(jnp.float32),
      states.reshape(blocks, size, -1).astype(jnp.float32),
      precision=jax.lax.Precision.HIGHEST,
    )
    number = jnp.sum(weights, axis=2)[..., None]
    return (total / jnp.maximum(number, 1)).reshape(-1, states.shape[-1])


def pack_sequences(
  batch: Mapping[str, jax.Array],
  vocabulary: VocabularySpec,
  *,
  share: float,
  longest: int,
) -> Packed:
  """Packs the texts of a batch, the longest first, each where it fits first.

  Args:
    batch: arrays [N, T] of `supervised.featurizers.text_fields`.
    vocabulary: has the id of padding.
    share: tokens of the packed rows, of N * T.
    longest: row that the model reads; T fits.
  """
  count, length = batch[batch_keys.TOKEN_IDS].shape
  together = math.gcd(count, _TOGETHER)
  width = length * max(1, min(_WIDTH, longest) // length)
  rows = math.ceil(share * together * length / width)
  block = functools.partial(
    _block, shape=(rows, width), pad_id=vocabulary.pad_id
  )
  blocks = {
    key: batch[key].reshape(-1, together, length)
    for key in _KEYS
    if key in batch
  }
  packed, inside, placed = jax.vmap(block)(blocks)
  wide = {key: x.reshape(-1, width) for key, x in packed.items()}
  return Packed(wide, inside, placed.reshape(-1))


def _block(batch, *, shape: tuple[int, int], pad_id: int):
  """Packs rows [N, T]: arrays [R * W], `inside` and `placed`."""
  lengths = jnp.sum(batch[batch_keys.SEGMENT_IDS] > 0, axis=1)
  starts = _starts(lengths, *shape)
  placed = starts >= 0
  at = jnp.arange(math.prod(shape))[None] - starts[:, None]
  inside = placed[:, None] & (at >= 0) & (at < lengths[:, None])
  filled, text = jnp.any(inside, axis=0), jnp.argmax(inside, axis=0)
  source_position = jnp.take_along_axis(at, text[None], axis=0)[0]
  padding = {batch_keys.TOKEN_IDS: pad_id}
  packed = {
    key: jnp.where(filled, rows[text, source_position], padding.get(key, 0))
    for key, rows in batch.items()
  }
  packed[batch_keys.SEGMENT_IDS] = jnp.where(filled, text + 1, 0)
  return packed, inside, placed


def _starts(lengths: jax.Array, rows: int, width: int) -> jax.Array:
  """Where each text begins in rows that follow each other; -1: no room."""

  def place(free, length):
    fits = free >= length
    row = jnp.argmax(fits)
    start = jnp.where(fits[row], (row + 1) * width - free[row], -1)
    return free.at[row].add(jnp.where(fits[row], -length, 0)), start

  order = jnp.argsort(-lengths)
  _, starts = jax.lax.scan(place, jnp.full(rows, width), lengths[order])
  return starts[jnp.argsort(order)]
