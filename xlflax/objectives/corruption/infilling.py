"""Text infilling and sentence permutation (BART, Lewis et al. 2020; mBART).

A policy draws spans of words, and `apply_infilling` replaces each span by one
mask symbol. All functions run on the device with static shapes.
"""

import dataclasses
import math
from typing import Annotated, NamedTuple

import annotated_types
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives.corruption import masking, sequence_ops
from xlflax.utils import validation


class WordSpans(NamedTuple):
  """Word spans to replace by masks in each sequence.

  A sequence consists of gaps[0] words, spans[0] words, gaps[1] words, spans[1]
  words, and so on, and the remaining words.

  Attributes:
    gaps: Number of unmasked words between each span and the preceding span,
      int32 [B, K].
    spans: Number of words in each span, int32 [B, K]. A span of 0 words inserts
      a mask symbol.
    used: Boolean array of shape [B, K], True for slots that contain a span.
  """

  gaps: jax.Array
  spans: jax.Array
  used: jax.Array


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class InfillingPolicy:
  """Policy that draws word spans with Poisson-distributed lengths.

  Of w words, m = round(mask_ratio * w) are masked, at least one. Lengths are
  drawn until their sum reaches m, and the last length is cut to fit. A span of
  length 0 inserts a mask. In a sequence that has more spans than masked words,
  spans of length 0 are left out, which prevents the sequence from growing. The
  positions of the spans are uniformly distributed, and spans do not overlap.

  Attributes:
    mask_ratio: Fraction of words to mask, in (0, 1] (mBART: 0.35).
    poisson_lambda: Mean length of a span in words, at least 1 (mBART: 3.5).
  """

  mask_ratio: validation.PositiveFraction = 0.35
  poisson_lambda: Annotated[float, annotated_types.Interval(ge=1, le=100)] = 3.5

  def num_slots(self, length: int) -> int:
    """Returns K, the maximum number of masked spans in `length` words.

    The probability that a sequence needs more lengths to mask m words is below
    10^-9. In that case, the last span is longer, so that m words are always
    masked.
    """
    masked = math.ceil(self.mask_ratio * length)
    draws = (masked + 6.5 * math.sqrt(masked) + 20) / self.poisson_lambda
    return math.ceil(draws) + 1

  def __call__(
    self, rng: jax.Array, words: jax.Array, length: int
  ) -> WordSpans:
    """Draws the word spans to mask in each sequence.

    Args:
      rng: Random key.
      words: Number of words in each sequence, int [B].
      length: Maximum number of words in a sequence.

    Returns:
      Spans with K = `num_slots(length)` slots.
    """
    length_rng, position_rng = jax.random.split(rng)
    slots = self.num_slots(length)
    num_to_mask = jnp.floor(self.mask_ratio * words.astype(jnp.float32) + 0.5)
    num_to_mask = jnp.minimum(
      jnp.maximum(num_to_mask.astype(jnp.int32), 1), words
    )
    spans, used = self._draw_lengths(length_rng, num_to_mask, slots)

    # Each span counts as one position among the unmasked words.
    count = jnp.sum(used, axis=1, dtype=jnp.int32)
    width = length + slots
    positions = jnp.broadcast_to(
      sequence_ops.column_indices(width), (words.shape[0], width)
    )
    order = masking.random_order(
      position_rng, positions < (words - num_to_mask + count)[:, None]
    )[:, :slots]
    slot = sequence_ops.column_indices(slots)
    span_positions = jnp.sort(
      jnp.where(slot < count[:, None], order, width), axis=1
    )
    gaps = jnp.diff(
      span_positions - slot,
      axis=1,
      prepend=jnp.zeros_like(span_positions[:, :1]),
    )

    spans, used = _move_to_front(spans, used)
    return WordSpans(jnp.where(used, gaps, 0), spans, used)

  def _draw_lengths(self, rng, num_to_mask, slots: int):
    """Draws span lengths that add up to `num_to_mask`, of shape [B].

    Returns:
      The lengths, int32 [B, slots], and a boolean array of shape [B, slots],
      which is True for slots that contain a span.
    """
    draw = jax.random.uniform(rng, (num_to_mask.shape[0], slots))
    thresholds = jnp.asarray(_poisson_cdf(self.poisson_lambda), jnp.float32)
    drawn_lengths = jnp.searchsorted(thresholds, draw, side='right').astype(
      jnp.int32
    )
    before = sequence_ops.exclusive_sum(drawn_lengths)
    last = sequence_ops.column_indices(slots) == slots - 1
    remaining = jnp.maximum(num_to_mask[:, None] - before, 0)
    spans = jnp.where(last, remaining, jnp.minimum(drawn_lengths, remaining))
    used = remaining > 0
    has_excess = jnp.sum(used, axis=1) > num_to_mask
    return spans, used & ((spans > 0) | ~has_excess[:, None])


