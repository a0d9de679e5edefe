"""Masking: which tokens are chosen and what the model sees instead.

A policy returns a `Choice` (positions, weights, actions); a source of random
words returns ids; `apply_choice` puts both together. All of it runs on the
device with static shapes (Devlin et al. 2019, section 3.1).
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
  """The input in place of a chosen token."""

  KEEP = 0
  MASK = 1
  RANDOM = 2


class Choice(NamedTuple):
  """The chosen tokens of each row, in K slots.

  Attributes:
    positions: int32 [B, K], different ones within a row.
    weights: float32 [B, K], 1 for a chosen token, 0 for a slot left over
      (its position is then any other token of the row, its action KEEP).
    actions: int32 [B, K], of `Action`.
  """

  positions: jax.Array
  weights: jax.Array
  actions: jax.Array


def special_runs(special_ids: tuple[int, ...]) -> list[tuple[int, int]]:
  """Returns runs (start, stop) of ids.

  Before: (0, 1, 2, 9); after: [(0, 3), (9, 10)].
  """
  runs: list[tuple[int, int]] = []
  for i in sorted(set(special_ids)):
    if runs and runs[-1][1] == i:
      runs[-1] = (runs[-1][0], i + 1)
    else:
      runs.append((i, i + 1))
  return runs


def is_special(token_ids: jax.Array, vocabulary: VocabularySpec) -> jax.Array:
  """True where an id is in `vocabulary.special_ids`; shape of `token_ids`."""
  special = jnp.zeros(token_ids.shape, bool)
  for start, stop in special_runs(vocabulary.special_ids):
    special |= (token_ids >= start) & (token_ids < stop)
  return special


def is_text(batch, vocabulary: VocabularySpec) -> jax.Array:
  """bool [B, T]: neither padding nor a special id.

  Before: token_ids [[1, 7, 9, 2, 0]] with special ids 0 to 4; after:
  [[F, T, T, F, F]].
  """
  token_ids = batch['token_ids']
  text = ~is_special(token_ids, vocabulary)
  if 'segment_ids' in batch:
    text &= batch['segment_ids'] > 0
  return text


def is_present(batch, vocabulary: VocabularySpec) -> jax.Array:
  """bool [B, T]: not padding (special symbols count)."""
  if 'segment_ids' in batch:
    return batch['segment_ids'] > 0
  return batch['token_ids'] != vocabulary.pad_id


def uniform_words(
  rng: jax.Array, language_ids: jax.Array, vocabulary: VocabularySpec
) -> jax.Array:
  """Draws ids uniformly from those that are not special.

  Any function of this signature can take its place, such as one that draws
  from the words of each position's language.

  Args:
    rng: key.
    language_ids: int [B, K], of the chosen positions; not used here.
    vocabulary: sizes and special ids.

  Returns:
    int32 [B, K].

  Raises:
    VocabularyError: every id of the vocabulary is special.
  """
  special = np.asarray(sorted(set(vocabulary.special_ids)), np.int32)
  ordinary = vocabulary.size - len(special)
  if ordinary < 1:
    raise errors.VocabularyError(
      'The vocabulary has no ordinary entries to draw random words from',
      got=f'{vocabulary.size} entries, all of them special',
    )
  rank = jax.random.randint(rng, (language_ids.size,), 0, ordinary, jnp.int32)
  rank = rank.reshape(language_ids.shape)  # see `_uniform`
  # The id of the r-th ordinary entry is r plus the special ids before it.
  for start, stop in special_runs(vocabulary.special_ids):
    rank = jnp.where(rank >= start, rank + (stop - start), rank)
  return rank


def _uniform(rng: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """`jax.random.uniform`, drawn in one dimension: the same numbers.

  XLA:CPU unrolls the generator over short last dimensions, and compiles that
  for a second.
  """
  return jax.random.uniform(rng, (math.prod(shape),)).reshape(shape)


def random_order(
  rng: jax.Array, first: jax.Array, words: jax.Array | None = None
) -> jax.Array:
  """Permutes each row at random, positions of `first` before the others.

  One uint32 per position is sorted: whether it is in `first`, random bits,
  and the position in the lowest bits. (Sorting keeps a sharded batch where it
  is, while `jax.lax.top_k` gathers all rows on every device.)

  Args:
    rng: key.
    first: bool [B, T].
    words: int32 [B, T], below T: positions of one word stay together, in
      their order; None: each stands for itself.

  Returns:
    int32 [B, T], positions.
  """
  length = first.shape[1]
  low = jnp.uint32((1 << max(length - 1, 1).bit_length()) - 1)
  bits = jax.random.bits(rng, first.shape, jnp.uint32)
  if words is not None:
    bits = jnp.take_along_axis(bits, words, axis=1)
  keys = (bits >> 1) & ~low
  keys |= jnp.arange(length, dtype=jnp.uint32)[None, :]
  keys |= jnp.where(first, jnp.uint32(0), jnp.uint32(1 << 31))
  return (jnp.sort(keys, axis=1) & low).astype(jnp.int32)


def check_bound(name: str, value: Any, bound: float | None) -> None:
  """Raises ConfigError for a schedule without bound, or a number above it.

  Args:
    name: of the field; that of its bound begins with `max_`.
    value: a number, or a function of the step.
    bound: the largest value.
  """
  if callable(value) and bound is None:
    raise errors.ConfigError(
      f'A scheduled {name} needs max_{name}',
      got=f'max_{name}=None',
      expected='a number above 0, up to 1',
      fix='set it to the largest value of the schedule',
    )
  if not callable(value) and bound is not None and value > bound:
    raise errors.ConfigError(
      f'{name} is above max_{name}', got=value, expected=f'at most {bound}'
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingPolicy:
  """Chooses an exact share of each row's maskable tokens, uniformly.

  A row with m maskable tokens gets n = round(mask_ratio * m) of them, at
  least 1 (0 if m = 0), halves rounded up.

  Attributes:
    mask_ratio: in (0, 1], or a function of the step (an Optax schedule).
    max_mask_ratio: bound of a scheduled ratio; it fixes the number of slots.
      Not needed for a constant one.
    mask_probability: share of chosen tokens that the mask symbol replaces.
    random_probability: share that random words replace; the rest is kept.
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
        'mask_probability and random_probability must be shares of one',
        got=f'{self.mask_probability} and {self.random_probability}',
        expected='two numbers whose sum is at most 1',
      )

  @property
  def largest_ratio(self) -> float:
    """The ratio that fixes the number of slots."""
    if self.max_mask_ratio is not None:
      return self.max_mask_ratio
    assert not callable(self.mask_ratio)  # refused by __post_init__
    return self.mask_ratio

  def num_slots(self, length: int) -> int:
    """K for rows of `length` tokens: ceil(largest ratio * length)."""
    slots = math.ceil(round(self.largest_ratio * length, 6))
    return min(max(slots, 1), length)

  def _counts(self, maskable: jax.Array, slots: int, step) -> jax.Array:
    """Number of tokens to choose per row, int32 [B]."""
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
    """Draws a choice.

    Args:
      rng: key.
      maskable: bool [B, T], the tokens that may be chosen.
      step: int scalar, for a scheduled ratio.
      words: int32 [B, T], the word of each token, of which all or none is
        chosen: no more tokens than without, and a longer word alone is cut.

    Returns:
      A choice with K = `num_slots(T)` slots.
    """
    slots = self.num_slots(maskable.shape[1])
    position_rng, action_rng = jax.random.split(rng)
    order = random_order(position_rng, maskable, words)
    positions = order[:, :slots]
    counts = self._counts(maskable, slots, step)
    if words is not None:
      counts = _whole(counts, jnp.take_along_axis(words, order, axis=1))
    chosen = jnp.arange(slots)[None, :] < counts[:, None]
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
      chosen.astype(jnp.float32),
      jnp.where(chosen, action, Action.KEEP),
    )


