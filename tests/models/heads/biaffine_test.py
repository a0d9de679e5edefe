"""Compares the biaffine scorer with loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from xlflax.models.heads import biaffine

_CONFIG = biaffine.BiaffineConfig(
  num_relations=3, arc_dim=5, relation_dim=4, dropout_rate=0.5
)
_B, _W, _H = 2, 4, 6


@pytest.fixture(scope='module')
def scorer():
  return biaffine.Biaffine(_CONFIG)


@pytest.fixture(scope='module')
def words():
  return jax.random.normal(jax.random.key(0), (_B, _W, _H))


@pytest.fixture(scope='module')
def params(scorer, words):
  shapes = nn.meta.unbox(
    jax.eval_shape(scorer.init, jax.random.key(0), words)['params']
  )
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 0.5, x.shape), jnp.float32), shapes
  )


def _vector(params, name, word):
  dense = params[name]
  hidden = word @ dense['kernel'] + dense['bias']
  return np.where(hidden > 0, hidden, 0.1 * hidden)


def _apply(scorer, params, method, *args, **options):
  return np.asarray(
    scorer.apply({'params': params}, *args, method=method, **options)
  )


def test_arcs_and_relations_equal_loops(scorer, params, words):
  arcs = _apply(scorer, params, 'arcs', words)
  heads = np.array([[0, 2, 0, 1], [3, 3, 3, 0]])
  relations = _apply(scorer, params, 'relations', words, heads)
  scorer_params, words = jax.tree.map(np.asarray, (params, words))
  for b in range(_B):
    for i in range(_W):
      dependent = np.append(
        _vector(scorer_params, 'arc_dependent', words[b, i]), 1
      )
      for j in range(_W):
        head = _vector(scorer_params, 'arc_head', words[b, j])
        np.testing.assert_allclose(
          arcs[b, i, j],
          dependent @ scorer_params['arc'] @ head,
          rtol=1e-4,
          atol=1e-5,
        )
      dependent = np.append(
        _vector(scorer_params, 'relation_dependent', words[b, i]), 1
      )
      head = np.append(
        _vector(scorer_params, 'relation_head', words[b, heads[b, i]]), 1
      )
      for r in range(3):
        np.testing.assert_allclose(
          relations[b, i, r],
          dependent @ scorer_params['relation'][r] @ head,
          rtol=1e-4,
          atol=1e-5,
        )


def test_best_relations_equal_the_argmax_of_each_arc(scorer, params, words):
  allowed = jnp.array([[False, True, False], [True, False, True]])
  best = _apply(scorer, params, 'best_relations', words, allowed)
  assert best.dtype == np.int32
  for j in range(_W):
    scores = _apply(scorer, params, 'relations', words, np.full((_B, _W), j))
    scores = np.where(np.asarray(allowed)[min(j, 1)], scores, -np.inf)
    np.testing.assert_array_equal(best[:, :, j], scores.argmax(-1))


def test_initial_arc_scores_are_zero(scorer, words):
  params = nn.meta.unbox(scorer.init(jax.random.key(3), words)['params'])
  assert not _apply(scorer, params, 'arcs', words).any()
  kernel = np.asarray(params['arc_head']['kernel'])  # [6, 5]: orthonormal
  np.testing.assert_allclose(kernel.T @ kernel, np.eye(5), atol=1e-5)


def test_dropout_changes_scores(scorer, params, words):
  first_scores, two = (
    _apply(
      scorer,
      params,
      'arcs',
      words,
      deterministic=False,
      rngs={'dropout': jax.random.key(i)},
    )
    for i in range(2)
  )
  assert not np.allclose(first_scores, two)


def test_only_words_can_be_heads():
  scores = jnp.ones((1, 3, 3))
  masked_scores = np.asarray(
    biaffine.mask_non_words(scores, jnp.array([[True, True, False]]))
  )[0]
  np.testing.assert_array_equal(
    masked_scores > 0,
    [[False, True, False], [True, False, False], [True, True, False]],
  )
  assert np.isfinite(masked_scores).all()


def test_pool_words():
  """The words start at token 1 (two tokens) and token 3 (one token)."""
  states = jnp.arange(5.0)[None, :, None]
  starts, lengths = jnp.array([[1, 3, -1]]), jnp.array([[2, 1, 0]])
  for pooling, expected in (
    (biaffine.Pooling.FIRST, [1.0, 3.0, 0.0]),
    (biaffine.Pooling.MEAN, [1.5, 3.0, 0.0]),
  ):
    pooled = biaffine.pool_words(states, starts, lengths, pooling)
    np.testing.assert_allclose(np.asarray(pooled)[0, :, 0], expected)
