"""Text infilling and sentence permutation (BART, Lewis et al. 2020; mBART).

A policy draws the spans of words that become one mask symbol each; `apply_infilling`
writes the rows. All of it runs on the device with static shapes.
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
  """The words of each row as gaps[0] spans[0] gaps[1] spans[1] … the rest.

  Attributes:
    gaps: int32 [B, K], words left before each span.
    spans: int32 [B, K], words in each span; 0 is a mask that is inserted.
    used: bool [B, K], which slots hold a span.
  """

  gaps: jax.Array
  spans: jax.Array
  used: jax.Array


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class InfillingPolicy:
  """Draws spans of words whose lengths are Poisson distributed.

  Of w words, m = round(mask_ratio * w) are masked, at least one. Lengths are
  drawn until they add up to m, the last one cut to fit; spans of length 0
  insert a mask (they are left out of a row that has more spans than masked
  words, which keeps it from growing). Where the spans stand is uniform, and
  they do not overlap.

  Attributes:
    mask_ratio: in (0, 1] (mBART: 0.35).
    poisson_lambda: mean length of a span in words, at least 1 (3.5).
  """

  mask_ratio: validation.PositiveFraction = 0.35
  poisson_lambda: Annotated[float, annotated_types.Interval(ge=1, le=100)] = 3.5

  def num_slots(self, length: int) -> int:
    """K for rows of `length` words.

    Fewer than one row in 10^9 needs more lengths to mask m words; its last
    span is then longer, so that m words are always masked.
    """
    masked = math.ceil(self.mask_ratio * length)
    draws = (masked + 6.5 * math.sqrt(masked) + 20) / self.poisson_lambda
    return math.ceil(draws) + 1

  def __call__(
    self, rng: jax.Array, words: jax.Array, length: int
  ) -> WordSpans:
    """Draws spans for rows of `words [B]` words, at most `length`."""
    length_rng, place_rng = jax.random.split(rng)
    slots = self.num_slots(length)
    num_to_mask = jnp.floor(self.mask_ratio * words.astype(jnp.float32) + 0.5)
    num_to_mask = jnp.minimum(
      jnp.maximum(num_to_mask.astype(jnp.int32), 1), words
    )
    spans, used = self._lengths(length_rng, num_to_mask, slots)
    count = jnp.sum(used, axis=1, dtype=jnp.int32)
    width = length + slots
    places = jnp.broadcast_to(
      sequence_ops.column_indices(width), (words.shape[0], width)
    )
    order = masking.random_order(
      place_rng, places < (words - num_to_mask + count)[:, None]
    )[:, :slots]
    slot = sequence_ops.column_indices(slots)
    chosen = jnp.sort(jnp.where(slot < count[:, None], order, width), axis=1)
    gaps = jnp.diff(
      chosen - slot, axis=1, prepend=jnp.zeros_like(chosen[:, :1])
    )
    spans, used = _to_front(spans, used)
    return WordSpans(jnp.where(used, gaps, 0), spans, used)

  def _lengths(self, rng, wanted, slots: int):
    """(lengths int32 [B, slots] that add up to `wanted [B]`, which count)."""
    draw = jax.random.uniform(rng, (wanted.shape[0], slots))
    thresholds = jnp.asarray(_poisson_cdf(self.poisson_lambda), jnp.float32)
    drawn_lengths = jnp.searchsorted(thresholds, draw, side='right').astype(
      jnp.int32
    )
    before = sequence_ops.exclusive_sum(drawn_lengths)
    last = sequence_ops.column_indices(slots) == slots - 1
    remaining = jnp.maximum(wanted[:, None] - before, 0)
    spans = jnp.where(last, remaining, jnp.minimum(drawn_lengths, remaining))
    used = remaining > 0
    crowded = jnp.sum(used, axis=1) > wanted
    return spans, used & ((spans > 0) | ~crowded[:, None])


def _poisson_cdf(mean: float) -> np.ndarray:
  """P(length <= k) for k = 0, 1, … up to where only 1e-9 is left."""
  terms = [math.exp(-mean)]
  while sum(terms) < 1 - 1e-9:
    terms.append(terms[-1] * mean / len(terms))
  return np.cumsum(terms)


def _to_front(spans, used):
  """Moves the used slots of each row to its front, in their order."""
  slots = spans.shape[1]
  target_index = jnp.where(
    used, sequence_ops.exclusive_sum(used.astype(jnp.int32)), slots
  )
  moved = sequence_ops.scatter_set(jnp.zeros_like(spans), target_index, spans)
  count = jnp.sum(used, axis=1, dtype=jnp.int32)
  return moved, sequence_ops.column_indices(slots) < count[:, None]


def word_starts(rows, vocabulary: VocabularySpec) -> jax.Array:
  """Returns bool [B, T]: the tokens of text that begin a word.

  The first token of text after a special one begins a word too. Every token
  is a word of its own where the vocabulary does not say which begin one.
  """
  text = masking.is_text(rows, vocabulary)
  begins = begins_word(rows[batch_keys.TOKEN_IDS], vocabulary)
  after_text = jnp.pad(text[:, :-1], ((0, 0), (1, 0)))
  return text & (begins | ~after_text)


def begins_word(token_ids, vocabulary: VocabularySpec) -> jax.Array:
  """Whether an id begins a word wherever it stands: bool, as `token_ids`.

  Every id does where the vocabulary does not say which do.
  """
  if not any(vocabulary.word_starts):
    return jnp.ones(token_ids.shape, bool)
  table = np.unpackbits(
    np.frombuffer(vocabulary.word_starts, np.uint8), bitorder='little'
  ).astype(bool)
  return jnp.asarray(table)[token_ids]


def permute_sentences(rows, rng: jax.Array, vocabulary: VocabularySpec):
  """Permutes the sentences of rows `<s> a </s> b c </s>`.

  A sentence ends with its </s>. Before: token_ids
  [[1, 7, 2, 8, 9, 2, 0]]; after: that, or [[1, 8, 9, 2, 7, 2, 0]].
  """
  token_ids = rows[batch_keys.TOKEN_IDS]
  length = token_ids.shape[1]
  present = masking.is_present(rows, vocabulary)
  ends = (present & (token_ids == vocabulary.eos_id)).astype(jnp.int32)
  sentence = sequence_ops.exclusive_sum(ends)
  rank = masking.random_order(rng, jnp.ones(token_ids.shape, bool)) + 1
  rank = sequence_ops.gather_clipped(rank, sentence)
  places = sequence_ops.column_indices(length)
  body = present & (places > 0)
  rank = jnp.where(body, rank, jnp.where(places == 0, 0, length + 1))
  order = jnp.argsort(rank, axis=1, stable=True)
  return {
    **rows,
    batch_keys.TOKEN_IDS: sequence_ops.gather_clipped(token_ids, order),
  }


def apply_infilling(rows, word_spans: WordSpans, vocabulary: VocabularySpec):
  """Replaces each span of words by one mask symbol.

  Before: token_ids `<s> a b c d </s>`, gaps [1], spans [2]; after:
  `<s> a <mask> d </s>`. Special symbols stay, also inside a span.

  Args:
    rows: as `xlflax.data.batch_keys` documents, one segment a row.
    word_spans: of `InfillingPolicy`, over the words that `word_starts` finds.
    vocabulary: has the mask symbol.

  Returns:
    Rows of the same length, as `sequence_ops.make_sequences` gives them.
  """
  text = masking.is_text(rows, vocabulary)
  starts = word_starts(rows, vocabulary)
  length = text.shape[1]
  first = sequence_ops.exclusive_sum(word_spans.spans) + jnp.cumsum(
    word_spans.gaps, axis=1
  )
  where = jnp.where(word_spans.used, first, length + 1)  # beyond: dropped
  stop = jnp.where(word_spans.used, first + word_spans.spans, length + 1)
  ones = jnp.ones_like(word_spans.spans)
  # Of each word, and of what follows the last one, [B, T + 1]:
  covered = jnp.cumsum(
    sequence_ops.scatter_add(length + 1, where, ones)
    - sequence_ops.scatter_add(length + 1, stop, ones),
    axis=1,
  )
  masks = sequence_ops.scatter_add(length + 1, where, ones)
  return _rewrite(rows, text, starts, covered, masks, vocabulary)


def _rewrite(rows, text, starts, covered, masks, vocabulary):
  """Masks go before the first token of their word; covered words go."""
  token_ids = rows[batch_keys.TOKEN_IDS]
  length = token_ids.shape[1]
  word = jnp.cumsum(starts, axis=1) - 1
  num_words = word[:, -1:] + 1
  present = masking.is_present(rows, vocabulary)
  places = sequence_ops.column_indices(length)
  last_text = jnp.max(jnp.where(text, places, -1), axis=1, keepdims=True)
  at_end = places == last_text + 1  # masks after the last word
  before = jnp.where(
    starts,
    sequence_ops.gather_clipped(masks, word),
    jnp.where(at_end, sequence_ops.gather_clipped(masks, num_words), 0),
  )
  stays = present & ~(text & (sequence_ops.gather_clipped(covered, word) > 0))
  kept_counts = stays.astype(jnp.int32)
  target_index = sequence_ops.exclusive_sum(before + kept_counts) + before
  total = jnp.sum(before + kept_counts, axis=1)
  canvas = jnp.where(
    places < total[:, None], vocabulary.mask_id, vocabulary.pad_id
  ).astype(token_ids.dtype)
  tokens = sequence_ops.scatter_set(
    canvas, jnp.where(stays, target_index, length), token_ids
  )
  languages = jnp.max(
    jnp.where(present, rows[batch_keys.LANGUAGE_IDS], 0), axis=1
  )
  return sequence_ops.make_sequences(tokens, total, languages)
