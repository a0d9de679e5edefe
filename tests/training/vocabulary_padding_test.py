"""Tests of training with padded rows of embedding tables."""

import jax
import numpy as np
import pytest

from tests.slow import mark_slow
from tests.training import tiny
from xlflax.training import param_tree, train_step
from xlflax.training.optimization import optimizers

_NUM_STEPS = 10
_TABLES = {'model/embeddings/token', 'model/output', 'model/output_bias'}


def _train(multiple: int, **fields):
  """Returns the losses of some steps and the parameters after them."""
  model = tiny.make_model(pad_vocab_size_multiple=multiple, **fields)
  factory = tiny.make_factory(model=model, use_ema=False)
  mixture = tiny.make_mixture()
  builder = train_step.TrainStepBuilder(
    model=model,
    mixture=mixture,
    optimizer=optimizers.AdamW(learning_rate=0.01),
    vocabulary=tiny.SPEC,
    seed=0,
  )
  step = jax.jit(builder.build((0,)))
  state, losses = factory.create(jax.random.key(0)), []
  for i in range(_NUM_STEPS):
    state, output = step(state, {'mono': tiny.make_batch(seed=i)})
    losses.append(float(output.loss))
  return losses, param_tree.flatten_params(state.params)


@pytest.mark.parametrize('tied', mark_slow([True, False], slow=[False]))
def test_padded_rows_do_not_change_training(tied):
  losses, params = _train(1, tie_word_embeddings=tied)
  padded_losses, padded = _train(128, tie_word_embeddings=tied)
  np.testing.assert_allclose(padded_losses, losses, rtol=1e-5)
  for name, value in params.items():
    size = len(value)
    np.testing.assert_allclose(padded[name][:size], value, atol=1e-4)
    if name in _TABLES:
      assert padded[name].shape == (128, *value.shape[1:])
      assert not np.any(padded[name][size:])
