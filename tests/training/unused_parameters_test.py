"""Tests of finding parameters that no objective trains."""

import jax
import jax.numpy as jnp

from tests import gin_files
from xlflax.training import run_header, training_setup, unused_parameters


def test_parameters_that_do_not_affect_the_loss_are_found():
  def loss_fn(params, x):
    unused_output = params['c'] * x
    del unused_output
    scanned, _ = jax.lax.scan(lambda y, w: (y * w, None), x, params['b'])
    return jnp.sum(params['a'] * scanned)

  params = {name: jnp.ones([2]) for name in 'abcd'}
  assert unused_parameters.find_unused_parameters(
    loss_fn, params, jnp.ones([2])
  ) == ['c', 'd']


def _make_setup(*files: str) -> training_setup.Setup:
  bindings = [
    'VOCABULARY = "unused"',
    'TRAIN_STEPS = 4',
    'MODEL_DIR = "unused"',
  ]
  return training_setup.Setup(gin_files.settings_of(list(files), bindings))


def test_untrained_decoder_of_masked_lm_is_reported():
  setup = _make_setup('pretrain/mlm.gin', 'models/tiny_t5.gin')
  (warning,) = run_header.untrained_decoder_warnings(setup)
  params = setup.factory.abstract.params['model']['decoder']
  count = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert f'{count:,} parameters' in warning and 'mlm' in warning


def test_decoder_of_span_corruption_is_not_reported():
  setup = _make_setup('pretrain/span_corruption.gin', 'models/tiny_t5.gin')
  assert run_header.untrained_decoder_warnings(setup) == []