def _whole(counts: jax.Array, words: jax.Array) -> jax.Array:
  """The largest counts [B] up to those given at which a word of [B, T] ends.

  Before: counts [4], words [[2, 2, 0, 1, 1]]; after: [3].
  """
  ends = jnp.pad(
    words[:, 1:] != words[:, :-1], ((0, 0), (0, 1)), constant_values=True
  )
  places = jnp.arange(1, words.shape[1] + 1)[None]
  fits = ends & (places <= counts[:, None])
  largest_end = jnp.max(jnp.where(fits, places, 0), axis=1)
  return jnp.where(largest_end > 0, largest_end, counts)


def gather_rows(array: jax.Array, positions: jax.Array) -> jax.Array:
  """Returns `array [B, T, ...]` at `positions [B, K]`: [B, K, ...]."""
  return jax.vmap(
    lambda row, index: row.at[index].get(
      unique_indices=True, mode='promise_in_bounds'
    )
  )(array, positions)


def scatter_rows(
  array: jax.Array, positions: jax.Array, values: jax.Array
) -> jax.Array:
  """Returns `array [B, T]` with `values [B, K]` at `positions [B, K]`."""
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
  """Returns the model's input: chosen tokens masked, replaced or kept.

  Before: token_ids [[1, 7, 8, 9, 2]], positions [[1, 3]], actions
  [[MASK, RANDOM]], words [[5, 6]], mask_id 4; after: [[1, 4, 8, 6, 2]].

  Args:
    token_ids: int32 [B, T].
    choice: K slots a row.
    words: int32 [B, K], the random words.
    vocabulary: has the mask symbol.

  Returns:
    int32 [B, T].
  """
  input_ids = gather_rows(token_ids, choice.positions)
  input_ids = jnp.where(
    choice.actions == Action.MASK, vocabulary.mask_id, input_ids
  )
  input_ids = jnp.where(choice.actions == Action.RANDOM, words, input_ids)
  return scatter_rows(token_ids, choice.positions, input_ids)
