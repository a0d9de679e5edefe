"""Selection and corruption of tokens for masked language modeling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from tests.errors import raises_error
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives.corruption import masking
from xlflax.objectives.corruption.masking import Action, MaskingPolicy
from xlflax.utils import errors


@functools.partial(jax.jit, static_argnums=0)
def _draw(policy, seed, maskable, step=0):
  return policy(jax.random.key(seed), maskable, step)


def _chosen(choice, length):
  """Returns a NumPy mask of the chosen positions, bool [B, T]."""
  chosen = np.zeros((choice.positions.shape[0], length), bool)
  for row, positions, weights in zip(
    chosen, *map(np.asarray, choice[:2]), strict=True
  ):
    row[positions[weights > 0]] = True
  return chosen


def test_is_text_and_is_present(vocabulary):
  tokens = jnp.array([[1, 7, 9, 2, 0, 10, 22, 21]])
  got = masking.is_text({'token_ids': tokens}, vocabulary)
  np.testing.assert_array_equal(got[0], [0, 1, 1, 0, 0, 0, 0, 1])
  padded = {
    'token_ids': tokens,
    'segment_ids': jnp.array([[1, 1, 0, 1, 0, 1, 1, 1]]),
  }
  np.testing.assert_array_equal(
    masking.is_text(padded, vocabulary)[0], [0, 1, 0, 0, 0, 0, 0, 1]
  )
  np.testing.assert_array_equal(
    masking.is_present(padded, vocabulary)[0], [1, 1, 0, 1, 0, 1, 1, 1]
  )


def test_is_special_equals_membership(vocabulary):
  ids = jnp.arange(vocabulary.size)
  np.testing.assert_array_equal(
    masking.is_special(ids, vocabulary),
    np.isin(np.arange(vocabulary.size), vocabulary.special_ids),
  )


@pytest.mark.parametrize('ratio', [1e-6, 0.15, 0.5, 1.0])
def test_numbers_of_chosen_tokens_are_exact(ratio):
  length = 20
  maskable = np.arange(length)[None] < np.arange(length + 1)[:, None]
  choice = _draw(MaskingPolicy(mask_ratio=ratio), 0, maskable)
  available = maskable.sum(axis=1)
  want = np.minimum(np.maximum(np.floor(ratio * available + 0.5), 1), available)
  np.testing.assert_array_equal(choice.weights.sum(axis=1), want)
  assert not (_chosen(choice, length) & ~maskable).any()
  for positions in np.asarray(choice.positions):
    assert len(set(positions)) == len(positions)


def test_words_are_chosen_completely():
  """The words have 1 to 4 tokens; the first sequence has no text."""
  word_ids = np.array([[0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 4, 5, 6, 6, 7, 7]] * 3)
  maskable = np.ones(word_ids.shape, bool)
  maskable[0] = False
  maskable[2, 11:] = False
  policy = MaskingPolicy(mask_ratio=0.4)
  draw = jax.jit(
    lambda seed: policy(jax.random.key(seed), maskable, 0, word_ids)
  )
  times_chosen = np.zeros(word_ids.shape, int)
  for seed in range(60):
    chosen = _chosen(draw(seed), word_ids.shape[1])
    times_chosen += chosen
    for row, row_word_ids, may in zip(chosen, word_ids, maskable, strict=True):
      for word in range(8):
        assert len({*row[may & (row_word_ids == word)]}) < 2
    counts = chosen.sum(1)
    assert counts[0] == 0 and 3 <= counts[1] <= 6 and 1 <= counts[2] <= 4
  assert (times_chosen[1:][maskable[1:]] > 0).all() and not times_chosen[
    ~maskable
  ].any()


def test_word_longer_than_the_limit_is_truncated():
  word_ids = np.zeros((1, 10), np.int32)
  choice = MaskingPolicy(mask_ratio=0.3)(
    jax.random.key(0), np.ones((1, 10), bool), 0, word_ids
  )
  assert _chosen(choice, 10).sum() == 3


def test_all_tokens_are_chosen_at_ratio_one():
  maskable = np.array([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
  choice = _draw(MaskingPolicy(mask_ratio=1.0), 3, maskable)
  np.testing.assert_array_equal(_chosen(choice, 5), maskable)


@pytest.mark.parametrize(
  'mask, random, only',
  [(1.0, 0.0, Action.MASK), (0.0, 1.0, Action.RANDOM), (0.0, 0.0, Action.KEEP)],
)
def test_actions_at_probabilities_zero_and_one(mask, random, only):
  policy = MaskingPolicy(mask_probability=mask, random_probability=random)
  choice = _draw(policy, 0, np.ones((50, 40), bool))
  assert set(np.asarray(choice.actions).ravel()) == {only}


def test_unused_slots_have_weight_zero():
  maskable = np.array([[1, 1, 0, 0, 0, 0, 0, 0]] * 4, bool)
  choice = _draw(
    MaskingPolicy(mask_ratio=0.5, mask_probability=1.0, random_probability=0.0),
    0,
    maskable,
  )
  np.testing.assert_array_equal(choice.weights, [[1.0, 0.0, 0.0, 0.0]] * 4)
  np.testing.assert_array_equal(choice.actions, [[1, 0, 0, 0]] * 4)


def test_distribution_of_actions_and_positions():
  rows, length = 6000, 110  # 6,000 x 17 = 1.0e5 chosen tokens
  maskable = np.ones((rows, length), bool)
  maskable[:, [0, 40, 109]] = False
  choice = jax.tree.map(
    np.asarray, _draw(MaskingPolicy(mask_ratio=0.159), 1, maskable)
  )
  total = int(choice.weights.sum())
  assert total == rows * 17
  counts = np.bincount(choice.actions[choice.weights > 0], minlength=3)
  expected = total * np.array([0.1, 0.8, 0.1])
  assert stats.chisquare(counts, expected).pvalue > 1e-3
  chosen = _chosen(choice, length)
  assert not chosen[:, ~maskable[0]].any()
  by_position = chosen.sum(axis=0)[maskable[0]]
  # Sampling without replacement multiplies the statistic by 1 - n / m.
  statistic = stats.chisquare(by_position).statistic / (1 - 17 / 107)
  assert 1e-3 < stats.chi2.sf(statistic, 106) < 1 - 1e-3
  neighbors = (chosen[:, 1:40] & chosen[:, :39])[:, 1:].mean()
  np.testing.assert_allclose(neighbors, 17 * 16 / (107 * 106), rtol=0.05)


def test_random_words_are_uniform_over_ordinary_ids(vocabulary):
  random_ids = np.asarray(
    jax.jit(masking.uniform_words, static_argnums=2)(
      jax.random.key(0), jnp.zeros((1000, 100), jnp.int32), vocabulary
    )
  )
  counts = np.bincount(random_ids.ravel(), minlength=vocabulary.size)
  special = np.asarray(vocabulary.special_ids)
  assert (counts[special] == 0).all() and counts.sum() == 1e5
  assert stats.chisquare(np.delete(counts, special)).pvalue > 1e-3


def test_vocabulary_without_ordinary_ids_is_rejected():
  empty = VocabularySpec(
    size=5,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=('en',),
  )
  with raises_error(errors.VocabularyError, mentions=5):
    masking.uniform_words(jax.random.key(0), jnp.zeros((1, 1)), empty)


def test_apply_choice(vocabulary):
  choice = masking.Choice(
    jnp.array([[1, 3]]),
    jnp.ones((1, 2)),
    jnp.array([[Action.MASK, Action.RANDOM]]),
  )
  got = jax.jit(masking.apply_choice, static_argnums=3)(
    jnp.array([[1, 7, 8, 9, 2]]), choice, jnp.array([[5, 6]]), vocabulary
  )
  np.testing.assert_array_equal(got, [[1, 4, 8, 6, 2]])


def test_gather_and_scatter_rows():
  array = jnp.arange(24).reshape(2, 4, 3)
  positions = jnp.array([[3, 0], [1, 2]])
  np.testing.assert_array_equal(
    masking.gather_rows(array, positions),
    np.stack(
      [np.asarray(array)[b][np.asarray(positions)[b]] for b in range(2)]
    ),
  )
  got = masking.scatter_rows(
    jnp.zeros((2, 4)), positions, jnp.array([[1.0, 2.0], [3.0, 4.0]])
  )
  np.testing.assert_array_equal(
    got, [[2.0, 0.0, 0.0, 1.0], [0.0, 3.0, 4.0, 0.0]]
  )


def test_scheduled_ratio_follows_the_step():
  policy = MaskingPolicy(
    mask_ratio=optax.linear_schedule(0.1, 0.5, 10), max_mask_ratio=0.4
  )
  maskable = np.ones((3, 20), bool)
  assert policy.num_slots(20) == 8
  for step, want in ((0, 2), (5, 6), (10, 8)):  # The ratio is limited to 0.4.
    choice = _draw(policy, 0, maskable, step)
    assert choice.positions.shape == (3, 8)
    np.testing.assert_array_equal(choice.weights.sum(axis=1), want)


def test_num_slots():
  assert [
    MaskingPolicy(mask_ratio=r).num_slots(n)
    for r, n in ((0.15, 128), (0.15, 20), (0.25, 512), (1e-6, 5), (1.0, 7))
  ] == [20, 3, 128, 1, 7]


def test_choice_depends_only_on_the_key():
  maskable = np.ones((4, 30), bool)
  policy = MaskingPolicy()
  a, b, c = (_draw(policy, seed, maskable) for seed in (0, 0, 1))
  np.testing.assert_array_equal(a.positions, b.positions)
  assert (a.positions != c.positions).any()


@pytest.mark.parametrize(
  'settings, values',
  [
    ({'mask_ratio': 0.0}, (0.0, 'MaskingPolicy.mask_ratio')),
    ({'mask_ratio': 1.5}, (1.5, 'MaskingPolicy.mask_ratio')),
    (
      {'mask_ratio': 0.3, 'max_mask_ratio': 0.2},
      ('max_mask_ratio', '0.2', 0.3),
    ),
    ({'mask_ratio': lambda step: 0.1}, ('max_mask_ratio', None)),
    ({'random_probability': 0.3}, (1, '0.8', '0.3')),
    ({'mask_probability': -0.1}, (-0.1, 'MaskingPolicy.mask_probability')),
  ],
)
def test_invalid_settings_are_rejected(settings, values):
  with raises_error(errors.ConfigError, mentions=values):
    MaskingPolicy(**settings)


@pytest.mark.parametrize('shape', [(3, 5), (8, 64)])
def test_uniform_equals_jax_random(shape):
  key = jax.random.key(4)
  np.testing.assert_array_equal(
    masking._uniform(key, shape), jax.random.uniform(key, shape)
  )
