"""Tests of word links, compared with POT and with loops."""

import os

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.similarity import word_links
from xlflax.similarity.word_links import Method
from xlflax.utils import errors


@pytest.fixture
def states():
  """Vectors of 5 source and 7 target words in two layers."""
  rng = np.random.default_rng(0)
  return rng.normal(size=(2, 5, 6)), rng.normal(size=(2, 7, 6)) * 3


@pytest.fixture(scope='module')
def ot():
  """The POT package, imported without optional frameworks."""
  for name in ('JAX', 'PYTORCH', 'TENSORFLOW', 'CUPY'):
    os.environ[f'POT_BACKEND_DISABLE_{name}'] = '1'
  return pytest.importorskip('ot')


@pytest.mark.parametrize('mass', ['uniform', 'norm'])
@pytest.mark.parametrize('regularization', [0.05, 0.1, 1.0])
def test_transport_plan_equals_pot(states, ot, mass, regularization):
  source, target = states
  similarity = word_links.cosine_similarities(source, target)
  weights = [word_links.word_weights(side, mass) for side in states]
  plan = word_links.transport_plan(
    similarity, *weights, regularization=regularization, tolerance=1e-10
  )
  for layer in range(2):
    expected = ot.sinkhorn(
      weights[0][layer],
      weights[1][layer],
      1 - similarity[layer],
      regularization,
      stopThr=1e-12,
      numItermax=20_000,
    )
    np.testing.assert_allclose(plan[layer], expected, atol=1e-8)


def test_transport_plan_has_the_given_marginals(states):
  weights = [word_links.word_weights(side, 'norm') for side in states]
  plan = word_links.transport_plan(
    word_links.cosine_similarities(*states), *weights
  )
  np.testing.assert_allclose(plan.sum(-1), weights[0], rtol=1e-5)
  np.testing.assert_allclose(plan.sum(-2), weights[1], rtol=1e-5)


def test_small_regularization_gives_the_optimal_assignment():
  from scipy import optimize

  similarity = np.random.default_rng(1).uniform(-1, 1, (6, 6))
  uniform = np.full(6, 1 / 6)
  plan = word_links.transport_plan(
    similarity, uniform, uniform, regularization=0.01, max_rounds=20_000
  )
  rows, columns = optimize.linear_sum_assignment(-similarity)
  links = word_links.link_matrix(similarity, 'mutual_transport', plan=plan)
  assert word_links.matrix_to_links(links) == frozenset(
    zip(rows.tolist(), columns.tolist(), strict=True)
  )


def test_too_small_regularization_is_rejected():
  uniform = np.full(2, 0.5)
  with raises_error(errors.AnalysisError, got=0.001, mentions='regularization'):
    word_links.transport_plan(np.eye(2), uniform, uniform, regularization=0.001)


def test_transport_plan_of_extreme_similarities_is_finite():
  similarity = np.array([[1.0, -1.0], [-1.0, -1.0]])
  uniform = np.full(2, 0.5)
  plan = word_links.transport_plan(
    similarity, uniform, uniform, regularization=0.01
  )
  assert np.isfinite(plan).all()
  np.testing.assert_allclose(plan.sum(), 1)


def test_cosines_and_weights_equal_values_computed_by_hand():
  source = np.array([[3.0, 4.0], [0.0, 0.0]])
  target = np.array([[0.0, 2.0], [1.0, 0.0], [-6.0, -8.0]])
  np.testing.assert_allclose(
    word_links.cosine_similarities(source, target), [[0.8, 0.6, -1], [0, 0, 0]]
  )
  np.testing.assert_allclose(word_links.word_weights(target, 'uniform'), 1 / 3)
  np.testing.assert_allclose(
    word_links.word_weights(target, 'norm'), [2 / 13, 1 / 13, 10 / 13]
  )
  np.testing.assert_allclose(
    word_links.word_weights(source, 'norm'), [1, 0], atol=1e-5
  )
  np.testing.assert_allclose(word_links.word_weights(0 * target, 'norm'), 1 / 3)


def test_argmax_links_equal_a_double_loop(states):
  similarity = word_links.cosine_similarities(*states)
  links = word_links.link_matrix(similarity, 'argmax')
  for layer, scores in enumerate(similarity):
    expected = {
      (i, j)
      for i in range(5)
      for j in range(7)
      if scores[i, j] == max(scores[i]) == max(scores[:, j])
    }
    assert word_links.matrix_to_links(links[layer]) == expected
  low = word_links.link_matrix(similarity, Method.ARGMAX, threshold=0.5)
  np.testing.assert_array_equal(low, links & (similarity > 0.5))


def test_transport_links_equal_links_found_by_hand():
  plan = np.array([[0.20, 0.05, 0.00], [0.16, 0.14, 0.00], [0.04, 0.06, 0.35]])

  def links(method, threshold=None):
    return word_links.matrix_to_links(
      word_links.link_matrix(
        np.zeros((3, 3)), method, plan=plan, threshold=threshold
      )
    )

  assert links('transport') == {(0, 0), (1, 0), (2, 2)}
  assert links('mutual_transport') == {(0, 0), (2, 2)}
  # Fractions of rows: .8 .2 0; .53 .47 0; .09 .13 .78.
  assert links('transport', 0.45) == {(0, 0), (1, 0), (1, 1), (2, 2)}
  # Fractions of columns: .5 .2 0; .4 .56 0; .1 .24 1.
  assert links('mutual_transport', 0.45) == {(0, 0), (1, 1), (2, 2)}
  assert links('mutual_transport', 0.99) == frozenset()


def test_ties_give_one_link():
  similarity = np.ones((3, 4))
  links = word_links.link_matrix(similarity, 'argmax')
  assert word_links.matrix_to_links(links) == {(0, 0)}


def test_transport_links_require_a_plan():
  with raises_error(errors.AnalysisError, got='transport'):
    word_links.link_matrix(np.eye(2), 'transport')
