"""The loss of search against torch, and a run whose vectors are its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xlflax.foundation import errors
from xlflax.objectives.finetuning import search_contrast

_VECTORS = np.random.default_rng(0).normal(size=(5, 3, 8)).astype(np.float32)


def _torch_loss(vectors, scale=20.0):
  """MultipleNegativesRankingLoss of Sentence-Transformers, written out."""
  made = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=-1)
  documents = torch.cat([made[:, i] for i in range(1, made.shape[1])])
  scores = made[:, 0] @ documents.T * scale
  return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))


@pytest.mark.parametrize('group', [2, 3])
def test_the_loss_is_that_of_sentence_transformers(group):
  objective = search_contrast.SearchContrast(group=group)
  vectors = _VECTORS[:, :group]
  found = objective.ranked(jnp.asarray(vectors))
  np.testing.assert_allclose(found.loss.mean(), _torch_loss(vectors), rtol=1e-6)


def test_gradients_are_those_of_torch():
  objective = search_contrast.SearchContrast(group=3)
  found = jax.grad(lambda v: objective.ranked(v).loss.mean())(_VECTORS)
  given = torch.from_numpy(_VECTORS).requires_grad_()
  made = torch.nn.functional.normalize(given, dim=-1)
  documents = torch.cat([made[:, 1], made[:, 2]])
  torch.nn.functional.cross_entropy(
    made[:, 0] @ documents.T * 20, torch.arange(5)
  ).backward()
  np.testing.assert_allclose(found, given.grad, atol=1e-6)


def test_the_library_has_the_same_loss():
  library = pytest.importorskip('sentence_transformers.losses')
  model = torch.nn.Identity()
  theirs = library.MultipleNegativesRankingLoss(model)
  columns = [torch.from_numpy(_VECTORS[:, i]) for i in range(3)]
  expected = theirs.compute_loss_from_embeddings(columns, None)
  objective = search_contrast.SearchContrast(group=3)
  found = objective.ranked(jnp.asarray(_VECTORS)).loss.mean()
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_equal_documents_and_queries_are_no_negatives():
  objective = search_contrast.SearchContrast(group=3)
  tokens = jnp.arange(3 * 3 * 2).reshape(3, 3, 2)
  tokens = tokens.at[1, 0].set(tokens[0, 0])  # an equal query
  tokens = tokens.at[2, 2].set(tokens[0, 1])  # a negative is 0's document
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


def test_what_does_not_fit_is_refused():
  with pytest.raises(errors.ConfigError, match='group'):
    search_contrast.SearchContrast(group=1)
