"""Sequence classification and question answering, compared with NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.errors import raises_error
from tests.objectives.finetuning import fixtures
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models import encoder, encoder_config
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.objectives import objective_base
from xlflax.objectives.finetuning import (
  question_answering,
  sequence_classification,
)
from xlflax.training.checkpointing import config_serialization
from xlflax.utils import errors

SPEC = VocabularySpec(
  size=23,
  pad_id=0,
  bos_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('en', 'de', 'fr'),
)
_CLASSES = sequence_classification.SequenceClassification(
  labels=('a', 'b', 'c')
)
_ANSWERS = question_answering.QuestionAnswering()


@pytest.fixture(scope='module')
def model():
  return encoder.Encoder(
    encoder_config.with_vocabulary(
      encoder_config.EncoderConfig(
        num_layers=2,
        hidden_dim=8,
        mlp_dim=12,
        num_heads=2,
        max_position_embeddings=16,
        dropout_rate=0.1,
        initializer_range=0.5,
      ),
      SPEC,
    )
  )


@pytest.fixture(scope='module')
def params(model):
  return fixtures.make_params(model, _CLASSES, _ANSWERS)


@pytest.fixture(scope='module')
def batch():
  """Sequences of 8, 6, 3 and 8 tokens; the last has no label or answer."""
  lengths, length = np.array([8, 6, 3, 8]), 8
  rng = np.random.default_rng(0)
  ids = rng.integers(5, SPEC.size, (4, length))
  ids[:, 0] = SPEC.bos_id
  present = (np.arange(length)[None] < lengths[:, None]).astype(np.int32)
  ids[np.arange(4), lengths - 1] = SPEC.eos_id
  context = present * (np.arange(length)[None] >= 3)
  context[np.arange(4), lengths - 1] = 0
  context[2, 1] = 1
  return {
    'token_ids': (ids * present).astype(np.int32),
    'segment_ids': present,
    'positions': np.arange(length, dtype=np.int32)[None] * present,
    'language_ids': np.array([[0], [2], [2], [1]], np.int32) * present,
    'labels': np.array([2, 0, 1, -1], np.int32),
    'context_mask': context,
    'start_positions': np.array([3, 4, 1, 0], np.int32),
    'end_positions': np.array([5, 4, 1, 0], np.int32),
  }


def _context(train=False, seed=0):
  return objective_base.ObjectiveContext(
    vocabulary=SPEC, step=jnp.int32(0), train=train, rng=jax.random.key(seed)
  )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run(objective, model, train, params, batch, rng):
  def total(params):
    output = objective(
      model,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=SPEC, step=jnp.int32(0), train=train, rng=rng
      ),
    )
    return output.loss.total, output

  (_, output), gradient = jax.value_and_grad(total, has_aux=True)(params)
  return output, gradient, objective.predict(model, params, batch, SPEC)


@pytest.fixture(scope='module')
def states(model, params, batch):
  """Encoder states, [B, T, H]."""
  names = 'segment_ids', 'positions', 'language_ids'
  encode = jax.jit(functools.partial(model.apply, method='encode'))
  return np.asarray(
    encode(
      {'params': params['model']},
      batch['token_ids'],
      **{name: batch[name] for name in names},
    )
  )


@pytest.fixture(scope='module')
def run(model, params, batch):
  def call(objective, *, train=False, seed=0, params=params, **changes):
    return _run(
      objective, model, train, params, batch | changes, jax.random.key(seed)
    )

  return call


def test_classification_equals_numpy(run, states, params):
  """Computes dense layer, tanh, output layer and softmax in NumPy."""
  output, _, logits = run(_CLASSES)
  head = jax.tree.map(np.asarray, params['heads'][_CLASSES.name])
  hidden = np.tanh(
    states[:, 0] @ head['dense']['kernel'] + head['dense']['bias'][None]
  )
  want = hidden @ head['output']['kernel'] + head['output']['bias'][None]
  np.testing.assert_allclose(logits, want, atol=1e-5)
  loss = -special.log_softmax(want, -1)[[0, 1, 2], [2, 0, 1]]
  np.testing.assert_allclose(output.loss.total, loss.sum(), rtol=1e-5)
  assert output.loss.weight == 3
  by_language = output.metrics['sequence_classification/loss']
  np.testing.assert_allclose(
    by_language.total, [loss[0], 0, loss[1] + loss[2]], rtol=1e-5
  )
  assert by_language.weight.tolist() == [1, 0, 2]
  right = want.argmax(-1)[:3] == [2, 0, 1]
  assert output.metrics['sequence_classification/accuracy'].total.tolist() == [
    right[0],
    0,
    right[1:].sum(),
  ]


def test_equal_logits_have_a_loss_of_log_3(run, params):
  flat = jax.tree.map(jnp.zeros_like, params['heads'])
  output, _, logits = run(_CLASSES, params=params | {'heads': flat})
  np.testing.assert_allclose(output.loss.total, 3 * np.log(3), rtol=1e-6)
  assert logits.shape == (4, 3) and logits.dtype == jnp.float32


def test_answers_equal_softmax_over_the_context(run, states, params, batch):
  output, _, logits = run(_ANSWERS)
  head = jax.tree.map(np.asarray, params['heads'][_ANSWERS.name])
  want = (
    states @ head['output']['kernel'] + head['output']['bias'][None, None]
  )  # [B, T, 2]
  loss = np.zeros(4)
  for row in range(4):
    allowed = [0, *np.flatnonzero(batch['context_mask'][row])]
    for column, key in enumerate(('start_positions', 'end_positions')):
      log_p = special.log_softmax(want[row, allowed, column])
      loss[row] -= log_p[allowed.index(batch[key][row])] / 2
  np.testing.assert_allclose(output.loss.total, loss.sum(), rtol=1e-5)
  assert output.loss.weight == 4
  metric = output.metrics['question_answering/loss']
  np.testing.assert_allclose(
    metric.total, [loss[0], loss[3], loss[1] + loss[2]], rtol=1e-5
  )
  # The first position represents a window without an answer.
  inside = batch['context_mask'] > 0
  inside[:, 0] = True
  for column, part in enumerate(logits):
    np.testing.assert_allclose(
      part[inside], want[..., column][inside], atol=1e-5
    )
    assert (part[~inside] == MASKED_SCORE).all()


def test_equal_answer_logits_have_a_loss_of_log_context_size(
  run, params, batch
):
  flat = jax.tree.map(jnp.zeros_like, params['heads'])
  output, _, _ = run(_ANSWERS, params=params | {'heads': flat})
  counts = batch['context_mask'].sum(1) + 1
  np.testing.assert_allclose(output.loss.total, np.log(counts).sum(), rtol=1e-6)
  accuracy = output.metrics['question_answering/accuracy']
  assert accuracy.total.sum() == 4  # Ties count as correct.
  assert accuracy.weight.tolist() == [1, 1, 2]


def test_answer_loss_ignores_padding(run, params, batch):
  """Padding affects neither the loss nor the gradient of the head."""
  output, gradient, _ = run(_ANSWERS)
  other = batch['token_ids'].copy()
  other[batch['segment_ids'] == 0] = 7
  changed, again, _ = run(_ANSWERS, token_ids=other)
  np.testing.assert_allclose(changed.loss.total, output.loss.total, rtol=1e-6)
  for a, b in zip(
    *(jax.tree.leaves(g['heads']) for g in (gradient, again)), strict=True
  ):
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_losses_of_subsets_add_up(run, batch):
  total_loss = float(run(_CLASSES)[0].loss.total)
  parts = []
  for rows in ([0, 2], [1]):
    labels = np.full(4, -1, np.int32)
    labels[rows] = batch['labels'][rows]
    output = run(_CLASSES, labels=labels)[0]
    assert output.loss.weight == len(rows)
    parts.append(float(output.loss.total))
  np.testing.assert_allclose(sum(parts), total_loss, rtol=1e-6)


def test_batch_without_labels_has_finite_gradients(run):
  output, gradient, _ = run(_CLASSES, labels=np.full(4, -1, np.int32))
  assert output.loss.total == 0 and output.loss.weight == 0
  assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient))
  output, gradient, _ = run(
    _ANSWERS,
    context_mask=np.zeros((4, 8), np.int32),
    start_positions=np.zeros(4, np.int32),
    end_positions=np.zeros(4, np.int32),
  )
  assert output.loss.total == 0
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize('objective', [_CLASSES, _ANSWERS])
def test_gradients_equal_finite_differences(run, params, objective):
  _, gradient, _ = run(objective)
  rng = np.random.default_rng(3)
  direction = jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), params['heads']
  )
  directional_derivative = sum(
    float(np.vdot(a, b))
    for a, b in zip(
      jax.tree.leaves(gradient['heads']),
      jax.tree.leaves(direction),
      strict=True,
    )
  )
  losses = [
    float(
      run(
        objective,
        params=params
        | {
          'heads': jax.tree.map(
            lambda x, d, sign=sign: x + sign * 1e-2 * d,
            params['heads'],
            direction,
          )
        },
      )[0].loss.total
    )
    for sign in (1, -1)
  ]
  np.testing.assert_allclose(
    directional_derivative, (losses[0] - losses[1]) / 2e-2, rtol=2e-2
  )
  assert any(
    np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient['model'])
  )


@pytest.mark.slow
def test_dropout_depends_on_the_key_only_in_training(run):
  first, same, other = (
    run(_CLASSES, train=True, seed=seed) for seed in (0, 0, 1)
  )
  assert first[0].loss.total == same[0].loss.total
  assert first[0].loss.total != other[0].loss.total
  np.testing.assert_array_equal(first[2], other[2])


@pytest.mark.slow
def test_eager_loss_equals_jit(run, model, params, batch):
  for objective in (_CLASSES, _ANSWERS):
    output = objective(model, params, batch, _context())
    np.testing.assert_allclose(
      output.loss.total, run(objective)[0].loss.total, rtol=1e-5
    )


@pytest.mark.parametrize('pooling', ['first', 'mean', 'late'])
def test_classification_ignores_padding(model, params, batch, pooling):
  objective = sequence_classification.SequenceClassification(
    labels=('a', 'b', 'c'), pooling=pooling
  )
  other = batch['token_ids'].copy()
  other[batch['segment_ids'] == 0] = 7
  predict = jax.jit(objective.predict, static_argnums=(0, 3))
  logits, changed = (
    predict(model, params, batch | {'token_ids': ids}, SPEC)
    for ids in (batch['token_ids'], other)
  )
  np.testing.assert_allclose(logits, changed, atol=1e-6)


def test_head_parameter_shapes(params):
  def shapes(tree):
    return jax.tree.map(lambda x: x.shape, tree)

  assert shapes(params['heads']) == {
    'sequence_classification': {
      'dense': {'kernel': (8, 8), 'bias': (8,)},
      'output': {'kernel': (8, 3), 'bias': (3,)},
    },
    'question_answering': {'output': {'kernel': (8, 2), 'bias': (2,)}},
  }


def test_objectives_round_trip_through_json():
  for objective in (_CLASSES, _ANSWERS):
    assert (
      config_serialization.from_json_config(
        config_serialization.to_json_config(objective)
      )
      == objective
    )


def test_invalid_settings_are_rejected():
  with raises_error(
    errors.ConfigError, got="('a', 'a')", where='SequenceClassification.labels'
  ):
    sequence_classification.SequenceClassification(labels=('a', 'a'))
  with raises_error(
    errors.ConfigError, got='largest', where='SequenceClassification.pooling'
  ):
    sequence_classification.SequenceClassification(
      labels=('a', 'b'), pooling='largest'
    )
