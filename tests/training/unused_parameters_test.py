"""Tests of finding parameters that no objective trains."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from tests import gin_files
from tests.errors import assert_mentions
from xlflax.objectives import model_calls, objective_base, objective_mixture
from xlflax.objectives.finetuning import head_settings
from xlflax.training import run_header, training_setup, unused_parameters
from xlflax.training.optimization import optimizers


def test_parameters_that_do_not_affect_the_loss_are_found():
  def loss_fn(params, x):
    unused_output = params['c'] * x
    del unused_output
    constant = jax.lax.stop_gradient(params['e'] + params['a'])
    scanned, _ = jax.lax.scan(lambda y, w: (y * w, None), x, params['b'])
    return jnp.sum(params['a'] * scanned * constant)

  params = {name: jnp.ones([2]) for name in 'abcde'}
  assert unused_parameters.find_unused_parameters(
    loss_fn, params, jnp.ones([2])
  ) == ['c', 'd', 'e']


_RUN = ['VOCABULARY = "unused"', 'TRAIN_STEPS = 4', 'MODEL_DIR = "unused"']


def _make_setup(*files: str) -> training_setup.Setup:
  return training_setup.Setup(gin_files.settings_of(list(files), _RUN))


def test_untrained_decoder_of_masked_lm_is_reported():
  setup = _make_setup('pretrain/mlm.gin', 'models/tiny_t5.gin')
  (warning,) = run_header.untrained_decoder_warnings(setup)
  params = setup.factory.abstract.params['model']['decoder']
  count = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert f'{count:,} parameters' in warning and 'mlm' in warning


def test_decoder_of_span_corruption_is_not_reported():
  setup = _make_setup('pretrain/span_corruption.gin', 'models/tiny_t5.gin')
  assert run_header.untrained_decoder_warnings(setup) == []


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Probe(objective_base.Objective):
  """Head on mean hidden states, through which no gradient flows by default."""

  name: str = 'probe'
  trains_model: bool = False

  def init_heads(self, model, rng):
    shape = model.config.hidden_dim, 2
    return head_settings.init_linear(rng, shape, config=model.config)

  def __call__(self, model, params, batch, context):
    states = model_calls.encode_batch(
      model, params, batch, context=context, rng=context.rng
    )
    if not self.trains_model:
      states = jax.lax.stop_gradient(states)
    logits = states.mean(axis=1) @ params['heads'][self.name]['kernel']
    loss = objective_base.WeightedMean(
      jnp.sum(logits**2), jnp.float32(logits.shape[0])
    )
    return objective_base.ObjectiveOutput(loss=loss, metrics={})


@pytest.mark.parametrize(
  ('trains_model', 'frozen', 'num_warnings'),
  [(False, (), 1), (True, (), 0), (False, ('model/',), 0)],
)
def test_objectives_that_train_only_their_heads_are_reported(
  trains_model, frozen, num_warnings
):
  settings = gin_files.settings_of(
    ['pretrain/mlm.gin', 'models/tiny.gin'], _RUN
  )
  mixture = objective_mixture.ObjectiveMixture(
    entries=[
      objective_mixture.WeightedObjective(
        objective=_Probe(trains_model=trains_model), dataset='mono'
      )
    ]
  )
  optimizer = optimizers.AdamW(learning_rate=0.1, frozen=frozen)
  setup = training_setup.Setup(
    dataclasses.replace(settings, objectives=mixture, optimizer=optimizer)
  )
  warnings = run_header.untrained_model_warnings(setup)
  assert len(warnings) == num_warnings
  for warning in warnings:
    assert_mentions(warning, 'probe', "frozen=('model/',)")
