"""Span corruption (Raffel et al. 2020): spans, and the rows without them.

A policy draws the lengths of spans; `apply_span_corruption` writes inputs and targets. All of
it runs on the device with static shapes.
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
  """The text of each row as kept[0] dropped[0] kept[1] dropped[1] …

  Attributes:
    kept: int32 [B, K], tokens of each kept span.
    dropped: int32 [B, K], tokens of each dropped one; 0 beyond the row's
      number of spans.
  """

  kept: jax.Array
  dropped: jax.Array


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanPolicy:
  """Draws a fixed number of tokens in a fixed number of spans per row.

  Of n tokens of text, m = round(noise_density * n) are dropped, at least one
  and not all, in round(m / mean_span_length) spans, at least one. Each way to
  cut m tokens into that many spans, and the n - m others between them, is as
  likely. A row begins with a kept span and ends with a dropped one, as in T5.
  Rows of fewer than two tokens are left as they are.

  Attributes:
    noise_density: in (0, 1), or a function of the step.
    max_noise_density: bound of a scheduled density; fixes static lengths.
    mean_span_length: at least 1.
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
    if self.max_noise_density is not None:
      return self.max_noise_density
    assert not callable(self.noise_density)  # refused by __post_init__
    return self.noise_density

  def counts(self, tokens, density, xp: Any = jnp):
    """(tokens to drop, spans) of rows with so many tokens of text.

    Args:
      tokens: int array.
      density: a number, or a scalar array.
      xp: numpy or jax.numpy; both round alike, in float32.
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
    short = tokens < 2
    return xp.where(short, 0, drop), xp.where(short, 0, spans)

  def _static(self, text_length: int):
    """`counts` for rows of 0 .. text_length tokens, at the largest density."""
    tokens = np.arange(text_length + 1, dtype=np.int32)
    return (tokens, *self.counts(tokens, self.largest_density, np))

  def num_slots(self, text_length: int) -> int:
    """K for rows of up to `text_length` tokens: the most spans."""
    return max(int(self._static(text_length)[2].max()), 1)

  def lengths(self, text_length: int) -> tuple[int, int]:
    """Static lengths (inputs, targets) for rows of that many tokens of text.

    Inputs hold the kept tokens, a sentinel for each span, and </s>; targets
    <s>, the dropped tokens, a sentinel for each span, and </s>. With T5's 0.15
    and 3: 568 tokens of text make 512 and 115 (<s> is the decoder's start).
    """
    tokens, drop, spans = self._static(text_length)
    num_inputs = (
      tokens if callable(self.noise_density) else tokens - drop + spans
    )
    return int(num_inputs.max()) + 1, int((drop + spans).max()) + 2

  def __call__(
    self, rng: jax.Array, tokens: jax.Array, text_length: int, step
  ) -> Spans:
    """Draws spans for rows of `tokens [B]` tokens of text.

    Args:
      rng: key.
      tokens: int [B], at most `text_length`.
      text_length: static; fixes the number of slots.
      step: int scalar, for a scheduled density.
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
      _segments(kept_rng, tokens - drop, spans, slots, text_length),
      _segments(drop_rng, drop, spans, slots, text_length),
    )


def _segments(
  rng, items: jax.Array, parts: jax.Array, slots: int, width: int
) -> jax.Array:
  """Cuts `items [B]` into `parts [B]` runs of at least one: int32 [B, slots].

  Each set of parts - 1 of the items - 1 places to cut at is as likely. Before:
  items [5], parts [2], 3 slots; after: for instance [[1, 4, 0]].
  """
  places = jnp.broadcast_to(
    sequence_ops.column_indices(width), (items.shape[0], width)
  )
  order = masking.random_order(rng, places < items[:, None] - 1)[:, :slots]
  is_cut = sequence_ops.column_indices(slots) < parts[:, None] - 1
  ends = jnp.sort(jnp.where(is_cut, order + 1, items[:, None]), axis=1)
  return jnp.diff(ends, axis=1, prepend=jnp.zeros_like(ends[:, :1]))