def _poisson_cdf(mean: float) -> np.ndarray:
  """Returns P(length <= k) for k = 0, 1, … until it exceeds 1 - 1e-9."""
  terms = [math.exp(-mean)]
  while sum(terms) < 1 - 1e-9:
    terms.append(terms[-1] * mean / len(terms))
  return np.cumsum(terms)


def _move_to_front(spans, used):
  """Moves the used slots of each sequence to the front, in their order."""
  slots = spans.shape[1]
  target_index = jnp.where(
    used, sequence_ops.exclusive_sum(used.astype(jnp.int32)), slots
  )
  moved = sequence_ops.scatter_set(jnp.zeros_like(spans), target_index, spans)
  count = jnp.sum(used, axis=1, dtype=jnp.int32)
  return moved, sequence_ops.column_indices(slots) < count[:, None]


def word_starts(rows, vocabulary: VocabularySpec) -> jax.Array:
  """Returns a boolean mask [B, T] of the text tokens that start a word.

  The first text token after a special token also starts a word. If the
  vocabulary does not record word starts, each token counts as a separate word.
  """
  text = masking.is_text(rows, vocabulary)
  starts_word = begins_word(rows[batch_keys.TOKEN_IDS], vocabulary)
  after_text = jnp.pad(text[:, :-1], ((0, 0), (1, 0)))
  return text & (starts_word | ~after_text)


def begins_word(token_ids, vocabulary: VocabularySpec) -> jax.Array:
  """Returns whether token ids start a word regardless of their context.

  Args:
    token_ids: Integer array of any shape.
    vocabulary: Vocabulary specification with the ids that start a word. If it
      does not record them, all ids start a word.

  Returns:
    Boolean array of the same shape as `token_ids`.
  """
  if not any(vocabulary.word_starts):
    return jnp.ones(token_ids.shape, bool)
  table = np.unpackbits(
    np.frombuffer(vocabulary.word_starts, np.uint8), bitorder='little'
  ).astype(bool)
  return jnp.asarray(table)[token_ids]


def permute_sentences(rows, rng: jax.Array, vocabulary: VocabularySpec):
  """Randomly permutes the sentences of each sequence.

  A sequence has the format `<s> a </s> b c </s>`, in which each sentence ends
  with its </s>. Before: token_ids [[1, 7, 2, 8, 9, 2, 0]]. After: the same ids,
  or [[1, 8, 9, 2, 7, 2, 0]].

  Args:
    rows: Mapping from batch keys to arrays of the sequences, as in
      `xlflax.data.batch_keys`. Each sequence consists of one segment.
    rng: Random key.
    vocabulary: Vocabulary specification with the special ids.

  Returns:
    `rows` with permuted token_ids.
  """
  token_ids = rows[batch_keys.TOKEN_IDS]
  length = token_ids.shape[1]
  present = masking.is_present(rows, vocabulary)
  ends = (present & (token_ids == vocabulary.eos_id)).astype(jnp.int32)
  sentence = sequence_ops.exclusive_sum(ends)
  rank = masking.random_order(rng, jnp.ones(token_ids.shape, bool)) + 1
  rank = sequence_ops.gather_clipped(rank, sentence)
  positions = sequence_ops.column_indices(length)
  body = present & (positions > 0)
  # The start symbol stays first and padding stays last.
  rank = jnp.where(body, rank, jnp.where(positions == 0, 0, length + 1))
  order = jnp.argsort(rank, axis=1, stable=True)
  return {
    **rows,
    batch_keys.TOKEN_IDS: sequence_ops.gather_clipped(token_ids, order),
  }


