"""Tests of parameter names and patterns."""

import jax
import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.training import param_tree
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_TREE = {'model': {'b': jnp.ones((2, 3)), 'a': [jnp.ones(4), jnp.ones(())]}}


def test_names_are_paths_in_the_order_of_the_leaves():
  assert list(param_tree.flatten_params(_TREE)) == [
    'model/a/0',
    'model/a/1',
    'model/b',
  ]
  assert [leaf.shape for leaf in param_tree.flatten_params(_TREE).values()] == [
    leaf.shape for leaf in jax.tree.leaves(_TREE)
  ]


def test_unflatten_is_the_inverse_of_flatten():
  tree = {'a': {'b': 1, 'c': {'d': 2}}, 'e': 3}
  assert param_tree.unflatten_params(param_tree.flatten_params(tree)) == tree


def test_fields_of_named_tuples_are_part_of_names():
  state = optimizers.Adam(learning_rate=0.1).transform.init(_TREE)
  assert '0/mu/model/b' in param_tree.flatten_params(state)


def test_map_named_passes_names_and_leaves():
  out = param_tree.map_named(
    lambda n, x, y: (n, x.shape == y.shape), _TREE, _TREE
  )
  assert out['model']['b'] == ('model/b', True)


@pytest.mark.parametrize(
  ('patterns', 'matched'),
  [(('b$',), True), (('^b',), False), (('zzz', 'l/b'), True), ((), False)],
)
def test_patterns_match_any_part_of_a_name(patterns, matched):
  assert param_tree.matches_pattern(patterns, 'model/b') == matched


def test_patterns_without_a_match_are_reported_with_names():
  with raises_error(
    errors.ConfigError,
    got='c$',
    where='here',
    mentions=('model/a/0', 'model/a/1', 'model/b'),
  ):
    param_tree.check_patterns(('b$', 'c$'), _TREE, where='here')


def _encoder(**layers):
  return {
    'model': {
      'embeddings': {name: jnp.ones(2) for name in 'abcdefghi'},
      'head_norm': {'scale': jnp.ones(2)},
    }
    | layers
  }


_NORM = {'mlp_norm': {'scale': jnp.ones([2, 4])}}


@pytest.mark.parametrize(
  'pattern',
  ['model/layers/0/', r'encoder\.layer\.[0-5]\.', 'layers_(0|1)/', r'layer_\d'],
)
def test_pattern_with_a_layer_number_explains_stacked_layers(pattern):
  with raises_error(errors.ConfigError, got=pattern) as caught:
    param_tree.check_patterns(
      (pattern,), _encoder(layers=_NORM), where='AdamW.frozen'
    )
  assert_mentions(caught.value.what, 'model/head_norm/scale')
  assert_mentions(caught.value.what, 'model/layers/mlp_norm/scale')
  assert_mentions(
    caught.value.fix, 'scan_layers = False', 'model/layers_0/mlp_norm/scale'
  )


@pytest.mark.parametrize(
  ('pattern', 'layers'),
  [
    ('model/layers/0/', {'layers_0': _NORM, 'layers_1': _NORM}),
    ('model/layers/atention', {'layers': _NORM}),
  ],
)
def test_other_patterns_do_not_explain_stacked_layers(pattern, layers):
  with raises_error(errors.ConfigError, got=pattern, fix=None) as caught:
    param_tree.check_patterns(
      (pattern,), _encoder(**layers), where='AdamW.frozen'
    )
  example = f'model/{next(iter(layers))}/mlp_norm/scale'
  assert_mentions(caught.value.what, example)
