"""Span corruption (Raffel et al. 2020).

A policy draws the lengths of spans, and `apply_span_corruption` creates inputs
and targets. All functions run on the device with static shapes.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import annotated_types
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives import teacher_forcing
from xlflax.objectives.corruption import masking, sequence_ops
from xlflax.utils import errors, validation

Density = validation.OpenFraction | Callable[[jax.Array], jax.Array]


class Spans(NamedTuple):
  """Lengths of the alternating kept and dropped spans of each text.

  A text consists of kept_lengths[0] kept tokens, dropped_lengths[0] dropped
  tokens, kept_lengths[1] kept tokens, and so on.

  Attributes:
    kept_lengths: Number of tokens in each kept span, int32 [B, K].
    dropped_lengths: Number of tokens in each dropped span, int32 [B, K]. Unused
      slots are 0.
  """

  kept_lengths: jax.Array
  dropped_lengths: jax.Array


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanPolicy:
  """Policy that drops the fraction `noise_density` of a text in random spans.

  Of n text tokens, m = round(noise_density * n) are dropped, at least one but
  not all, in round(m / mean_span_length) spans, at least one. All divisions of
  the m tokens into that number of spans are equally likely, and so are all
  divisions of the n - m kept tokens. As in T5, a text starts with a kept span
  and ends with a dropped one. Texts of fewer than two tokens are not changed.

  Attributes:
    noise_density: Fraction of text tokens to drop, in (0, 1), or a function of
      the step (an Optax schedule).
    max_noise_density: Upper bound for `noise_density`, which determines the
      static lengths of inputs and targets. It is required only if the density
      is a schedule.
    mean_span_length: Mean number of tokens in a dropped span, at least 1.
  """

  noise_density: Density = 0.15
  max_noise_density: validation.OpenFraction | None = None
  mean_span_length: Annotated[float, annotated_types.Ge(1)] = 3.0

  def __post_init__(self):
    masking.check_bound(
      'noise_density', self.noise_density, self.max_noise_density
    )

  @property
  def largest_density(self) -> float:
    """Maximum noise density over all steps. It determines the array lengths."""
    if self.max_noise_density is not None:
      return self.max_noise_density
    assert not callable(self.noise_density)  # Checked in `__post_init__`.
    return self.noise_density

  def counts(self, tokens, density, xp: Any = jnp):
    """Returns the number of tokens to drop and the number of spans.

    Args:
      tokens: Number of text tokens of each sequence, an integer array of any
        shape.
      density: Fraction of tokens to drop, a number or a scalar array.
      xp: Array library, numpy or jax.numpy. Both round in the same way, in
        float32.
    """
    n = tokens.astype(xp.float32)
    drop = xp.round(n * xp.asarray(density, xp.float32)).astype(xp.int32)
    drop = xp.minimum(xp.maximum(drop, 1), tokens - 1)
    spans = xp.round(
      drop.astype(xp.float32) / xp.asarray(self.mean_span_length, xp.float32)
    )
    spans = xp.minimum(
      xp.maximum(spans.astype(xp.int32), 1), xp.minimum(drop, tokens - drop)
    )
    too_short = tokens < 2
    return xp.where(too_short, 0, drop), xp.where(too_short, 0, spans)

  def _largest_counts(self, text_length: int):
    """Returns the counts at the largest density for each possible text length.

    Returns:
      The lengths 0 .. text_length and, for each, the number of tokens to drop
      and the number of spans.
    """
    tokens = np.arange(text_length + 1, dtype=np.int32)
    return (tokens, *self.counts(tokens, self.largest_density, np))

  def num_slots(self, text_length: int) -> int:
    """Returns K, the maximum number of spans in `text_length` tokens."""
    _, _, spans = self._largest_counts(text_length)
    return max(int(spans.max()), 1)

  def lengths(self, text_length: int) -> tuple[int, int]:
    """Returns the lengths of the input and target sequences.

    The lengths are static and depend only on the maximum length of the text.
    Inputs contain the kept tokens, a sentinel for each span, and </s>. Targets
    contain <s>, the dropped tokens, a sentinel for each span, and </s>. With
    T5's density 0.15 and mean span length 3, 568 text tokens result in inputs
    of 512 and targets of 115 tokens (<s> is the start symbol of the decoder).

    Args:
      text_length: Maximum number of text tokens per sequence.
    """
    tokens, drop, spans = self._largest_counts(text_length)
    num_inputs = (
      tokens if callable(self.noise_density) else tokens - drop + spans
    )
    return int(num_inputs.max()) + 1, int((drop + spans).max()) + 2

  def __call__(
    self, rng: jax.Array, tokens: jax.Array, text_length: int, step
  ) -> Spans:
    """Draws the token spans to drop from each text.

    Args:
      rng: Random key.
      tokens: Number of text tokens in each sequence, int [B], at most
        `text_length`.
      text_length: Maximum number of text tokens per sequence, which determines
        the number of slots.
      step: Global step, an integer scalar, at which a scheduled density is
        evaluated.

    Returns:
      Spans with K = `num_slots(text_length)` slots.
    """
    density = (
      self.noise_density(step)
      if callable(self.noise_density)
      else self.noise_density
    )
    drop, spans = self.counts(tokens, density)
    slots = self.num_slots(text_length)
    kept_rng, drop_rng = jax.random.split(rng)
    return Spans(
      _random_segments(kept_rng, tokens - drop, spans, slots, text_length),
      _random_segments(drop_rng, drop, spans, slots, text_length),
    )


def _random_segments(
  rng, items: jax.Array, parts: jax.Array, slots: int, width: int
) -> jax.Array:
  """Divides items into non-empty segments, uniformly at random.

  Before: items [5], parts [2], 3 slots. After: for instance [[1, 4, 0]].

  Args:
    rng: Random key.
    items: Number of items to divide in each sequence, int [B].
    parts: Number of non-empty segments into which the items of each sequence
      are divided, int [B].
    slots: Maximum number of segments in a sequence.
    width: Maximum number of items in a sequence.

  Returns:
    Length of each segment, int32 [B, slots].
  """
  positions = jnp.broadcast_to(
    sequence_ops.column_indices(width), (items.shape[0], width)
  )
  order = masking.random_order(rng, positions < items[:, None] - 1)[:, :slots]
  is_cut = sequence_ops.column_indices(slots) < parts[:, None] - 1
  ends = jnp.sort(jnp.where(is_cut, order + 1, items[:, None]), axis=1)
  return jnp.diff(ends, axis=1, prepend=jnp.zeros_like(ends[:, :1]))


def apply_span_corruption(
  rows, spans: Spans, lengths: tuple[int, int], vocabulary: VocabularySpec
):
  """Creates the encoder inputs and decoder targets of span corruption.

  Before: text `a b c d e`, kept_lengths [1, 2], dropped_lengths [1, 1]. After:
  inputs `a X c d Y </s>`, targets `<s> X b Y e </s>`, with sentinels X and Y.

  Args:
    rows: Mapping with `token_ids` and, optionally, `segment_ids` of shape
      [B, T]. Padding, <s> and the </s> between lines are removed, because T5
      does not use them.
    spans: Spans to keep and to drop, drawn by a `SpanPolicy`.
    lengths: Pair of static lengths (inputs, targets) in tokens.
    vocabulary: Vocabulary specification with the sentinel ids.

  Returns:
    Inputs and targets in the format of `sequence_ops.make_sequences`. A
    sequence without spans has an empty target.

  Raises:
    VocabularyError: If the vocabulary has fewer sentinels than spans.
  """
  sentinels = _sentinel_ids(spans.kept_lengths.shape[1], vocabulary)
  text = masking.is_text(rows, vocabulary)
  length = text.shape[1]
  text_index = jnp.where(
    text, sequence_ops.exclusive_sum(text.astype(jnp.int32)), length
  )
  token_ids = rows[batch_keys.TOKEN_IDS]
  compact = sequence_ops.scatter_set(
    jnp.zeros_like(token_ids), text_index, token_ids
  )
  languages = teacher_forcing.row_languages(rows, vocabulary)
  kept_end = jnp.cumsum(spans.kept_lengths, axis=1)
  dropped_end = jnp.cumsum(spans.dropped_lengths, axis=1)
  dropped_start = dropped_end - spans.dropped_lengths
  num_kept = jnp.sum(spans.kept_lengths, axis=1)
  num_dropped = dropped_end[:, -1]
  used = spans.dropped_lengths > 0
  count = jnp.sum(used, axis=1, dtype=jnp.int32)
  inputs = _insert_sentinels(
    compact,
    sentinels,
    used,
    kept_end,
    dropped_start,
    num_kept + count,
    lengths[0],
    vocabulary,
  )
  kept_start = jnp.pad(kept_end, ((0, 0), (1, 0)))
  targets = _insert_sentinels(
    compact,
    sentinels,
    used,
    dropped_start,
    kept_start,
    num_dropped + count,
    lengths[1] - 1,
    vocabulary,
  )
  targets = jnp.pad(
    targets, ((0, 0), (1, 0)), constant_values=vocabulary.bos_id
  )
  targets = jnp.where(count[:, None] > 0, targets, vocabulary.pad_id)
  return (
    sequence_ops.make_sequences(inputs, num_kept + count + 1, languages),
    sequence_ops.make_sequences(
      targets, jnp.where(count > 0, num_dropped + count + 2, 0), languages
    ),
  )


def _insert_sentinels(
  compact,
  sentinels,
  used,
  before,
  skipped,
  total,
  length: int,
  vocabulary: VocabularySpec,
) -> jax.Array:
  """Returns kept or dropped tokens with sentinels, followed by </s>.

  Args:
    compact: Token ids [B, T] with the text tokens of each sequence moved to its
      start.
    sentinels: Ids of the sentinels, in the order in which they are used, [K].
    used: Boolean array of shape [B, K], True for slots that contain a span.
    before: Number of text tokens that precede each span's sentinel in the
      result, [B, K].
    skipped: Cumulative number of text tokens that the result leaves out.
      Element s applies to the tokens that follow the first s sentinels. The
      shape is [B, K] or [B, K + 1].
    total: Number of tokens and sentinels in the result, [B].
    length: Length of each sequence in the result, including padding.
    vocabulary: Vocabulary specification with the ids of padding and </s>.

  Returns:
    int32 array of shape [B, length].
  """
  slots = sequence_ops.column_indices(used.shape[1])
  is_sentinel = sequence_ops.scatter_add(
    length, jnp.where(used, before + slots, length), used
  )
  num_sentinels = jnp.cumsum(is_sentinel, axis=1)
  positions = sequence_ops.column_indices(length)
  text_index = (
    positions
    - num_sentinels
    + sequence_ops.gather_clipped(skipped, num_sentinels)
  )
  text_ids = sequence_ops.gather_clipped(compact, text_index)
  token_ids = jnp.where(
    is_sentinel > 0, sentinels[jnp.maximum(num_sentinels - 1, 0)], text_ids
  )
  end = jnp.where(
    positions == total[:, None], vocabulary.eos_id, vocabulary.pad_id
  )
  return jnp.where(positions < total[:, None], token_ids, end).astype(jnp.int32)


def _sentinel_ids(slots: int, vocabulary: VocabularySpec) -> jax.Array:
  """Returns the sentinel ids, at least one per slot.

  Raises:
    VocabularyError: If the vocabulary has fewer sentinels than slots.
  """
  if error := missing_sentinels_error(slots, vocabulary):
    raise error
  return jnp.asarray(vocabulary.sentinel_ids, jnp.int32)


def missing_sentinels_error(
  num_spans: int, vocabulary: VocabularySpec
) -> errors.VocabularyError | None:
  """Returns the error for a vocabulary with too few sentinels, or None.

  Args:
    num_spans: Maximum number of spans in a sequence.
    vocabulary: Vocabulary specification with the sentinel ids.
  """
  num_sentinels = len(vocabulary.sentinel_ids)
  if num_sentinels >= num_spans:
    return None
  return errors.VocabularyError(
    f'Span corruption requires at least {num_spans} sentinel tokens, one for '
    f'each span of a sequence, but the vocabulary contains {num_sentinels}',
    fix='Train another vocabulary with `xlflax vocab '
    f'--extra_ids={num_spans}`, and write the token cache again with this '
    'vocabulary. Shorter sequences (LENGTH) and longer spans '
    '(MEAN_SPAN_LENGTH) require fewer sentinel tokens.',
  )
