"""Tests that steps of VECO and translation are equal on one and eight devices."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from tests.models import random_parameters
from tests.training import tiny
from xlflax.models import (
  compile_targets,
  encoder_decoder,
  encoder_decoder_config,
)
from xlflax.objectives import objective_base, objective_mixture
from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  masked_lm,
  seq2seq,
)
from xlflax.training import train_step
from xlflax.training.devices import flops, partitioning
from xlflax.training.optimization import optimizers

_STEPS = 5


@dataclasses.dataclass(frozen=True)
class _Case:
  model: Any
  mixture: objective_mixture.ObjectiveMixture


def _veco():
  """Returns a VECO case that alternates adjacent segments and pairs with TLM."""
  entry, ca_mlm = (
    objective_mixture.WeightedObjective,
    cross_attention_mlm.CrossAttentionMLM,
  )
  return _Case(
    tiny.make_model(num_layers=1, scan_layers=False, cross_attention=True),
    tiny.make_mixture(
      entry(dataset='adjacent', objective=ca_mlm()),
      entry(
        dataset='sides', objective=ca_mlm(mask_ratio=0.25, name='ca_mlm_pairs')
      ),
      entry(dataset='pairs', objective=masked_lm.TranslationLM()),
      combine='alternate',
      schedule=(0, (1, 2)),
    ),
  )


def _translation(**fields):
  config = encoder_decoder_config.EncoderDecoderConfig(
    num_encoder_layers=1,
    num_decoder_layers=1,
    hidden_dim=16,
    mlp_dim=32,
    num_heads=2,
    max_position_embeddings=32,
    vocab_size=tiny.SPEC.size,
    num_languages=2,
    scan_layers=False,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    **fields,
  )
  return _Case(
    encoder_decoder.EncoderDecoder(config),
    tiny.make_mixture(
      objective_mixture.WeightedObjective(
        dataset='sides', objective=seq2seq.Translation(decoder_start='bos')
      )
    ),
  )


_CASES = {
  'veco': _veco(),
  'translation': _translation(family='post_ln'),
  'translation_t5': _translation(
    family='t5', gated_mlp=True, tie_word_embeddings=False
  ),
}


def _batch(dataset, seed):
  sides = [tiny.make_batch(seed=2 * seed + i) for i in range(2)]
  if dataset == 'pairs':
    return sides[0]
  return {**sides[0], **{f'paired_{k}': v for k, v in sides[1].items()}}


def _losses(case, partitioner):
  """Returns the losses of the first steps and the final parameters."""
  optimizer = optimizers.AdamW(learning_rate=0.01, eps=1e-3)
  factory = tiny.make_factory(
    model=case.model,
    mixture=case.mixture,
    optimizer=optimizer,
    partitioner=partitioner,
    use_ema=False,
  )
  builder = train_step.TrainStepBuilder(
    model=case.model,
    mixture=case.mixture,
    optimizer=optimizer,
    vocabulary=tiny.SPEC,
    seed=0,
  )
  steps = {
    group: jax.jit(
      builder.build(group),
      donate_argnums=0,
      out_shardings=(factory.shardings, partitioner.replicated),
    )
    for group in case.mixture.groups
  }
  state, losses = factory.create(jax.random.key(0)), []
  with partitioner.scope():
    for i in range(_STEPS):
      group = case.mixture.active(i)
      datasets = {case.mixture.entries[j].dataset for j in group}
      state, output = steps[group](
        state,
        {
          name: jax.device_put(_batch(name, i), partitioner.batch_sharding)
          for name in datasets
        },
      )
      losses.append(float(output.loss))
  return losses, state.params


@pytest.mark.slow
@pytest.mark.parametrize(
  'name',
  [
    'veco',
    pytest.param('translation', marks=pytest.mark.slow),
    pytest.param('translation_t5', marks=pytest.mark.slow),
  ],
)
def test_steps_on_eight_devices_equal_one_device(name):
  case = _CASES[name]
  expected, single_device = _losses(case, tiny.one_device())
  got, eight = _losses(case, partitioning.Partitioner(data=2, fsdp=2, tensor=2))
  np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)
  spread = 0
  for a, b in zip(
    jax.tree.leaves(eight), jax.tree.leaves(single_device), strict=True
  ):
    np.testing.assert_allclose(a, b, atol=1e-3)
    spread += not a.sharding.is_fully_replicated
  assert spread > 10


@pytest.mark.slow
def test_gradient_of_the_output_table_is_reduced_first_on_several_gpus():
  """A barrier orders it before the encoder's gradients. Values are unchanged."""
  case = _translation(
    family='t5', tie_word_embeddings=False, attention_backend='xla'
  )
  params = {'model': random_parameters.draw_parameters(case.model), 'heads': {}}
  batch = _batch('sides', 0)

  def loss(params):
    context = objective_base.ObjectiveContext(
      vocabulary=tiny.SPEC, step=0, train=True, rng=jax.random.key(1)
    )
    (entry,) = case.mixture.entries
    return objective_base.weighted_mean(
      entry.objective(case.model, params, batch, context).loss
    )

  want = jax.jit(jax.grad(loss))(params)
  columns = ('columns', ('data', 'fsdp'))  # as on GPUs of two nodes
  rules = (*partitioning.DEFAULT_RULES, columns)
  with (
    partitioning.Partitioner(data=2, fsdp=4, rules=rules).scope(),
    compile_targets.compiling_for(compile_targets.Target('gpu', (9, 0))),
  ):
    traced = jax.jit(lambda params: jax.grad(loss)(params)).trace(params)
    got = traced.lower().compile()(params)
  shape = params['model']['output'].shape
  barriers = [
    e
    for e in flops.iterate_equations(traced.jaxpr.jaxpr)
    if e.primitive.name == 'optimization_barrier'
    and shape in [v.aval.shape for v in e.outvars]
  ]
  assert len(barriers) == 1
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