def apply_span_corruption(
  rows, spans: Spans, lengths: tuple[int, int], vocabulary: VocabularySpec
):
  """Makes the rows of encoder and decoder.

  Before: text `a b c d e`, kept [1, 2], dropped [1, 1]; after: inputs
  `a X c d Y </s>`, targets `<s> X b Y e </s>` with the sentinels X, Y.

  Args:
    rows: token_ids and perhaps segment_ids, [B, T]. Padding, <s> and the </s>
      between lines are left out, as T5 has none.
    spans: of `SpanPolicy`.
    lengths: static lengths of inputs and targets.
    vocabulary: has the sentinels.

  Returns:
    (inputs, targets), as `sequence_ops.make_sequences` gives them. A row without spans has
    no target.

  Raises:
    VocabularyError: there are fewer sentinels than spans.
  """
  sentinels = _sentinels(spans.kept.shape[1], vocabulary)
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
  kept_end = jnp.cumsum(spans.kept, axis=1)
  dropped_end = jnp.cumsum(spans.dropped, axis=1)
  dropped_start = dropped_end - spans.dropped
  num_kept = jnp.sum(spans.kept, axis=1)
  dropped = dropped_end[:, -1]
  used = spans.dropped > 0
  count = jnp.sum(used, axis=1, dtype=jnp.int32)
  inputs = _write(
    compact,
    sentinels,
    used,
    kept_end,
    dropped_start,
    num_kept + count,
    lengths[0],
    vocabulary,
  )
  begins = jnp.pad(kept_end, ((0, 0), (1, 0)))
  targets = _write(
    compact,
    sentinels,
    used,
    dropped_start,
    begins,
    dropped + count,
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
      targets, jnp.where(count > 0, dropped + count + 2, 0), languages
    ),
  )


def _write(
  compact,
  sentinels,
  used,
  before,
  skipped,
  total,
  length: int,
  vocabulary: VocabularySpec,
) -> jax.Array:
  """Writes tokens with sentinels among them, then </s>: int32 [B, length].

  Args:
    compact: [B, T], the text of each row.
    sentinels: [K].
    used: bool [B, K], the slots that hold a span.
    before: [B, K], tokens of this row before the sentinel of span s.
    skipped: [B, K or K + 1], tokens of the other row before this row's next
      token, when s sentinels stand before it.
    total: [B], tokens and sentinels.
    length: of the rows.
    vocabulary: has padding and </s>.
  """
  slots = sequence_ops.column_indices(used.shape[1])
  marks = sequence_ops.scatter_add(
    length, jnp.where(used, before + slots, length), used
  )
  marks_so_far = jnp.cumsum(marks, axis=1)
  places = sequence_ops.column_indices(length)
  text_ids = sequence_ops.gather_clipped(
    compact,
    places - marks_so_far + sequence_ops.gather_clipped(skipped, marks_so_far),
  )
  row = jnp.where(
    marks > 0, sentinels[jnp.maximum(marks_so_far - 1, 0)], text_ids
  )
  end = jnp.where(
    places == total[:, None], vocabulary.eos_id, vocabulary.pad_id
  )
  return jnp.where(places < total[:, None], row, end).astype(jnp.int32)


def _sentinels(slots: int, vocabulary: VocabularySpec) -> jax.Array:
  sentinel_ids = vocabulary.sentinel_ids
  if len(sentinel_ids) < slots:
    raise errors.VocabularyError(
      'The vocabulary has too few sentinels for span corruption',
      got=f'{len(sentinel_ids)}',
      expected=f'at least {slots}, as many as a row can have spans',
      fix='train it with `xlflax vocab --extra_ids '
      f'{slots}`, or use shorter rows or longer spans',
    )
  return jnp.asarray(sentinel_ids, jnp.int32)
