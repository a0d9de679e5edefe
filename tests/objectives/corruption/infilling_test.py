"""Compares text infilling and sentence permutation with Python lists."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.errors import raises_error
from tests.objectives import encoder_decoder_fake as fake
from xlflax.objectives.corruption import infilling
from xlflax.objectives.corruption.infilling import InfillingPolicy, WordSpans
from xlflax.objectives.pretraining.denoising import TextInfilling
from xlflax.utils import errors

_POLICY = InfillingPolicy()


@functools.partial(jax.jit, static_argnums=(0, 3))
def _draw(policy, rng, words, length):
  return policy(rng, words, length)


@pytest.fixture(scope='module')
def batch():
  """Blocks of three, two and one sentences, one word, and no text."""
  rng = np.random.default_rng(1)
  texts = [
    [fake.text(rng, n) for n in lines]
    for lines in ([5, 7, 6], [10, 9], [3], [1], [])
  ]
  return fake.batch_of(texts, 24, [0, 1, 2, 0, 1])


def _words(row):
  """Splits a sequence into words (lists) and special symbols (numbers)."""
  parts = []
  for token in fake.filled(row):
    if token in fake.SPEC.special_ids:
      parts.append(token)
    elif fake.begins_word(token) or not parts or isinstance(parts[-1], int):
      parts.append([token])
    else:
      parts[-1].append(token)
  return parts


def _infill(parts, gaps, spans, used):
  """Replaces spans of words by masks with Python lists."""
  masks, covered, position = {}, set(), 0
  for gap, span, use in zip(gaps, spans, used, strict=True):
    if use:
      position += gap
      masks[position] = masks.get(position, 0) + 1
      covered |= set(range(position, position + span))
      position += span
  out, word = [], 0
  last = max(
    (i for i, p in enumerate(parts) if isinstance(p, list)), default=-1
  )
  for i, part in enumerate(parts):
    if i == last + 1:
      out += [fake.MASK] * masks.get(sum(isinstance(p, list) for p in parts), 0)
    if isinstance(part, int):
      out.append(part)
      continue
    out += [fake.MASK] * masks.get(word, 0)
    out += [] if word in covered else part
    word += 1
  return out


_apply = jax.jit(
  functools.partial(infilling.apply_infilling, vocabulary=fake.SPEC)
)


@pytest.mark.parametrize('seed', range(4))
def test_infilling_equals_lists(batch, seed):
  parts = [_words(row) for row in batch['token_ids']]
  counts = [sum(isinstance(p, list) for p in row) for row in parts]
  starts = infilling.word_starts(batch, fake.SPEC)
  assert starts.sum(1).tolist() == counts
  word_spans = _draw(
    InfillingPolicy(mask_ratio=0.5, poisson_lambda=1.0),
    jax.random.key(seed),
    jnp.array(counts),
    24,
  )
  got = _apply(batch, word_spans)
  for b, row in enumerate(parts):
    want = _infill(row, *(np.asarray(x[b]) for x in word_spans))
    assert fake.filled(got['token_ids'][b]) == want
    assert got['segment_ids'][b].sum() == len(want)
    assert len(want) <= len(fake.filled(batch['token_ids'][b]))


def _plan(gaps, spans):
  return WordSpans(
    *(jnp.array([x]) for x in (gaps, spans)), jnp.ones((1, len(gaps)), bool)
  )


@pytest.mark.parametrize(
  ('gaps', 'spans', 'want'),
  [
    ([1], [2], [1, 8, 4, 13, 2]),  # docstring example
    ([0, 1], [0, 1], [1, 4, 8, 4, 10, 13, 2]),  # inserted mask
    ([4], [0], [1, 8, 9, 10, 13, 4, 2]),  # inserted mask at the end
    ([2, 0], [1, 1], [1, 8, 9, 4, 4, 2]),  # adjacent masks
  ],
)
def test_infilling_of_given_spans(gaps, spans, want):
  batch = fake.batch_of([[[8, 9, 10, 13]]], 8, [1])
  got = _apply(batch, _plan(gaps, spans))
  assert fake.filled(got['token_ids'][0]) == want
  assert got['language_ids'].max() == 1


def test_words_are_masked_completely_without_special_symbols():
  """8 11 and 14 12 are words of two tokens; the span crosses </s>."""
  batch = fake.batch_of([[[8, 11], [14, 12, 9]]], 9, [0])
  assert infilling.word_starts(batch, fake.SPEC).tolist() == [
    [False, True, False, False, True, False, True, False, False]
  ]
  got = _apply(batch, _plan([0], [2]))
  assert fake.filled(got['token_ids'][0]) == [1, 4, 2, 9, 2]


def test_without_word_starts_every_token_is_a_word(vocabulary):
  batch = fake.batch_of([[[8, 11, 12]]], 6, [0])
  assert infilling.word_starts(batch, vocabulary).sum() == 3
  # XLM marks the ends of words, so no id starts a word.
  size = len(fake.SPEC.word_starts)
  unmarked = dataclasses.replace(fake.SPEC, word_starts=bytes(size))
  assert infilling.word_starts(batch, unmarked).sum() == 3


@functools.partial(jax.jit, static_argnums=2)
def _permute(batch, rng, spec):
  return infilling.permute_sentences(batch, rng, spec)


def _sentences(row):
  """Returns the sorted sentences of a sequence with their end symbols."""
  parts = [[]]
  for token in fake.filled(row)[1:]:
    parts[-1].append(token)
    if token == fake.EOS:
      parts.append([])
  return sorted(parts)


def test_permutation_keeps_all_sentences(batch):
  got = np.asarray(_permute(batch, jax.random.key(3), fake.SPEC)['token_ids'])
  for row, other in zip(batch['token_ids'], got, strict=True):
    assert _sentences(row) == _sentences(other)
    assert other[0] == fake.BOS and (other == 0).sum() == (row == 0).sum()
  assert (got != batch['token_ids']).any()


def test_sentence_orders_are_uniform():
  batch = fake.batch_of([[[8], [9, 11], [10]]] * 30_000, 9, [0] * 30_000)
  got = _permute(batch, jax.random.key(2), fake.SPEC)['token_ids']
  orders, counts = np.unique(np.asarray(got), axis=0, return_counts=True)
  assert len(orders) == 6
  assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_span_lengths_follow_a_poisson_distribution():
  """Each of 10^5 sequences has exactly round(0.35 w) masked words."""
  rows, num_words = 100_000, 40
  word_spans = jax.tree.map(
    np.asarray,
    _draw(_POLICY, jax.random.key(0), jnp.full(rows, num_words), num_words),
  )
  num_masked = math.floor(0.35 * num_words + 0.5)
  assert (word_spans.spans.sum(1) == num_masked).all()
  assert (
    (word_spans.gaps * word_spans.used).sum(1) <= num_words - num_masked
  ).all()
  first = word_spans.spans[:, 0]
  counts = np.bincount(np.minimum(first, 10), minlength=11)
  expected = scipy.stats.poisson(3.5).pmf(np.arange(11))
  expected[10] = 1 - expected[:10].sum()
  assert scipy.stats.chisquare(counts, expected * rows).pvalue > 1e-3


def test_span_positions_are_uniform():
  """Each of 10^5 sequences has one span of one word."""
  rows, num_words = 100_000, 9
  policy = InfillingPolicy(mask_ratio=1 / 9, poisson_lambda=1.0)
  word_spans = jax.tree.map(
    np.asarray,
    _draw(policy, jax.random.key(3), jnp.full(rows, num_words), num_words),
  )
  assert (word_spans.spans.sum(1) == 1).all() and (
    word_spans.used.sum(1) == 1
  ).all()
  counts = np.bincount(word_spans.gaps[:, 0], minlength=num_words)
  assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
  'policy', [_POLICY, InfillingPolicy(mask_ratio=1.0, poisson_lambda=2.0)]
)
def test_numbers_of_masked_words_are_exact(policy):
  num_words = np.arange(64)
  word_spans = jax.tree.map(
    np.asarray, _draw(policy, jax.random.key(5), jnp.asarray(num_words), 63)
  )
  num_masked = np.minimum(
    np.maximum(
      np.floor(
        np.float32(policy.mask_ratio) * num_words.astype(np.float32) + 0.5
      ),
      1,
    ),
    num_words,
  )
  np.testing.assert_array_equal(word_spans.spans.sum(1), num_masked)
  assert (word_spans.used.sum(1) <= np.maximum(num_masked, 0)).all()
  assert (word_spans.spans[~word_spans.used] == 0).all()


def test_target_is_the_original_sequence(batch):
  """The source contains only masks and tokens of the original."""
  source, target, scored = fake.rows(TextInfilling(), batch, fake.context(4))
  assert target is not batch and scored is None
  np.testing.assert_array_equal(target['token_ids'], batch['token_ids'])
  for b, row in enumerate(batch['token_ids']):
    visible = [t for t in fake.filled(source['token_ids'][b]) if t != fake.MASK]
    original = fake.filled(row)
    for token in set(visible):
      assert visible.count(token) <= original.count(token)
    assert [t for t in visible if t in (1, 2)].count(2) == original.count(2)


def test_order_is_unchanged_without_permutation(batch):
  source, _, _ = fake.rows(
    TextInfilling(permute_sentences=False), batch, fake.context(4)
  )
  for b, row in enumerate(batch['token_ids']):
    original = iter(fake.filled(row))
    assert all(
      token in original
      for token in fake.filled(source['token_ids'][b])
      if token != fake.MASK
    )


@pytest.mark.parametrize(
  ('settings', 'got'),
  [({'mask_ratio': 0.0}, 0.0), ({'poisson_lambda': 0.5}, 0.5)],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    TextInfilling(**settings)