def apply_infilling(rows, word_spans: WordSpans, vocabulary: VocabularySpec):
  """Replaces each word span by one mask symbol.

  Before: token_ids `<s> a b c d </s>`, gaps [1], spans [2]. After:
  `<s> a <mask> d </s>`. Special symbols are kept, even within a span.

  Args:
    rows: Mapping from batch keys to arrays of the sequences, as in
      `xlflax.data.batch_keys`. Each sequence consists of one segment.
    word_spans: Spans to mask, drawn by an `InfillingPolicy` for the words that
      `word_starts` marks.
    vocabulary: Vocabulary specification with the id of the mask symbol.

  Returns:
    Sequences of the same length, in the format of
    `sequence_ops.make_sequences`.
  """
  text = masking.is_text(rows, vocabulary)
  starts = word_starts(rows, vocabulary)
  length = text.shape[1]
  first = sequence_ops.exclusive_sum(word_spans.spans) + jnp.cumsum(
    word_spans.gaps, axis=1
  )
  # Unused slots get an index beyond the sequence, which scattering drops.
  span_start = jnp.where(word_spans.used, first, length + 1)
  span_end = jnp.where(word_spans.used, first + word_spans.spans, length + 1)
  ones = jnp.ones_like(word_spans.spans)
  # Both arrays have shape [B, T + 1], with one entry per word and one for the
  # end of the text.
  covered = jnp.cumsum(
    sequence_ops.scatter_add(length + 1, span_start, ones)
    - sequence_ops.scatter_add(length + 1, span_end, ones),
    axis=1,
  )
  masks = sequence_ops.scatter_add(length + 1, span_start, ones)
  return _insert_masks(rows, text, starts, covered, masks, vocabulary)


def _insert_masks(rows, text, starts, covered, masks, vocabulary):
  """Inserts mask symbols before given words, and drops covered words.

  Args:
    rows: Mapping from batch keys to arrays of the sequences, of shape [B, T].
    text: Boolean array of shape [B, T], True for text tokens.
    starts: Boolean array of shape [B, T], True for tokens that start a word.
    covered: Number of spans that cover each word, of shape [B, T + 1]. Covered
      words are dropped.
    masks: Number of mask symbols to insert before each word, of shape
      [B, T + 1].
    vocabulary: Vocabulary specification with the id of the mask symbol.
  """
  token_ids = rows[batch_keys.TOKEN_IDS]
  length = token_ids.shape[1]
  word = jnp.cumsum(starts, axis=1) - 1
  num_words = word[:, -1:] + 1
  present = masking.is_present(rows, vocabulary)
  positions = sequence_ops.column_indices(length)
  last_text = jnp.max(jnp.where(text, positions, -1), axis=1, keepdims=True)
  # Masks after the last word are inserted at this position.
  at_end = positions == last_text + 1
  masks_before = jnp.where(
    starts,
    sequence_ops.gather_clipped(masks, word),
    jnp.where(at_end, sequence_ops.gather_clipped(masks, num_words), 0),
  )
  is_kept = present & ~(text & (sequence_ops.gather_clipped(covered, word) > 0))
  kept_counts = is_kept.astype(jnp.int32)
  target_index = (
    sequence_ops.exclusive_sum(masks_before + kept_counts) + masks_before
  )
  total = jnp.sum(masks_before + kept_counts, axis=1)
  # Masks fill the positions that no kept token is written to.
  mask_ids = jnp.where(
    positions < total[:, None], vocabulary.mask_id, vocabulary.pad_id
  ).astype(token_ids.dtype)
  tokens = sequence_ops.scatter_set(
    mask_ids, jnp.where(is_kept, target_index, length), token_ids
  )
  languages = jnp.max(
    jnp.where(present, rows[batch_keys.LANGUAGE_IDS], 0), axis=1
  )
  return sequence_ops.make_sequences(tokens, total, languages)
