"""Tests of training with language-specific parameters."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.training import tiny, training_setup_test
from xlflax.data import dataset_config
from xlflax.models.variants.parameter_sharing import SharingPlan
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import (
  param_tree,
  sharing_checks,
  train_step,
  training_setup,
)
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_PLAN = SharingPlan(embeddings=True, layers=1)
_SPEC = dataclasses.replace(
  tiny.SPEC, language_words=(((5, 40),), ((35, 64),)), words_overlap=True
)
_MONO = dataclasses.replace(
  training_setup_test.MONO,
  batching=dataset_config.LanguageBatching.ONE_LANGUAGE,
)
_SIDES = dataset_config.DatasetConfig(
  name='sides',
  mixture='corpus.parallel',
  layout='dual',
  length=10,
  batch_size=8,
  batching='one_language',
)
# Adds a constant to all scores of a query, which does not change the softmax.
_NO_EFFECT = 'attention/key/bias'
_FROZEN = ('model/language_specific/',)


def _model():
  return tiny.make_model(sharing=_PLAN)


def _mixture():
  return tiny.make_mixture(
    objective_mixture.WeightedObjective(
      dataset='mono', objective=masked_lm.MaskedLM(random_words='language')
    )
  )


def _fails(dataset, spec=_SPEC, plan=_PLAN) -> str:
  with pytest.raises(errors.ConfigError) as error:
    sharing_checks.check_sharing(plan, (_MONO, dataset), spec)
  return str(error.value)


def test_monolingual_batches_are_accepted():
  adjacent = dataclasses.replace(
    _SIDES,
    layout=dataset_config.ExampleLayout.INTERLEAVED,
    pairs=dataset_config.PairOptions(order='random'),
  )
  sharing_checks.check_sharing(_PLAN, (_MONO, _SIDES, adjacent), _SPEC)
  sharing_checks.check_sharing(None, (training_setup_test.MONO,), tiny.SPEC)


def test_batches_of_mixed_languages_are_rejected():
  mixed = dataclasses.replace(
    _SIDES, batching=dataset_config.LanguageBatching.MIXED
  )
  text = _fails(mixed)
  assert_mentions(
    text, "'sides'", 'MIXED', 'ONE_LANGUAGE', "batching='one_language'"
  )


def test_examples_of_two_languages_are_rejected():
  text = _fails(
    dataclasses.replace(_SIDES, layout=dataset_config.ExampleLayout.PAIRS)
  )
  assert_mentions(text, "'sides'", 'PAIRS', 'DUAL')


def test_random_order_of_pairs_is_rejected():
  text = _fails(
    dataclasses.replace(
      _SIDES, pairs=dataset_config.PairOptions(order='random')
    )
  )
  assert_mentions(
    text, "'sides'", 'pairs.order=RANDOM', 'pairs.order=UNCHANGED'
  )


@pytest.mark.parametrize('plan', [None, SharingPlan(layers=2)])
def test_shared_token_ids_require_separate_embeddings(plan):
  text = _fails(_SIDES, plan=plan)
  assert_mentions(text, 'EncoderConfig.sharing', 'embeddings=True', plan)


def test_setup_checks_language_specific_parameters():
  settings = training_setup_test.make_settings(model=_model())
  with pytest.raises(errors.ConfigError, match='ONE_LANGUAGE'):
    training_setup.Setup(settings)


def _factory(partitioner, **fields):
  return tiny.make_factory(
    model=_model(),
    mixture=_mixture(),
    partitioner=partitioner,
    use_ema=False,
    **fields,
  )


def _german():
  """Returns a batch of German words and padding."""
  batch = tiny.make_batch()
  ids = batch['token_ids']
  ids[:] = np.where(ids >= 5, 35 + ids % 29, ids)
  batch['language_ids'] = batch['segment_ids'].copy()
  return batch


def _step(partitioner, optimizer):
  """Returns the state before and after one step on German text."""
  factory = _factory(partitioner, optimizer=optimizer)
  state = factory.create(jax.random.key(3))
  step = train_step.TrainStepBuilder(
    model=_model(),
    mixture=_mixture(),
    optimizer=optimizer,
    vocabulary=_SPEC,
    seed=0,
  ).build((0,))
  batch = jax.device_put(_german(), partitioner.batch_sharding)
  with partitioner.scope():
    after, _ = jax.jit(
      step, out_shardings=(factory.shardings, partitioner.replicated)
    )(state, {'mono': batch})
  return state, after


@pytest.fixture(scope='module')
def alone():
  # Adam's step is g / (|g| + 1): in proportion to the gradient.
  return _step(tiny.one_device(), optimizers.Adam(learning_rate=0.1, eps=1.0))


def test_step_updates_shared_parameters_and_those_of_the_language(alone):
  before, after = (param_tree.flatten_params(state.params) for state in alone)
  for name, leaf in after.items():
    if 'language_specific' in name:
      np.testing.assert_array_equal(leaf[0], before[name][0], err_msg=name)
      leaf, before[name] = leaf[1], before[name][1]
    assert (leaf != before[name]).any() or name.endswith(_NO_EFFECT), name


@pytest.mark.slow
def test_step_on_eight_devices_equals_one_device(alone):
  mesh = partitioning.Partitioner(fsdp=2, tensor=2)
  sharded = _step(mesh, optimizers.Adam(learning_rate=0.1, eps=1.0))
  for mine, other in zip(sharded, alone, strict=True):
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5),
      mine.params,
      other.params,
    )
  table = sharded[1].params['model']['language_specific']['embeddings']['token']
  assert table.addressable_shards[0].data.shape == (2, 32, 8)


@pytest.mark.slow
def test_frozen_language_specific_parameters_are_unchanged():
  """They have no optimizer state."""
  optimizer = optimizers.AdamW(learning_rate=0.1, frozen=_FROZEN)
  before, after = _step(tiny.one_device(), optimizer)
  old, new = (
    param_tree.flatten_params(before.params),
    param_tree.flatten_params(after.params),
  )
  for name, leaf in new.items():
    same = np.array_equal(leaf, old[name])
    frozen = name.startswith(_FROZEN)
    assert same == frozen or name.endswith(_NO_EFFECT), name
  assert not any(
    'language_specific' in name and leaf.size
    for name, leaf in param_tree.flatten_params(after.opt_state).items()
  )
