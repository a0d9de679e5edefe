"""Token classification objective, compared with SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.objectives.finetuning import fixtures
from xlflax.objectives import objective_base
from xlflax.objectives.finetuning import classification_objective
from xlflax.objectives.finetuning.token_classification import (
  TokenClassification,
)

_OBJECTIVE = TokenClassification(labels=('a', 'b', 'c'))
_NAME = 'token_classification'


@pytest.fixture(scope='module')
def params(model):
  return fixtures.make_params(model, _OBJECTIVE)


@pytest.fixture(scope='module')
def ran(model, params, batch):
  return fixtures.run(_OBJECTIVE, model, params, batch)


@pytest.fixture(scope='module')
def logits(model, params, batch):
  return np.asarray(
    jax.jit(_OBJECTIVE.predict, static_argnums=(0, 3))(
      model, params, batch, fixtures.SPEC
    )
  )


def test_loss_and_accuracy_of_ties():
  """The docstring example has a tie and a position without a label."""
  output = classification_objective.class_output(
    'x',
    jnp.array([[1.0, 1.0], [9.0, 0.0]]),
    jnp.array([0, -1]),
    jnp.array([2, 0]),
    fixtures.SPEC,
  )
  np.testing.assert_allclose(output.loss, (np.log(2), 1), rtol=1e-6)
  np.testing.assert_array_equal(
    output.metrics['x/accuracy'], [[0, 0, 1], [0, 0, 1]]
  )


def test_loss_and_metrics_equal_loops(ran, batch, logits):
  output, _ = ran
  log_probabilities = special.log_softmax(logits.astype(np.float64), -1)
  loss, weight = np.zeros(3), np.zeros(3)
  right = np.zeros(3)
  for b, t in zip(*np.nonzero(batch['labels'] >= 0), strict=True):
    language, label = batch['language_ids'][b, t], batch['labels'][b, t]
    loss[language] -= log_probabilities[b, t, label]
    right[language] += logits[b, t].argmax() == label
    weight[language] += 1
  assert weight.tolist() == [3, 2, 0]
  np.testing.assert_allclose(output.loss, (loss.sum(), 5), rtol=1e-5)
  np.testing.assert_allclose(
    output.metrics[f'{_NAME}/loss'], (loss, weight), rtol=1e-5
  )
  np.testing.assert_allclose(
    output.metrics[f'{_NAME}/accuracy'], (right, weight)
  )


def test_jit_equals_eager(batch, logits):
  arguments = logits, batch['labels'], batch['language_ids']

  def loss(*arguments):
    return classification_objective.class_output(
      _NAME, *arguments, fixtures.SPEC
    )

  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
    loss(*map(jnp.asarray, arguments)),
    jax.jit(loss)(*arguments),
  )


def test_unlabeled_sentences_have_no_effect(model, params, batch, ran):
  """The third sentence has no labels."""
  changed_batch = batch | {'token_ids': batch['token_ids'].copy()}
  changed_batch['token_ids'][2, 1] = 20
  output, gradient = fixtures.run(_OBJECTIVE, model, params, changed_batch)
  np.testing.assert_allclose(output.loss, ran[0].loss, rtol=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), gradient, ran[1]
  )


def test_shapes_of_logits_and_metrics(ran, logits):
  output, _ = ran
  assert logits.shape == (3, 7, 3) and logits.dtype == np.float32
  assert output.loss.total.shape == ()
  assert {
    name: value.total.shape for name, value in output.metrics.items()
  } == {f'{_NAME}/loss': (3,), f'{_NAME}/accuracy': (3,)}


def test_gradient_of_the_output_bias(ran, batch, logits):
  """The gradient is the sum of probabilities minus the one-hot labels."""
  probabilities = special.softmax(logits.astype(np.float64), -1)
  chosen = batch['labels'] >= 0
  expected = (probabilities[chosen] - np.eye(3)[batch['labels'][chosen]]).sum(0)
  np.testing.assert_allclose(
    ran[1]['heads'][_NAME]['output']['bias'], expected, rtol=1e-4, atol=1e-5
  )
  assert np.any(ran[1]['model']['embeddings']['token'])


def test_batch_without_labels_has_zero_loss(model, params, batch):
  empty = batch | {'labels': np.full_like(batch['labels'], -1)}
  output, gradient = fixtures.run(_OBJECTIVE, model, params, empty)
  assert (output.loss.total, output.loss.weight) == (0, 0)
  assert float(objective_base.weighted_mean(output.loss)) == 0
  assert not any(np.any(x) for x in jax.tree.leaves(gradient))


def test_dropout_is_used_only_in_training(model, params, batch, ran):
  losses = {
    float(
      fixtures.run(_OBJECTIVE, model, params, batch, train=True, seed=seed)[
        0
      ].loss.total
    )
    for seed in (0, 1)
  }
  assert len(losses | {float(ran[0].loss.total)}) == 3
