"""Token masking (Devlin et al. 2019, section 3.1).

A policy selects tokens and returns a `Choice` (positions, weights, actions). A
separate function draws random words. `apply_choice` combines the choice and the
words to the model's input. All functions run on the device with static shapes.
"""

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors, validation

MaskRatio = validation.PositiveFraction | Callable[[jax.Array], jax.Array]


class Action(enum.IntEnum):
  """Treatment of a token that was selected for masking.

  Attributes:
    KEEP: Keep the token unchanged.
    MASK: Replace the token by the mask symbol.
    RANDOM: Replace the token by a random word.
  """

  KEEP = 0
  MASK = 1
  RANDOM = 2


class Choice(NamedTuple):
  """Tokens selected for masking: up to K per sequence, stored in K slots.

  Attributes:
    positions: Positions of the selected tokens, int32 [B, K], distinct within a
      sequence.
    weights: Array that is 1 for a selected token and 0 for an unused slot,
      float32 [B, K]. An unused slot has the position of a token that is not
      selected and the action KEEP.
    actions: Action for the token in each slot, as values of `Action`, int32
      [B, K].
  """

  positions: jax.Array
  weights: jax.Array
  actions: jax.Array


def special_runs(special_ids: tuple[int, ...]) -> list[tuple[int, int]]:
  """Groups special ids into ranges (start, stop) of consecutive ids.

  Before: (0, 1, 2, 9). After: [(0, 3), (9, 10)].
  """
  ranges: list[tuple[int, int]] = []
  for i in sorted(set(special_ids)):
    if ranges and ranges[-1][1] == i:
      ranges[-1] = (ranges[-1][0], i + 1)
    else:
      ranges.append((i, i + 1))
  return ranges


def is_special(token_ids: jax.Array, vocabulary: VocabularySpec) -> jax.Array:
  """Returns a boolean array that is True for special token ids."""
  special = jnp.zeros(token_ids.shape, bool)
  for start, stop in special_runs(vocabulary.special_ids):
    special |= (token_ids >= start) & (token_ids < stop)
  return special


def is_text(batch, vocabulary: VocabularySpec) -> jax.Array:
  """Returns a boolean mask of the text tokens.

  Before: token_ids [[1, 7, 9, 2, 0]] with special ids 0 to 4. After:
  [[F, T, T, F, F]].

  Args:
    batch: Mapping with `token_ids` of shape [B, T] and, optionally,
      `segment_ids`.
    vocabulary: Vocabulary specification with the special ids.

  Returns:
    Boolean array of shape [B, T], True for tokens that are not padding and
    not special.
  """
  token_ids = batch['token_ids']
  text = ~is_special(token_ids, vocabulary)
  if 'segment_ids' in batch:
    text &= batch['segment_ids'] > 0
  return text


def is_present(batch, vocabulary: VocabularySpec) -> jax.Array:
  """Returns a boolean mask [B, T] of the tokens that are not padding.

  Special symbols are not padding.
  """
  if 'segment_ids' in batch:
    return batch['segment_ids'] > 0
  return batch['token_ids'] != vocabulary.pad_id


def uniform_words(
  rng: jax.Array, language_ids: jax.Array, vocabulary: VocabularySpec
) -> jax.Array:
  """Draws token ids uniformly from all ids that are not special.

  Functions with the same signature can replace this function. For example,
  `random_words.language_words` draws from the words of each position's
  language.

  Args:
    rng: Random key.
    language_ids: Language ids of the selected positions, int [B, K]. They are
      ignored.
    vocabulary: Vocabulary specification with sizes and special ids.

  Returns:
    int32 array of shape [B, K].

  Raises:
    VocabularyError: If all ids of the vocabulary are special.
  """
  special = np.asarray(sorted(set(vocabulary.special_ids)), np.int32)
  ordinary = vocabulary.size - len(special)
  if ordinary < 1:
    raise errors.VocabularyError(
      'Random words cannot be drawn, because all '
      f'{vocabulary.size} tokens of the vocabulary are special tokens'
    )
  rank = jax.random.randint(rng, (language_ids.size,), 0, ordinary, jnp.int32)
  rank = rank.reshape(language_ids.shape)  # See `_uniform`.
  # The id of the r-th ordinary token is r plus the number of special ids
  # before it.
  for start, stop in special_runs(vocabulary.special_ids):
    rank = jnp.where(rank >= start, rank + (stop - start), rank)
  return rank


