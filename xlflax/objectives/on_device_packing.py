"""On-device packing of short texts into sequences with less padding."""

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

# Number of sequences that are packed together. Packing in blocks keeps the
# sequences on their device.
_BLOCK_SIZE = 64
_KEYS = (
  batch_keys.TOKEN_IDS,
  batch_keys.SEGMENT_IDS,
  batch_keys.POSITIONS,
  batch_keys.LANGUAGE_IDS,
  batch_keys.SIDE_IDS,
)
# Length of a packed sequence, unless one text is longer.
_PACKED_LENGTH = 128


class PackedTexts(NamedTuple):
  """Texts of N sequences, packed into R sequences of W tokens.

  Attributes:
    batch: Mapping from batch keys to arrays of the packed sequences, of shape
      [R, W]. Each text is a separate segment whose positions start at 0.
    inside: Boolean array that marks the tokens of each text, of shape
      [blocks, N / blocks, R * W / blocks]. Each block of texts is packed
      separately.
    placed: Boolean array of shape [N], True for texts that were packed. Texts
      that do not fit are not packed.
  """

  batch: Mapping[str, jax.Array]
  inside: jax.Array
  placed: jax.Array

  def pool(
    self, states: jax.Array, pooling: Pooling, vocabulary: VocabularySpec
  ) -> jax.Array:
    """Pools the hidden states of each packed text to a vector.

    Args:
      states: Hidden states of the packed sequences, of shape [R, W, H].
      pooling: Method of pooling the hidden states.
      vocabulary: Vocabulary specification with the special ids.

    Returns:
      float32 array of shape [N, H].
    """
    if pooling is Pooling.MEAN:
      token_mask = masking.is_text(self.batch, vocabulary)
    else:
      token_mask = masking.is_present(self.batch, vocabulary)
    if pooling is Pooling.FIRST:
      token_mask &= self.batch[batch_keys.POSITIONS] == 0
    blocks, _, size = self.inside.shape
    weights = self.inside & token_mask.reshape(blocks, 1, size)
    total = jnp.einsum(
      'bnt,bth->bnh',
      weights.astype(jnp.float32),
      states.reshape(blocks, size, -1).astype(jnp.float32),
      precision=jax.lax.Precision.HIGHEST,
    )
    count = jnp.sum(weights, axis=2)[..., None]
    return (total / jnp.maximum(count, 1)).reshape(-1, states.shape[-1])


def pack_sequences(
  batch: Mapping[str, jax.Array],
  vocabulary: VocabularySpec,
  *,
  share: float,
  longest: int,
) -> PackedTexts:
  """Packs the texts of a batch with the first-fit decreasing algorithm.

  Args:
    batch: Mapping from batch keys to arrays of the texts, of shape [N, T], as
      created by `supervised.featurizers.text_fields`.
    vocabulary: Vocabulary specification with the padding id.
    share: Size of the packed sequences in tokens, relative to the N * T tokens
      of the batch.
    longest: Maximum sequence length of the model, at least T.
  """
  count, length = batch[batch_keys.TOKEN_IDS].shape
  block_size = math.gcd(count, _BLOCK_SIZE)
  width = length * max(1, min(_PACKED_LENGTH, longest) // length)
  rows = math.ceil(share * block_size * length / width)
  pack_block = functools.partial(
    _pack_block, shape=(rows, width), pad_id=vocabulary.pad_id
  )
  blocks = {
    key: batch[key].reshape(-1, block_size, length)
    for key in _KEYS
    if key in batch
  }
  packed, inside, placed = jax.vmap(pack_block)(blocks)
  packed_batch = {key: x.reshape(-1, width) for key, x in packed.items()}
  return PackedTexts(packed_batch, inside, placed.reshape(-1))


def _pack_block(batch, *, shape: tuple[int, int], pad_id: int):
  """Packs one block of sequences.

  Args:
    batch: Mapping from batch keys to arrays of the block's texts, of shape
      [N, T].
    shape: Shape (R, W) of the packed sequences.
    pad_id: Padding id.

  Returns:
    The packed arrays of shape [R * W], and the fields `inside` and `placed` of
    `PackedTexts`.
  """
  lengths = jnp.sum(batch[batch_keys.SEGMENT_IDS] > 0, axis=1)
  starts = _first_fit(lengths, *shape)
  placed = starts >= 0
  offsets = jnp.arange(math.prod(shape))[None] - starts[:, None]
  inside = placed[:, None] & (offsets >= 0) & (offsets < lengths[:, None])
  filled = jnp.any(inside, axis=0)
  text = jnp.argmax(inside, axis=0)
  source_position = jnp.take_along_axis(offsets, text[None], axis=0)[0]
  padding = {batch_keys.TOKEN_IDS: pad_id}
  packed = {
    key: jnp.where(filled, rows[text, source_position], padding.get(key, 0))
    for key, rows in batch.items()
  }
  packed[batch_keys.SEGMENT_IDS] = jnp.where(filled, text + 1, 0)
  return packed, inside, placed


def _first_fit(lengths: jax.Array, rows: int, width: int) -> jax.Array:
  """Assigns texts to sequences, longest first, by first fit.

  Args:
    lengths: Number of tokens of each text, of shape [N].
    rows: Number of packed sequences to create.
    width: Number of tokens in a packed sequence.

  Returns:
    Index of each text's first token in the flattened sequences, of shape [N].
    It is -1 for texts that do not fit.
  """

  def place(free, length):
    fits = free >= length
    row = jnp.argmax(fits)
    start = jnp.where(fits[row], (row + 1) * width - free[row], -1)
    return free.at[row].add(jnp.where(fits[row], -length, 0)), start

  order = jnp.argsort(-lengths)
  _, starts = jax.lax.scan(place, jnp.full(rows, width), lengths[order])
  return starts[jnp.argsort(order)]
