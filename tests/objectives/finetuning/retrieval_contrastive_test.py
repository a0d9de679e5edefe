"""Contrastive retrieval loss, compared with torch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.errors import raises_error
from tests.objectives.finetuning import fixtures
from tests.slow import mark_slow
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.data.supervised.sources import example_source
from xlflax.objectives import on_device_packing
from xlflax.objectives.finetuning import retrieval_contrastive
from xlflax.utils import errors

_VECTORS = np.random.default_rng(0).normal(size=(5, 3, 8)).astype(np.float32)


def _torch_loss(vectors, scale=20.0):
  """Computes MultipleNegativesRankingLoss of Sentence-Transformers."""
  normalized = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=-1)
  documents = torch.cat(
    [normalized[:, i] for i in range(1, normalized.shape[1])]
  )
  scores = normalized[:, 0] @ documents.T * scale
  return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))


@pytest.mark.parametrize('group', [2, 3])
def test_loss_equals_torch(group):
  objective = retrieval_contrastive.RetrievalContrastive(group_size=group)
  vectors = _VECTORS[:, :group]
  output = objective.ranking_loss(jnp.asarray(vectors))
  np.testing.assert_allclose(
    output.loss.mean(), _torch_loss(vectors), rtol=1e-6
  )


def test_gradients_equal_torch():
  objective = retrieval_contrastive.RetrievalContrastive(group_size=3)
  gradient = jax.grad(lambda v: objective.ranking_loss(v).loss.mean())(_VECTORS)
  torch_vectors = torch.from_numpy(_VECTORS).requires_grad_()
  normalized = torch.nn.functional.normalize(torch_vectors, dim=-1)
  documents = torch.cat([normalized[:, 1], normalized[:, 2]])
  torch.nn.functional.cross_entropy(
    normalized[:, 0] @ documents.T * 20, torch.arange(5)
  ).backward()
  np.testing.assert_allclose(gradient, torch_vectors.grad, atol=1e-6)


def test_loss_equals_sentence_transformers():
  library = pytest.importorskip('sentence_transformers.losses')
  model = torch.nn.Identity()
  theirs = library.MultipleNegativesRankingLoss(model)
  columns = [torch.from_numpy(_VECTORS[:, i]) for i in range(3)]
  expected = theirs.compute_loss_from_embeddings(columns, None)
  objective = retrieval_contrastive.RetrievalContrastive(group_size=3)
  mean_loss = objective.ranking_loss(jnp.asarray(_VECTORS)).loss.mean()
  np.testing.assert_allclose(mean_loss, expected, rtol=1e-6)


def test_equal_documents_and_queries_are_not_negatives():
  objective = retrieval_contrastive.RetrievalContrastive(group_size=3)
  tokens = jnp.arange(3 * 3 * 2).reshape(3, 3, 2)
  tokens = tokens.at[1, 0].set(tokens[0, 0])  # Queries 0 and 1 are equal.
  # A negative of 2 is the document of 0.
  tokens = tokens.at[2, 2].set(tokens[0, 1])
  out = objective._excluded(tokens, jnp.array([True, True, False]))
  np.testing.assert_array_equal(
    out,
    [
      #  documents        negatives
      [0, 1, 1, 0, 0, 1],
      [1, 0, 1, 0, 0, 1],
      [0, 0, 0, 0, 0, 1],
    ],
  )


def test_matryoshka_loss_is_the_sum_over_dimensions():
  objective = retrieval_contrastive.RetrievalContrastive(
    group_size=3, matryoshka_dims=(2, 8)
  )
  total = sum(
    objective.ranking_loss(jnp.asarray(_VECTORS[..., :size])).loss.mean()
    for size in objective.matryoshka_dims
  )
  expected = _torch_loss(_VECTORS[..., :2]) + _torch_loss(_VECTORS)
  np.testing.assert_allclose(total, expected, rtol=1e-6)


def _run(objective, model, params, batch):
  """Returns the loss and gradient."""
  return jax.jit(
    jax.value_and_grad(
      lambda p: objective(model, p, batch, fixtures.make_context()).loss.total
    )
  )(params)


@pytest.fixture(scope='module')
def full_batch(model):
  """Eight groups of two with parameters, loss and gradient."""
  ids = np.random.default_rng(3).integers(5, 23, (16, 6))
  ids[:, 0], ids[::3, 4:] = 1, 0
  present = (ids > 0).astype(np.int32)
  batch = {
    'token_ids': ids.astype(np.int32),
    'segment_ids': present,
    'positions': np.arange(6)[None] * present,
    'language_ids': present * 0,
    'labels': np.tile([0, 1], 8).astype(np.int32),
  }
  params = fixtures.make_params(model)
  objective = retrieval_contrastive.RetrievalContrastive(matryoshka_dims=(4, 8))
  return batch, params, _run(objective, model, params, batch)


def _assert_close(found, expected):
  assert np.linalg.norm(jax.tree.leaves(expected[1])[0]) > 1e-3
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    found,
    expected,
  )


def test_mini_batches_have_the_gradient_of_the_batch(model, full_batch):
  batch, params, expected = full_batch
  objective = retrieval_contrastive.RetrievalContrastive(
    matryoshka_dims=(4, 8), mini_batch_size=4
  )
  _assert_close(_run(objective, model, params, batch), expected)


@pytest.mark.parametrize('mini_batch_size', [None, 8])
def test_documents_of_all_devices_are_negatives(
  model, full_batch, mini_batch_size
):
  batch, params, expected = full_batch
  rows = NamedSharding(
    Mesh(np.array(jax.devices()), ('data',)), PartitionSpec('data')
  )
  objective = retrieval_contrastive.RetrievalContrastive(
    matryoshka_dims=(4, 8), mini_batch_size=mini_batch_size
  )
  result = _run(objective, model, params, jax.device_put(batch, rows))
  _assert_close(result, expected)


def test_mini_batches_do_not_store_all_states(model, full_batch):
  batch, params, _ = full_batch

  def largest(mini_batch_size):
    objective = retrieval_contrastive.RetrievalContrastive(
      mini_batch_size=mini_batch_size
    )
    traced = jax.make_jaxpr(
      lambda p: objective(model, p, batch, fixtures.make_context()).loss.total
    )(params)
    return str(traced).count('[16,6,8]')

  assert largest(None) and not largest(4)


def _add_teacher_vectors(batch, width=8):
  gold = np.random.default_rng(5).normal(size=(8, width)).astype(np.float32)
  # A text and its translation have the same vector.
  gold = np.repeat(gold, 2, axis=0)
  return gold, batch | {'vectors': gold.view(np.int32)}


@pytest.mark.slow
def test_distillation_loss_equals_mse_loss(model, full_batch):
  """Compares with torch.nn.MSELoss over all texts of the batch."""
  batch, params, contrast = full_batch
  gold, batch = _add_teacher_vectors(batch)
  objective = retrieval_contrastive.RetrievalDistillation()
  losses = np.asarray(
    objective._vectors(model, params, batch, fixtures.make_context())[0]
  ).reshape(16, 8)
  expected = torch.nn.MSELoss()(torch.tensor(losses), torch.from_numpy(gold))
  loss, gradient = _run(objective, model, params, batch)
  np.testing.assert_allclose(loss / 8, expected, rtol=1e-6)
  np.testing.assert_allclose(
    loss / 8, np.square(losses - gold).mean(), rtol=1e-6
  )
  parts = retrieval_contrastive.RetrievalDistillation(mini_batch_size=4)
  _assert_close(_run(parts, model, params, batch), (loss, gradient))
  # Matryoshka losses and the contrastive loss are added.
  combined = retrieval_contrastive.RetrievalDistillation(
    matryoshka_dims=(4, 8), contrastive_weight=0.5
  )
  np.testing.assert_allclose(
    _run(combined, model, params, batch)[0] / 8,
    np.square(losses - gold)[:, :4].mean() + (loss + contrast[0] / 2) / 8,
    rtol=1e-5,
  )
  assert not combined.sentence['normalize']


def test_distillation_loss_equals_sentence_transformers(model, full_batch):
  library = pytest.importorskip('sentence_transformers.losses')
  batch, params, _ = full_batch
  gold, batch = _add_teacher_vectors(batch)
  objective = retrieval_contrastive.RetrievalDistillation()
  distances = np.array(
    objective._vectors(model, params, batch, fixtures.make_context())[0]
  ).reshape(8, 2, 8)
  columns = [torch.from_numpy(distances[:, i]) for i in range(2)]
  theirs = library.MSELoss(torch.nn.Identity())
  expected = theirs.compute_loss_from_embeddings(
    columns, [torch.from_numpy(gold[::2])] * 2
  )
  loss, _ = _run(objective, model, params, batch)
  np.testing.assert_allclose(loss / 8, expected, rtol=1e-6)


def test_different_teacher_dimensions_are_rejected(model, full_batch):
  batch, params, _ = full_batch
  objective = retrieval_contrastive.RetrievalDistillation()
  with raises_error(errors.ConfigError, mentions=("'search'", 8, 6)):
    _run(objective, model, params, _add_teacher_vectors(batch, 6)[1])


def test_mini_batch_size_must_divide_the_batch():
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='pairs',
    source=example_source.FileDataset(
      format='search', files={'en': 'pairs.tsv'}
    ),
    featurizer=classification_featurizer.ClassificationFeaturizer(
      labels=('query', 'document')
    ),
    length=8,
    batch_size=6,
    group_size=2,
  )
  objective = retrieval_contrastive.RetrievalContrastive(mini_batch_size=4)
  with raises_error(
    errors.ConfigError,
    got=4,
    mentions=('search', 'pairs', 'mini_batch_size', 6),
  ):
    objective.check_dataset(dataset)


def test_group_size_1_is_rejected():
  with raises_error(
    errors.ConfigError, got=1, where='RetrievalContrastive.group_size'
  ):
    retrieval_contrastive.RetrievalContrastive(group_size=1)


@pytest.mark.parametrize('mini_batch_size', mark_slow([None, 8], slow=[None]))
@pytest.mark.parametrize(
  'pooling',
  mark_slow(['mean_all', 'mean', 'first'], slow=['mean_all', 'first']),
)
def test_packed_texts_have_the_gradient_of_separate_texts(
  model, full_batch, pooling, mini_batch_size
):
  batch, params, _ = full_batch
  apart = retrieval_contrastive.RetrievalContrastive(pooling=pooling)
  packed = dataclasses.replace(
    apart, packed=0.9, mini_batch_size=mini_batch_size
  )
  expected = _run(apart, model, params, batch)
  _assert_close(_run(packed, model, params, batch), expected)


@pytest.mark.slow
def test_packed_documents_of_all_devices_are_negatives(model, full_batch):
  batch, params, expected = full_batch
  rows = NamedSharding(
    Mesh(np.array(jax.devices()), ('data',)), PartitionSpec('data')
  )
  objective = retrieval_contrastive.RetrievalContrastive(
    matryoshka_dims=(4, 8), packed=0.9
  )
  result = _run(objective, model, params, jax.device_put(batch, rows))
  _assert_close(result, expected)


@pytest.mark.slow
def test_queries_that_do_not_fit_are_omitted_and_counted(
  model, full_batch, monkeypatch
):
  """Every third text has 4 tokens, and the others have 6 tokens."""
  batch, params, _ = full_batch
  monkeypatch.setattr(on_device_packing, '_PACKED_LENGTH', 6)
  context = fixtures.make_context()
  objective = retrieval_contrastive.RetrievalContrastive(packed=0.5)
  output = jax.jit(lambda p: objective(model, p, batch, context))(params)
  placed = on_device_packing.pack_sequences(
    batch, context.vocabulary, share=0.5, longest=16
  ).placed
  # Each packed sequence of six tokens contains one text.
  assert placed.sum() == 8
  is_placed = np.asarray(placed).reshape(8, 2).all(axis=1)
  share = output.metrics['search/left_out']
  assert share.total.sum() / share.weight.sum() == 1 - is_placed.mean()
  missing = {
    **batch,
    'labels': np.where(np.repeat(is_placed, 2), batch['labels'], -1),
  }
  apart = retrieval_contrastive.RetrievalContrastive()(
    model, params, missing, context
  )
  np.testing.assert_allclose(output.loss.total, apart.loss.total, rtol=1e-5)
  assert output.loss.weight == is_placed.sum() == apart.loss.weight
