"""Common tests of the denoising objectives."""

import functools

import jax
import numpy as np
import pytest

from tests.errors import raises_error
from tests.objectives import encoder_decoder_fake as fake
from xlflax.objectives import objective_base, objective_metrics
from xlflax.objectives.pretraining.denoising import (
  MaskedSeq2Seq,
  SpanCorruption,
  TextInfilling,
)
from xlflax.utils import errors

OBJECTIVES = [
  SpanCorruption(),
  TextInfilling(label_smoothing=0.1),
  MaskedSeq2Seq(mask_ratio=0.3),
]
_all_objectives = pytest.mark.parametrize(
  'objective', OBJECTIVES, ids=lambda o: o.name
)


def _assert_close(a, b):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), a, b
  )


@pytest.fixture(scope='module')
def batch():
  rng = np.random.default_rng(3)
  texts = [
    [fake.text(rng, n) for n in lines]
    for lines in ([5, 9], [13], [4, 2, 3], [])
  ]
  batch = fake.batch_of(texts, 18, [0, 1, 2, 0])
  for values in batch.values():
    values[3] = 0
  return batch


def _labels(objective, batch, context):
  """Returns the tokens that each sequence is trained to predict."""
  _, target, scored = fake.rows(objective, batch, context)
  rows = []
  for b, row in enumerate(target['token_ids']):
    counted = range(1, len(fake.filled(row)))
    rows.append(
      [int(row[t]) for t in counted if scored is None or scored[b, t]]
    )
  return rows


@_all_objectives
def test_loss_of_a_uniform_model(objective, batch):
  """Every label has a loss of log V."""
  zeros = jax.tree.map(np.zeros_like, fake.params())
  output, _ = fake.run(objective, batch, fake.context(), zeros)
  count = sum(map(len, _labels(objective, batch, fake.context())))
  assert output.loss.weight == count > 0
  np.testing.assert_allclose(
    output.loss.total, count * np.log(fake.SPEC.size), rtol=1e-6
  )


@_all_objectives
def test_metrics_per_language(objective, batch):
  output, _ = fake.run(objective, batch, fake.context())
  labels = _labels(objective, batch, fake.context())
  loss = output.metrics[f'{objective.name}/loss']
  assert loss.weight.tolist() == [len(row) for row in labels[:3]]
  got = objective_metrics.finalize_metrics(output.metrics, fake.SPEC.languages)
  np.testing.assert_allclose(
    got[f'{objective.name}/loss'],
    objective_base.weighted_mean(output.loss),
    rtol=1e-5,
  )
  assert got[f'{objective.name}/tokens/en'] > len(labels[0])


@_all_objectives
def test_empty_batch_has_zero_loss_and_gradient(objective, batch):
  empty = jax.tree.map(np.zeros_like, batch)
  output, gradient = fake.run(objective, empty, fake.context())
  assert output.loss == (0.0, 0.0)
  assert all((g == 0).all() for g in jax.tree.leaves(gradient))


@_all_objectives
def test_gradient_equals_finite_differences(objective, batch):
  context = fake.context()
  _, gradient = fake.run(objective, batch, context)
  rng = np.random.default_rng(0)
  direction = jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), fake.params()
  )

  def total(scale):
    moved = jax.tree.map(
      lambda p, d: p + np.float32(scale) * d, fake.params(), direction
    )
    return fake.run(objective, batch, context, moved)[0].loss.total

  numerical = (total(1e-2) - total(-1e-2)) / 2e-2
  dots = jax.tree.map(lambda g, d: np.sum(g * d), gradient, direction)
  np.testing.assert_allclose(sum(jax.tree.leaves(dots)), numerical, rtol=2e-2)


def test_noise_depends_on_the_key(batch):
  first, second, again = (
    fake.rows(TextInfilling(), batch, fake.context(seed))[0]['token_ids']
    for seed in (0, 1, 0)
  )
  assert (first == again).all() and (first != second).any()


def test_masked_tokens_are_predicted(batch):
  objective = MaskedSeq2Seq(
    mask_ratio=0.3, mask_probability=1.0, random_probability=0.0
  )
  source, target, scored = fake.rows(objective, batch, fake.context())
  np.testing.assert_array_equal(scored, source['token_ids'] == fake.MASK)
  np.testing.assert_array_equal(target['token_ids'], batch['token_ids'])
  assert scored.sum(1).tolist() == [4, 4, 3, 0]
  everything = MaskedSeq2Seq(predicted='all')
  assert (
    _labels(everything, batch, fake.context())[1]
    == fake.filled(batch['token_ids'][1])[1:]
  )


def test_infilling_adds_language_symbols(batch):
  """As in mBART, encoder inputs end and decoder inputs start with them."""
  from xlflax.objectives import teacher_forcing
  from xlflax.objectives.pretraining import seq2seq

  objective = TextInfilling()
  source, target, _ = fake.rows(objective, batch, fake.context())
  source = seq2seq.with_symbols(source, objective.source_symbols, fake.SPEC)
  for b, symbol in enumerate(fake.SYMBOLS):
    assert fake.filled(source['token_ids'][b])[-2:] == [fake.EOS, symbol]
  first = teacher_forcing.start_ids(
    teacher_forcing.row_languages(target, fake.SPEC),
    objective.decoder_start,
    fake.SPEC,
  )
  assert first.tolist() == [*fake.SYMBOLS, fake.SYMBOLS[0]]


def test_segments_are_ignored(batch):
  """The decoder reconstructs the complete sequence."""
  packed = jax.tree.map(np.copy, batch)
  packed['segment_ids'][0, 7:] *= 2
  packed['positions'][0, 7:] -= 7
  for objective in OBJECTIVES:
    jax.tree.map(
      np.testing.assert_array_equal,
      fake.rows(objective, packed, fake.context()),
      fake.rows(objective, batch, fake.context()),
    )


def test_default_names():
  assert [o.name for o in OBJECTIVES] == [
    'span_corruption',
    'infilling',
    'masked_seq2seq',
  ]


def test_unknown_predicted_tokens_are_rejected():
  with raises_error(
    errors.ConfigError, got='some', where='MaskedSeq2Seq.predicted'
  ):
    MaskedSeq2Seq(predicted='some')
