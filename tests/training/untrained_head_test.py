"""Tests of detecting masked LM heads that were not trained."""

import json

import jax
import pytest

from tests.training import tiny
from tests.training.unused_parameters_test import _Probe
from xlflax.models.encoder_config import MlmHead
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import param_tree, train_step, untrained_head
from xlflax.training.checkpointing import run_directory
from xlflax.training.optimization import optimizers


def _train(objective, **fields):
  """Returns a model and its parameters by name after two steps."""
  optimizer = optimizers.AdamW(learning_rate=0.01, weight_decay=0.1)
  mixture = tiny.make_mixture(
    objective_mixture.WeightedObjective(dataset='mono', objective=objective)
  )
  model = tiny.make_model(**fields)
  factory = tiny.make_factory(
    model=model, mixture=mixture, optimizer=optimizer, use_ema=False
  )
  builder = train_step.TrainStepBuilder(
    model, mixture, optimizer, tiny.SPEC, seed=0
  )
  state, step = factory.create(jax.random.key(0)), jax.jit(builder.build((0,)))
  for _ in range(2):
    state, _ = step(state, {'mono': tiny.make_batch()})
  return model, param_tree.flatten_params(state.params)


@pytest.mark.parametrize(
  ('objective', 'fields', 'expected'),
  [
    (masked_lm.MaskedLM(), {}, False),
    (masked_lm.MaskedLM(), {'mlm_head': MlmHead.TIED}, False),
    (_Probe(trains_model=True), {}, True),
    (_Probe(trains_model=True), {'mlm_head': MlmHead.TIED}, True),
    (_Probe(trains_model=True), {'mlm_head': MlmHead.NONE}, False),
    (
      _Probe(trains_model=True),
      {'mlm_head': MlmHead.TIED, 'output_bias': False},
      False,
    ),
  ],
)
def test_head_without_gradients_is_found(tmp_path, objective, fields, expected):
  model, params = _train(objective, **fields)
  found = untrained_head.has_untrained_head(
    model, params, model_dir=tmp_path, step=2
  )
  assert found == expected


def test_initial_and_published_heads_are_not_reported(tmp_path):
  model, params = _train(_Probe(trains_model=True))

  def is_reported(step):
    return untrained_head.has_untrained_head(
      model, params, model_dir=tmp_path, step=step
    )

  assert is_reported(2) and not is_reported(0)
  (tmp_path / run_directory.ORIGIN).write_text(json.dumps({}))
  assert not is_reported(2)
