"""Summation and finalization of metrics."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.objectives import objective_base, objective_metrics

LANGUAGES = ('en', 'de', 'fr')


def _sum(total, weight):
  return objective_base.WeightedMean(np.asarray(total), np.asarray(weight))


def test_finalize_computes_means():
  got = objective_metrics.finalize_metrics(
    {'mlm/loss': _sum([6.0, 0.0, 1.0], [3.0, 0.0, 1.0])}, LANGUAGES
  )
  assert got == {'mlm/loss': 1.75, 'mlm/loss/en': 2.0, 'mlm/loss/fr': 1.0}


def test_finalize_depends_on_the_metric_name():
  got = objective_metrics.finalize_metrics(
    {
      'mlm/perplexity': _sum([2.0, 4.0, 0.0], [2.0, 1.0, 0.0]),
      'mlm/tokens': _sum([5.0, 7.0, 0.0], [5.0, 7.0, 0.0]),
      'a/rate': _sum(1.0, 4.0),
      'a/unused': _sum(0.0, 0.0),
    },
    LANGUAGES,
  )
  assert got == pytest.approx(
    {
      'mlm/perplexity': math.exp(2),
      'mlm/perplexity/en': math.e,
      'mlm/perplexity/de': math.exp(4),
      'mlm/tokens': 12.0,
      'mlm/tokens/en': 5.0,
      'mlm/tokens/de': 7.0,
      'a/rate': 0.25,
    }
  )


def test_perplexity_of_a_huge_loss_is_finite():
  got = objective_metrics.finalize_metrics(
    {'perplexity': _sum(1e6, 1.0)}, LANGUAGES
  )
  assert math.isfinite(got['perplexity'])


def test_finalize_rejects_metrics_of_wrong_length():
  with raises_error(ValueError, mentions=('mlm/loss', 2)):
    objective_metrics.finalize_metrics(
      {'mlm/loss': _sum([1.0, 1.0], [1.0, 1.0])}, LANGUAGES
    )


def test_add_metrics_sums_the_union():
  got = objective_metrics.add_metrics(
    {'a': _sum(1.0, 2.0), 'b': _sum([1.0, 0.0], [1.0, 0.0])},
    {'b': _sum([2.0, 3.0], [1.0, 1.0]), 'c': _sum(5.0, 1.0)},
  )
  assert set(got) == {'a', 'b', 'c'}
  np.testing.assert_array_equal(got['b'].total, [3.0, 3.0])
  np.testing.assert_array_equal(got['b'].weight, [2.0, 1.0])
  assert got['a'] == _sum(1.0, 2.0) and got['c'] == _sum(5.0, 1.0)


def test_sums_of_parts_equal_the_batch():
  rng = np.random.default_rng(0)
  values, weights = rng.normal(size=(2, 8, 5)).astype(np.float32)
  weights = (weights > 0).astype(np.float32)
  ids = rng.integers(0, 3, (8, 5))
  expected_total = objective_metrics.by_language(values, weights, ids, 3)
  parts = [
    {
      'x': objective_metrics.by_language(
        values[part], weights[part], ids[part], 3
      )
    }
    for part in (slice(0, 3), slice(3, 8))
  ]
  added = objective_metrics.add_metrics(*parts)['x']
  np.testing.assert_allclose(added.total, expected_total.total, rtol=1e-5)
  np.testing.assert_array_equal(added.weight, expected_total.weight)


def test_by_language_ignores_weight_zero():
  values = jnp.array([[1.0, 2.0, jnp.nan], [4.0, 5.0, 6.0]])
  weights = jnp.array([[1.0, 0.5, 0.0], [1.0, 1.0, 1.0]])
  ids = jnp.array([[0, 2, 1], [2, 0, 0]])
  got = jax.jit(objective_metrics.by_language, static_argnums=3)(
    values, weights, ids, 4
  )
  np.testing.assert_array_equal(got.total, [12.0, 0.0, 5.0, 0.0])
  np.testing.assert_array_equal(got.weight, [3.0, 0.0, 1.5, 0.0])


def test_count_by_language():
  got = objective_metrics.count_by_language(
    jnp.array([[1, 1, 0]]), jnp.array([[2, 2, 0]]), 3
  )
  np.testing.assert_array_equal(got.total, [0.0, 0.0, 2.0])
  np.testing.assert_array_equal(got.weight, [0.0, 0.0, 2.0])
