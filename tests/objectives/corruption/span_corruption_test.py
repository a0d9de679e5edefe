"""Span corruption: comparison with Python lists, and distributions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from tests.errors import raises_error
from tests.objectives import encoder_decoder_fake as fake
from xlflax.objectives.corruption import span_corruption
from xlflax.objectives.corruption.span_corruption import SpanPolicy
from xlflax.objectives.pretraining.denoising import SpanCorruption
from xlflax.utils import errors

_POLICY = SpanPolicy()


@functools.partial(jax.jit, static_argnums=(0, 3))
def _draw(policy, rng, tokens, text_length, step=0):
  return policy(rng, tokens, text_length, step)


@functools.partial(jax.jit, static_argnums=2)
def _apply(batch, spans, lengths):
  return span_corruption.apply_span_corruption(batch, spans, lengths, fake.SPEC)


def _split(text, kept, dropped):
  """Returns the T5 inputs and targets of one text."""
  inputs, targets, position = [], [fake.BOS], 0
  for s, (keep, drop) in enumerate(zip(kept, dropped, strict=True)):
    inputs += text[position : position + keep]
    position += keep
    if drop:
      inputs.append(fake.SENTINELS[s])
      targets += [fake.SENTINELS[s], *text[position : position + drop]]
      position += drop
  assert position == len(text)
  return inputs + [fake.EOS], targets + [fake.EOS]


def _join(inputs, targets):
  """Reconstructs the text from inputs and targets."""
  spans, sentinel = {}, None
  for token in targets[1:-1]:
    if token in fake.SENTINELS:
      sentinel = token
      spans[sentinel] = []
    else:
      spans[sentinel].append(token)
  text = []
  for token in inputs[:-1]:
    text += spans.pop(token) if token in fake.SENTINELS else [token]
  assert not spans
  return text


@pytest.fixture(scope='module')
def batch():
  """Blocks of 22, 21, 9, 2, 1 and 0 text tokens."""
  rng = np.random.default_rng(1)
  texts = [
    [fake.text(rng, n) for n in lines]
    for lines in ([22], [10, 11], [3, 6], [2], [1], [])
  ]
  return fake.batch_of(texts, 25, [0, 1, 2, 0, 1, 0])


def _texts(batch):
  special = {*fake.SPEC.special_ids}
  return [
    [int(t) for t in row if int(t) not in special] for row in batch['token_ids']
  ]


def test_span_corruption_equals_lists(batch):
  tokens = jnp.array([len(t) for t in _texts(batch)])
  spans = _draw(_POLICY, jax.random.key(2), tokens, 23)
  inputs, targets = _apply(batch, spans, (24, 8))
  for b, text in enumerate(_texts(batch)):
    want = _split(
      text,
      np.asarray(spans.kept_lengths[b]),
      np.asarray(spans.dropped_lengths[b]),
    )
    assert fake.filled(inputs['token_ids'][b]) == want[0]
    assert fake.filled(targets['token_ids'][b]) == (
      want[1] if len(text) > 1 else []
    )
    assert targets['segment_ids'][b].sum() == (
      len(want[1]) if len(text) > 1 else 0
    )
    language = batch['language_ids'][b].max()
    assert set(np.asarray(inputs['language_ids'][b, : len(want[0])])) == {
      language
    }


def test_span_corruption_of_given_spans():
  batch = fake.batch_of([[[8, 9, 10, 11, 12]]], 7, [0])
  spans = span_corruption.Spans(np.array([[1, 2]]), np.array([[1, 1]]))
  inputs, targets = _apply(batch, spans, (6, 6))
  x, y = fake.SENTINELS[:2]
  assert inputs['token_ids'].tolist() == [[8, x, 10, 11, y, 2]]
  assert targets['token_ids'].tolist() == [[1, x, 9, y, 12, 2]]


@pytest.mark.parametrize('seed', range(3))
def test_text_can_be_reconstructed(batch, seed):
  """The objective has static input and target lengths."""
  source, target, scored = fake.rows(
    SpanCorruption(), batch, fake.context(seed)
  )
  assert source['token_ids'].shape == (6, 22) and scored is None
  # 23 tokens have one span of 3 tokens.
  assert target['token_ids'].shape == (6, 6)
  for b, text in enumerate(_texts(batch)[:4]):
    assert (
      _join(
        fake.filled(source['token_ids'][b]), fake.filled(target['token_ids'][b])
      )
      == text
    )


def test_lengths_equal_t5():
  """568 tokens have 512 inputs, and 114 targets after the start symbol."""
  assert _POLICY.lengths(568) == (512, 115)
  assert _POLICY.num_slots(568) == 28


@pytest.mark.parametrize(
  'policy',
  [
    _POLICY,
    SpanPolicy(noise_density=0.5, mean_span_length=1.0),
    SpanPolicy(noise_density=0.9, mean_span_length=4.0),
  ],
)
def test_numbers_of_tokens_and_spans_are_exact(policy):
  tokens = np.arange(2, 120)
  drop, spans = policy.counts(tokens, policy.noise_density, np)
  traced = jax.jit(lambda n: policy.counts(n, policy.noise_density))(tokens)
  np.testing.assert_array_equal(drop, traced[0])
  np.testing.assert_array_equal(spans, traced[1])
  spans_drawn = _draw(policy, jax.random.key(0), jnp.asarray(tokens), 119)
  for lengths, total in (
    (spans_drawn.kept_lengths, tokens - drop),
    (spans_drawn.dropped_lengths, drop),
  ):
    lengths = np.asarray(lengths)
    np.testing.assert_array_equal(lengths.sum(1), total)
    np.testing.assert_array_equal((lengths > 0).sum(1), spans)
    assert (np.diff((lengths > 0).astype(int), axis=1) <= 0).all()
  assert (np.asarray(spans_drawn.kept_lengths).sum(1) + spans + 1).max() <= (
    policy.lengths(119)[0]
  )
  plain = np.clip(np.round(policy.noise_density * tokens), 1, tokens - 1)
  assert (np.abs(drop - plain) <= 1).all() and (drop == plain).mean() > 0.95


def test_distribution_of_span_lengths():
  """Tests the fraction of dropped tokens and the lengths of spans.

  If m tokens are divided into k spans, a span has length l with probability
  C(m - l - 1, k - 2) / C(m - 1, k - 1).
  """
  rows, n = 100_000, 60
  samples = _draw(_POLICY, jax.random.key(1), jnp.full(rows, n), n)
  dropped = np.asarray(samples.dropped_lengths)
  drop, spans = 9, 3
  assert (dropped.sum(1) == drop).all() and drop / n == 0.15
  for span in range(spans):
    counts = np.bincount(dropped[:, span], minlength=drop)[1 : drop - 1]
    expected = np.array([drop - length - 1 for length in range(1, drop - 1)])
    expected = expected / expected.sum() * rows
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3
  # The second span never starts at the first two tokens.
  starts = (
    np.cumsum(np.asarray(samples.kept_lengths), 1)[:, :spans]
    + (np.cumsum(dropped, 1) - dropped)[:, :spans]
  )
  counts = np.bincount(starts[:, 1], minlength=n)
  assert counts[:2].sum() == 0 and counts[n // 2] > 0


def test_noise_density_follows_the_schedule():
  objective = SpanCorruption(
    noise_density=optax.linear_schedule(0.1, 0.4, 10), max_noise_density=0.4
  )
  rng = np.random.default_rng(0)
  batch = fake.batch_of([[fake.text(rng, 20)]], 22, [0])
  shapes, dropped = set(), []
  for step in (0, 10):
    source, target, _ = fake.rows(objective, batch, fake.context(step=step))
    shapes.add((source['token_ids'].shape, target['token_ids'].shape))
    dropped.append(
      len(
        [
          t
          for t in fake.filled(target['token_ids'][0])
          if t not in fake.SPEC.special_ids
        ]
      )
    )
  assert dropped == [2, 8] and len(shapes) == 1


def test_too_few_sentinels_are_rejected():
  batch = fake.batch_of([[[8] * 60]], 62, [0])
  with raises_error(errors.VocabularyError, mentions=(4, 9, '--extra_ids=9')):
    fake.rows(SpanCorruption(mean_span_length=1.0), batch, fake.context())


@pytest.mark.parametrize(
  ('settings', 'value'),
  [
    ({'noise_density': 0.0}, 0.0),
    ({'noise_density': 1.0}, 1.0),
    ({'noise_density': 0.5, 'max_noise_density': 0.2}, 0.5),
    ({'noise_density': lambda step: 0.1}, 'max_noise_density'),
    ({'mean_span_length': 0.5}, 0.5),
  ],
)
def test_invalid_settings_are_rejected(settings, value):
  with raises_error(errors.ConfigError, mentions=value):
    SpanCorruption(**settings)
