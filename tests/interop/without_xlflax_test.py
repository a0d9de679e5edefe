"""Reading saved parameters with Orbax and the NNX bridge."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from orbax.checkpoint.experimental import v1

import xlflax

pytest_plugins = ['tests.evaluation.fixtures']

_STEP = 4


@pytest.fixture(scope='module')
def run(make_run, tmp_path_factory):
  return xlflax.load_run(
    make_run(tmp_path_factory.mktemp('runs') / 'run', steps=[_STEP])
  )


def _restore_with_manager(checkpoints):
  with ocp.CheckpointManager(checkpoints) as manager:
    args = ocp.args.Composite(params=ocp.args.PyTreeRestore())
    return manager.restore(manager.latest_step(), args=args)['params']


_CALLS = {
  'PyTreeCheckpointer': lambda d: ocp.PyTreeCheckpointer().restore(
    d / f'{_STEP}/params'
  ),
  'StandardCheckpointer': lambda d: ocp.StandardCheckpointer().restore(
    d / f'{_STEP}/params'
  ),
  'CheckpointManager': _restore_with_manager,
  'v1.load': lambda d: v1.load(d / f'{_STEP}', checkpointable_name='params'),
}


@pytest.mark.parametrize('call', _CALLS)
def test_orbax_reads_the_parameters(run, call):
  parameters = _CALLS[call](run.directory / 'checkpoints')
  jax.tree.map(np.testing.assert_array_equal, parameters, dict(run.params()))


@pytest.mark.slow
def test_nnx_model_computes_the_same_logits(run):
  ids = jnp.array([[1, 9, 8, 2]])
  languages = jnp.zeros_like(ids)
  model = nnx.bridge.ToNNX(run.model, rngs=nnx.Rngs(0))
  with nnx.use_eager_sharding(False):
    nnx.bridge.lazy_init(model, ids, language_ids=languages)
  parameters = nnx.to_pure_dict(nnx.state(model, nnx.Param))
  params = run.params()['model']
  assert jax.tree.structure(parameters) == jax.tree.structure(params)
  nnx.update(model, params)
  want = run.model.apply({'params': params}, ids, language_ids=languages)
  np.testing.assert_allclose(
    model(ids, language_ids=languages), want, atol=1e-6
  )
