"""Losses of reranking groups compared with torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.errors import raises_error
from tests.objectives.finetuning import fixtures
from xlflax.data import batch_keys
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.data.supervised.sources import example_source
from xlflax.objectives.finetuning import reranking
from xlflax.utils import errors

_SCORES = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
_TARGETS = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def _torch_loss(loss, scores, targets):
  if loss == 'listwise':
    positives = torch.zeros(len(scores), dtype=torch.long)
    return torch.nn.functional.cross_entropy(scores, positives)
  # MarginMSELoss of Sentence-Transformers.
  return torch.nn.functional.mse_loss(
    scores[:, :1] - scores[:, 1:], targets[:, :1] - targets[:, 1:]
  )


@pytest.mark.parametrize('loss', ['listwise', 'margin_mse'])
def test_equal_scores_are_not_correct(loss):
  objective = reranking.Reranking(
    group_size=3, loss=reranking.RerankingLoss(loss)
  )
  scores = jnp.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [1.0, 2.0, 0.0]])
  values = objective.group_losses(scores, jnp.zeros((3, 3)))
  np.testing.assert_array_equal(values.correct, [0, 1, 0])


@pytest.mark.parametrize('loss', ['listwise', 'margin_mse'])
def test_loss_and_gradient_equal_torch(loss):
  objective = reranking.Reranking(
    group_size=4, loss=reranking.RerankingLoss(loss)
  )

  @jax.value_and_grad
  def mean_loss(scores):
    return objective.group_losses(scores, jnp.asarray(_TARGETS)).loss.mean()

  value, gradient = mean_loss(jnp.asarray(_SCORES))
  scores = torch.from_numpy(_SCORES).requires_grad_()
  expected = _torch_loss(loss, scores, torch.from_numpy(_TARGETS))
  expected.backward()
  np.testing.assert_allclose(value, expected.item(), rtol=1e-6)
  np.testing.assert_allclose(gradient, scores.grad, atol=1e-6)


def test_accuracy_counts_groups_with_the_positive_first():
  scores = jnp.array([[2.0, 1.0], [0.0, 1.0], [5.0, -1.0]])
  values = reranking.Reranking().group_losses(scores, jnp.zeros_like(scores))
  np.testing.assert_array_equal(values.correct, [1, 0, 1])


def test_margin_mse_computed_by_hand():
  objective = reranking.Reranking(
    group_size=3, loss=reranking.RerankingLoss.MARGIN_MSE
  )
  loss = objective.group_losses(
    jnp.array([[3.0, 1.0, 0.0]]), jnp.array([[10.0, 9.0, 5.0]])
  ).loss
  # The margins are 2 and 3, and those of the teacher are 1 and 5.
  np.testing.assert_allclose(loss, [(1 + 4) / 2])


def _batch(targets, languages):
  """Four pairs of words in one or two languages."""
  targets = np.asarray(targets, np.float32)
  tokens = np.random.default_rng(2).integers(5, 23, (len(targets), 7))
  ones = np.ones(tokens.shape, np.int32)
  return {
    batch_keys.TOKEN_IDS: tokens.astype(np.int32),
    batch_keys.SEGMENT_IDS: ones,
    batch_keys.POSITIONS: np.cumsum(ones, 1, dtype=np.int32) - 1,
    batch_keys.LANGUAGE_IDS: ones * np.asarray(languages, np.int32)[:, None],
    batch_keys.SIDE_IDS: 0 * ones,
    batch_keys.LABELS: targets.view(np.int32),
  }


@pytest.mark.parametrize('loss', ['listwise', 'margin_mse'])
def test_unlabeled_groups_do_not_contribute(loss):
  objective = reranking.Reranking(
    group_size=2, loss=reranking.RerankingLoss(loss)
  )
  model = fixtures.make_model()
  params = fixtures.make_params(model, objective)
  targets = [1.5, 0.25, np.nan, 0.0, -1.0, 2.0]
  batch = _batch(targets, [0, 0, 1, 1, 2, 2])
  context = fixtures.make_context()
  output = objective(model, params, batch, context)
  scores = objective.predict(model, params, batch, fixtures.SPEC)
  scores = torch.from_numpy(np.array(scores[:, 0])).reshape(3, 2)[[0, 2]]
  gold = torch.tensor(targets).reshape(3, 2)[[0, 2]]
  expected = _torch_loss(loss, scores, gold)
  assert float(output.loss.weight) == 2
  np.testing.assert_allclose(
    output.loss.total / output.loss.weight, expected, rtol=1e-5
  )
  metric = output.metrics['sequence_classification/loss']
  np.testing.assert_array_equal(metric.weight, [1, 0, 1])

  def loss_of(heads):
    return objective(
      model, params | {'heads': heads}, batch, context
    ).loss.total

  gradient = jax.grad(loss_of)(params['heads'])
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def test_the_dataset_must_provide_complete_groups():
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='labeled',
    source=example_source.FileDataset(
      files={'en': 'train.tsv'}, format='reranking'
    ),
    featurizer=classification_featurizer.RegressionFeaturizer(),
    length=16,
    batch_size=8,
    group_size=2,
  )
  reranking.Reranking(group_size=2).check_dataset(dataset)
  with raises_error(errors.ConfigError, got=2, expected=4):
    reranking.Reranking(group_size=4).check_dataset(dataset)
  batch = _batch([0.0] * 6, [0] * 6)
  objective = reranking.Reranking(group_size=4)
  model = fixtures.make_model()
  with raises_error(errors.ConfigError, got=6, mentions='group_size=4'):
    objective(
      model,
      fixtures.make_params(model, objective),
      batch,
      fixtures.make_context(),
    )
