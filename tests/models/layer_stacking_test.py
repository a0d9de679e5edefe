"""Converting between parameters of scanned and of unrolled layers."""

import flax.linen as nn
import jax
import numpy as np

from xlflax.models import layer_stacking


def _layer(value):
  names = ('embed', 'mlp')
  return {
    'wi': {
      'kernel': nn.LogicallyPartitioned(np.full((2, 3), float(value)), names)
    }
  }


def _unrolled():
  # Eleven layers: 'layers_10' must come after 'layers_9'.
  return {
    'embeddings': {'token': np.ones((4, 2))},
    **{f'layers_{i}': _layer(i) for i in range(11)},
  }


def test_layers_are_stacked_in_their_order():
  stacked = layer_stacking.stack_layers(_unrolled())
  assert sorted(stacked) == ['embeddings', 'layers']
  kernel = stacked['layers']['wi']['kernel']
  assert kernel.names == ('layers', 'embed', 'mlp')
  np.testing.assert_array_equal(kernel.value[:, 0, 0], np.arange(11))


def test_there_and_back_boxed_and_unboxed():
  for params in (_unrolled(), nn.unbox(_unrolled())):
    back = layer_stacking.unstack_layers(layer_stacking.stack_layers(params))
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)


def test_trees_of_the_wanted_form_are_returned_as_they_are():
  unrolled = _unrolled()
  stacked = layer_stacking.stack_layers(unrolled)
  assert layer_stacking.stack_layers(stacked) is stacked
  assert layer_stacking.unstack_layers(unrolled) is unrolled
