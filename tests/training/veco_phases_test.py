"""Tests of the phases of VECO: first only cross-attention, then all parameters."""

import functools

import jax
import numpy as np
import pytest

from tests.training import tiny
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import cross_attention_mlm, masked_lm
from xlflax.training import param_tree, train_step
from xlflax.training.checkpointing import checkpoints
from xlflax.training.initialization import init_from as initialization
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_CROSS = 'cross_attention'
_PHASE_1 = optimizers.AdamW(learning_rate=0.01, trainable=(_CROSS,))
_PHASE_2 = optimizers.AdamW(learning_rate=0.01)


def _mixture():
  """Returns a mixture that alternates monolingual and bilingual CA-MLM."""
  entry, ca_mlm = (
    objective_mixture.WeightedObjective,
    cross_attention_mlm.CrossAttentionMLM,
  )
  return tiny.make_mixture(
    entry(dataset='adjacent', objective=ca_mlm()),
    entry(
      dataset='sides', objective=ca_mlm(mask_ratio=0.25, name='ca_mlm_pairs')
    ),
    entry(dataset='pairs', objective=masked_lm.TranslationLM()),
    combine='alternate',
    schedule=(0, (1, 2)),
  )


@functools.cache
def _factory(optimizer, **changes):
  model = tiny.make_model(**{_CROSS: True} | changes)
  return tiny.make_factory(
    model=model, mixture=_mixture(), optimizer=optimizer, use_ema=False
  )


def _two_sided(seed):
  sides = [tiny.make_batch(seed=seed + i) for i in range(2)]
  return {**sides[0], **{f'paired_{k}': v for k, v in sides[1].items()}}


@pytest.fixture(scope='module')
def plug_out(tmp_path_factory):
  """Checkpoint of an encoder without cross-attention."""
  factory = tiny.make_factory(use_ema=False)
  return _save(
    factory.create(jax.random.key(7)), tmp_path_factory.mktemp('plug_out')
  )


def _save(state, directory) -> str:
  saved = checkpoints.Checkpoints(directory)
  saved.save(state.replace(step=np.int32(1)), {})
  saved.close()
  return str(directory)


def _begin(factory, model_dir, **fields):
  """Returns a new state with the parameters of another run."""
  return initialization.initialize_from_runs(
    initialization.InitFromCheckpoint(model_dir=model_dir, **fields),
    factory.create(jax.random.key(0)),
    factory,
  )


def _named(state):
  return {
    name: np.asarray(leaf)
    for name, leaf in param_tree.flatten_params(state.params['model']).items()
  }


def _train(optimizer, state, *, first_step=0):
  """Returns the state after a monolingual and a bilingual step."""
  mixture = _mixture()
  builder = train_step.TrainStepBuilder(
    tiny.make_model(cross_attention=True), mixture, optimizer, tiny.SPEC, seed=0
  )
  batches = (
    {'adjacent': _two_sided(0)},
    {'sides': _two_sided(2), 'pairs': tiny.make_batch(seed=4)},
  )
  names = ({'ca_mlm'}, {'ca_mlm_pairs', 'tlm'})
  for step in range(first_step, 2):
    state, output = jax.jit(builder.build(mixture.active(step)))(
      state, batches[step]
    )
    assert np.isfinite(output.loss)
    assert {name.split('/')[0] for name in output.metrics} == names[step]
  return state


@pytest.mark.slow
def test_phases_train_cross_attention_and_then_all_parameters(
  plug_out, tmp_path
):
  start = _begin(_factory(_PHASE_1), plug_out, exclude=(_CROSS,))
  before = _named(start)
  source = _named(tiny.make_factory(use_ema=False).create(jax.random.key(7)))
  assert before.keys() - source.keys() == {n for n in before if _CROSS in n}
  for name, value in source.items():
    np.testing.assert_array_equal(before[name], value)

  first = _train(_PHASE_1, start)
  after = _named(first)
  moved = {name for name in after if (after[name] != before[name]).any()}
  assert moved == {name for name in after if _CROSS in name}

  second = _begin(_factory(_PHASE_2), _save(first, tmp_path / 'phase_1'))
  for name, value in _named(second).items():
    np.testing.assert_array_equal(after[name], value)
  last = _named(_train(_PHASE_2, second, first_step=1))
  still = {name for name in last if (last[name] == after[name]).all()}
  assert all(
    name.endswith('key/bias') for name in still
  )  # Key biases do not change the softmax.


@pytest.mark.slow
def test_new_parameters_must_be_excluded_or_allowed(plug_out):
  with pytest.raises(errors.CheckpointError) as raised:
    _begin(_factory(_PHASE_1), plug_out)
  assert (
    'Got: model/layers/cross_attention/key/bias is not in the checkpoint; '
  ) in str(raised.value)
  assert 'InitFromCheckpoint.exclude' in raised.value.fix
  allowed = _begin(_factory(_PHASE_1), plug_out, allow_missing=True)
  left_out = _begin(_factory(_PHASE_1), plug_out, exclude=(_CROSS,))
  tiny.assert_trees_equal(allowed.params, left_out.params)


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      dict(num_layers=3),
      'model/layers/attention/key/bias is (3, 2, 8) here, '
      '(2, 2, 8) in the checkpoint',
    ),
    (
      dict(hidden_dim=24),
      'model/embeddings/token is (64, 24) here, (64, 16) in the checkpoint',
    ),
    (
      dict(mlp_dim=40),
      'model/layers/mlp/wi/kernel is (2, 16, 40) here, '
      '(2, 16, 32) in the checkpoint',
    ),
  ],
)
def test_encoder_of_a_different_shape_is_rejected(plug_out, changes, message):
  with pytest.raises(errors.CheckpointError) as raised:
    _begin(_factory(_PHASE_1, **changes), plug_out, exclude=(_CROSS,))
  assert 'The checkpoint does not match the model' in str(raised.value)
  assert message in str(raised.value)


def test_second_phase_requires_cross_attention():
  with pytest.raises(errors.ConfigError) as raised:
    _factory(_PHASE_2, cross_attention=False)
  assert "Where: objective 'ca_mlm'" in str(raised.value)
