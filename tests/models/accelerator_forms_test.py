"""The forms of a program for accelerators compute what a CPU's does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training import tiny
from xlflax.models import layer_loop, targets


def _run(model, params, batch):
  def loss(params):
    states = model.apply(
      {'params': params},
      batch['token_ids'],
      segment_ids=batch['segment_ids'],
      deterministic=False,
      rngs={'dropout': jax.random.key(3)},
    )
    return jnp.square(states).mean()

  return jax.value_and_grad(loss)(params)


@pytest.mark.parametrize('options', [{}, dict(remat='minimal')])
def test_encoder_of_a_gpu_is_that_of_a_cpu(options):
  """Unrolled, GELU by erf, norms in closed form, barriers; with dropout."""
  model = tiny.make_model(
    dropout_rate=0.1, attention_dropout_rate=0.1, **options
  )
  batch = tiny.make_batch()
  params = tiny.make_factory(model=model).create(jax.random.key(0))
  params = params.params['model']
  want = jax.jit(lambda p: _run(model, p, batch))(params)
  with targets.compiling_for(targets.Target('gpu', (9, 0))):
    assert layer_loop.is_unrolled(model.config)
    program = jax.jit(lambda p: _run(model, p, batch)).lower(params)
  for got, expected in zip(
    *map(jax.tree.leaves, (program.compile()(params), want)), strict=True
  ):
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
  'options, platform, unrolled',
  [
    ({}, 'cpu', False),
    ({}, 'gpu', True),
    (dict(layer_loop='scan'), 'gpu', False),
    (dict(layer_loop='unroll'), 'cpu', True),
    (dict(scan_layers=False), 'cpu', True),
  ],
)
def test_when_layers_are_unrolled(options, platform, unrolled):
  config = tiny.make_model(**options).config
  with targets.compiling_for(targets.Target(platform)):
    assert layer_loop.is_unrolled(config) is unrolled