def _uniform(rng: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Draws uniform numbers in a form that XLA:CPU compiles quickly.

  The numbers are the same as those of `jax.random.uniform`. XLA:CPU unrolls the
  generator over short last dimensions, which takes a second to compile.
  """
  return jax.random.uniform(rng, (math.prod(shape),)).reshape(shape)


def random_order(
  rng: jax.Array, first: jax.Array, words: jax.Array | None = None
) -> jax.Array:
  """Shuffles each sequence's positions and puts those in `first` in front.

  The function sorts one uint32 per position, which consists of a bit for
  membership in `first`, random bits, and the position in the lowest bits.
  Sorting does not move a sharded batch, whereas `jax.lax.top_k` gathers all
  sequences on every device.

  Args:
    rng: Random key.
    first: Boolean array of shape [B, T], True for the positions that come first
      in the result.
    words: Index of the word to which each position belongs, int32 [B, T], less
      than T. Positions of the same word stay together and keep their order. If
      None, each position is a word.

  Returns:
    Positions, int32 [B, T].
  """
  length = first.shape[1]
  position_mask = jnp.uint32((1 << max(length - 1, 1).bit_length()) - 1)
  bits = jax.random.bits(rng, first.shape, jnp.uint32)
  if words is not None:
    bits = jnp.take_along_axis(bits, words, axis=1)
  keys = (bits >> 1) & ~position_mask
  keys |= jnp.arange(length, dtype=jnp.uint32)[None, :]
  keys |= jnp.where(first, jnp.uint32(0), jnp.uint32(1 << 31))
  return (jnp.sort(keys, axis=1) & position_mask).astype(jnp.int32)


def check_bound(name: str, value: Any, bound: float | None) -> None:
  """Checks a setting, such as `mask_ratio`, against its upper bound.

  The field is a constant or a schedule, and a schedule must have a bound.

  Args:
    name: Name of the checked field, such as 'mask_ratio'. The upper bound is
      the field `max_<name>`.
    value: Value of the checked field, a number or a function of the step.
    bound: Maximum value (inclusive). If None, there is no bound.

  Raises:
    ConfigError: If the value is a schedule and `bound` is None, or if the value
      is a constant that exceeds `bound`.
  """
  if callable(value) and bound is None:
    raise errors.ConfigError(
      f'`max_{name}` must be a number in (0, 1] if `{name}` is a schedule, but '
      'it is None',
      fix=f'Set `max_{name}` to the largest value of the schedule.',
    )
  if not callable(value) and bound is not None and value > bound:
    raise errors.ConfigError(
      f'`{name}` must be at most `max_{name}`, which is {bound}', got=value
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingPolicy:
  """Policy that selects an exact fraction of each sequence's maskable tokens.

  In a sequence with m maskable tokens, n = round(mask_ratio * m) tokens are
  selected uniformly at random, with halves rounded up. At least one token is
  selected unless m = 0.

  Attributes:
    mask_ratio: Fraction of tokens to select, in (0, 1], or a function of the
      step (an Optax schedule).
    max_mask_ratio: Upper bound for `mask_ratio`, which determines the number of
      slots. It is required only if the ratio is a schedule.
    mask_probability: Probability of replacing a selected token by the mask
      symbol.
    random_probability: Probability of replacing a selected token by a random
      word. Selected tokens that are not replaced by the mask symbol or a random
      word are kept unchanged.
  """

  mask_ratio: MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1

  def __post_init__(self):
    check_bound('mask_ratio', self.mask_ratio, self.max_mask_ratio)
    total = self.mask_probability + self.random_probability
    if total > 1 + 1e-6:
      raise errors.ConfigError(
        '`mask_probability` and `random_probability` must sum to at most 1, '
        f'but they are {self.mask_probability} and {self.random_probability}'
      )

  @property
  def largest_ratio(self) -> float:
    """Maximum mask ratio over all steps. It determines `num_slots`."""
    if self.max_mask_ratio is not None:
      return self.max_mask_ratio
    assert not callable(self.mask_ratio)  # Checked in `__post_init__`.
    return self.mask_ratio

  def num_slots(self, length: int) -> int:
    """Returns the maximum number of masked tokens in a sequence.

    It is K = ceil(largest_ratio * length), but at least 1 and at most `length`.
    """
    slots = math.ceil(round(self.largest_ratio * length, 6))
    return min(max(slots, 1), length)

  def _num_selected(self, maskable: jax.Array, slots: int, step) -> jax.Array:
    """Returns the number of tokens to select per sequence, int32 [B]."""
    ratio = (
      self.mask_ratio(step) if callable(self.mask_ratio) else self.mask_ratio
    )
    available = jnp.sum(maskable, axis=1, dtype=jnp.int32)
    num_to_mask = jnp.floor(ratio * available.astype(jnp.float32) + 0.5)
    num_to_mask = jnp.clip(num_to_mask.astype(jnp.int32), 1, slots)
    return jnp.minimum(num_to_mask, available)

  def __call__(
    self, rng: jax.Array, maskable: jax.Array, step, words=None
  ) -> Choice:
    """Selects tokens and draws their actions.

    Args:
      rng: Random key.
      maskable: Boolean array of shape [B, T], True for tokens that may be
        selected.
      step: Global step, an integer scalar, at which a scheduled ratio is
        evaluated.
      words: Index of the word to which each token belongs, int32 [B, T]. If
        set, the tokens of a word are selected together. The number of selected
        tokens is at most the number that token masking would select. A word is
        cut only if it alone exceeds this number.

    Returns:
      A choice with K = `num_slots(T)` slots.
    """
    slots = self.num_slots(maskable.shape[1])
    position_rng, action_rng = jax.random.split(rng)
    order = random_order(position_rng, maskable, words)
    positions = order[:, :slots]
    counts = self._num_selected(maskable, slots, step)
    if words is not None:
      counts = _round_to_words(
        counts, jnp.take_along_axis(words, order, axis=1)
      )
    is_selected = jnp.arange(slots)[None, :] < counts[:, None]
    draw = _uniform(action_rng, positions.shape)
    action = jnp.where(
      draw < self.mask_probability,
      Action.MASK,
      jnp.where(
        draw < self.mask_probability + self.random_probability,
        Action.RANDOM,
        Action.KEEP,
      ),
    )
    return Choice(
      positions,
      is_selected.astype(jnp.float32),
      jnp.where(is_selected, action, Action.KEEP),
    )


def _round_to_words(counts: jax.Array, words: jax.Array) -> jax.Array:
  """Reduces the counts so that each selection ends with a complete word.

  The count is not reduced if the first word has more tokens than the count.

  Before: counts [4], words [[2, 2, 0, 1, 1]]. After: [3].

  Args:
    counts: Number of tokens to select in each sequence, [B].
    words: Word index of each token, with the tokens in the order of selection,
      [B, T].
  """
  ends = jnp.pad(
    words[:, 1:] != words[:, :-1], ((0, 0), (0, 1)), constant_values=True
  )
  lengths = jnp.arange(1, words.shape[1] + 1)[None]
  fits = ends & (lengths <= counts[:, None])
  largest_end = jnp.max(jnp.where(fits, lengths, 0), axis=1)
  return jnp.where(largest_end > 0, largest_end, counts)


def gather_rows(array: jax.Array, positions: jax.Array) -> jax.Array:
  """Gathers the values at distinct positions of each sequence.

  Args:
    array: Array of shape [B, T, ...].
    positions: Distinct positions in each sequence, an integer array of shape
      [B, K].

  Returns:
    Array of shape [B, K, ...].
  """
  return jax.vmap(
    lambda row, index: row.at[index].get(
      unique_indices=True, mode='promise_in_bounds'
    )
  )(array, positions)


def scatter_rows(
  array: jax.Array, positions: jax.Array, values: jax.Array
) -> jax.Array:
  """Replaces the values at distinct positions of each sequence.

  Args:
    array: Array of shape [B, T].
    positions: Distinct positions in each sequence, an integer array of shape
      [B, K].
    values: New values at the positions, of shape [B, K].

  Returns:
    Array of shape [B, T].
  """
  return jax.vmap(
    lambda row, index, value: row.at[index].set(
      value, unique_indices=True, mode='promise_in_bounds'
    )
  )(array, positions, values)


def apply_choice(
  token_ids: jax.Array,
  choice: Choice,
  words: jax.Array,
  vocabulary: VocabularySpec,
) -> jax.Array:
  """Returns the model's input with selected tokens masked, replaced or kept.

  Before: token_ids [[1, 7, 8, 9, 2]], positions [[1, 3]], actions
  [[MASK, RANDOM]], words [[5, 6]], mask_id 4. After: [[1, 4, 8, 6, 2]].

  Args:
    token_ids: Token ids, int32 [B, T].
    choice: Tokens selected for masking, in K slots per sequence.
    words: Token ids of random words for the action RANDOM, int32 [B, K].
    vocabulary: Vocabulary specification with the id of the mask symbol.

  Returns:
    int32 array of shape [B, T].
  """
  input_ids = gather_rows(token_ids, choice.positions)
  input_ids = jnp.where(
    choice.actions == Action.MASK, vocabulary.mask_id, input_ids
  )
  input_ids = jnp.where(choice.actions == Action.RANDOM, words, input_ids)
  return scatter_rows(token_ids, choice.positions, input_ids)
