"""Tests of initial parameters from another run."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import checkpoints
from xlflax.training.initialization import init_from as initialization
from xlflax.training.initialization import vocabulary_matching
from xlflax.utils import errors

_SOURCE = {
  'model': {
    'embeddings': {'token': jnp.full((6, 2), 1.0)},
    'layers': {'query': jnp.full((2, 2), 2.0), 'bias': jnp.full((2,), 3.0)},
    'output_bias': jnp.full((6,), 4.0),
  }
}


def _state(params, *, ema=False, step=0):
  return train_state.TrainState(
    step=jnp.int32(step),
    params=params,
    opt_state={'count': jnp.int32(step)},
    ema=jax.tree.map(jnp.copy, params) if ema else (),
    objective_state={},
  )


def _zeros(tree):
  return jax.tree.map(jnp.zeros_like, tree)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run with checkpoints 1 (zeros) and 5 (`_SOURCE`)."""
  directory = tmp_path_factory.mktemp('run')
  saved = checkpoints.Checkpoints(directory)
  saved.save(_state(_zeros(_SOURCE), step=1), {})
  saved.save(_state(_SOURCE, step=5), {})
  saved.close()
  return str(directory)


def _apply(run, params, *, ema=False, **fields):
  shardings = types.SimpleNamespace(
    params=jax.tree.map(lambda x: x.sharding, params)
  )
  return initialization.initialize_from_runs(
    initialization.InitFromCheckpoint(model_dir=run, **fields),
    _state(params, ema=ema),
    types.SimpleNamespace(shardings=shardings),
  )


def _fails(run, params=None, error=errors.CheckpointError, **fields) -> str:
  with pytest.raises(error) as raised:
    _apply(run, _zeros(_SOURCE) if params is None else params, **fields)
  return str(raised.value)


def _values(state):
  """Returns the constant value of each parameter by name."""
  return {
    n: float(np.unique(leaf).item())
    for n, leaf in param_tree.flatten_params(state.params['model']).items()
  }


_ALL = {
  'embeddings/token': 1.0,
  'layers/query': 2.0,
  'layers/bias': 3.0,
  'output_bias': 4.0,
}


def test_model_is_initialized_from_the_newest_checkpoint(run, caplog):
  caplog.set_level('INFO')
  state = _apply(run, _zeros(_SOURCE))
  tiny.assert_trees_equal(state.params, _SOURCE)
  assert int(state.step) == 0  # a new run, with a fresh optimizer
  assert int(state.opt_state['count']) == 0 and state.ema == ()
  assert_mentions(caplog.text, 4, 0)
  assert_mentions(caplog.text, run)


def test_average_starts_from_the_initial_parameters(run):
  state = _apply(run, _zeros(_SOURCE), ema=True)
  tiny.assert_trees_equal(state.ema, _SOURCE)
  pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
  assert len(set(pointers)) == len(pointers)


def test_directory_without_options_is_accepted(run):
  params = _zeros(_SOURCE)
  shardings = types.SimpleNamespace(
    params=jax.tree.map(lambda x: x.sharding, params)
  )
  for inits in (run, [run]):
    state = initialization.initialize_from_runs(
      inits, _state(params), types.SimpleNamespace(shardings=shardings)
    )
    tiny.assert_trees_equal(state.params, _SOURCE)


def test_parameters_of_a_given_step_are_restored(run, caplog):
  assert set(_values(_apply(run, _zeros(_SOURCE), step=1)).values()) == {0.0}
  assert 'has not ended' not in caplog.text


@pytest.mark.parametrize(
  ('fields', 'transferred'),
  [
    (dict(include=('embeddings',)), {'embeddings/token'}),
    (dict(exclude=('bias$',)), {'embeddings/token', 'layers/query'}),
    (
      dict(include=('layers/', 'output'), exclude=('query',)),
      {'layers/bias', 'output_bias'},
    ),
  ],
)
def test_include_and_exclude_select_parameters(
  run, caplog, fields, transferred
):
  caplog.set_level('INFO')
  values = _values(_apply(run, _zeros(_SOURCE), **fields))
  assert values == {n: v if n in transferred else 0.0 for n, v in _ALL.items()}
  for name in _ALL.keys() - transferred:
    assert_mentions(caplog.text, f'model/{name}')


def test_one_source_parameter_initializes_two_parameters(run):
  """Self-attention also initializes cross-attention, as in VECO."""
  params = {
    'model': {
      'layers': {
        'self': {'query': jnp.zeros((2, 2))},
        'cross': {'query': jnp.zeros((2, 2))},
      }
    }
  }
  state = _apply(
    run, params, assignment_map=(('(self|cross)/', ''),), unused=('.*',)
  )
  assert _values(state) == {'layers/self/query': 2.0, 'layers/cross/query': 2.0}
  leaves = jax.tree.leaves(state.params)
  assert leaves[0].unsafe_buffer_pointer() != leaves[1].unsafe_buffer_pointer()


def test_renames_are_applied_in_order():
  init = initialization.InitFromCheckpoint(
    model_dir='',
    assignment_map=((r'^model/enc', 'model/dec'), (r'dec(\d)', r'l\1')),
  )
  assert init.source_name('model/enc3/query') == 'model/l3/query'


def test_new_parameters_must_be_excluded_or_allowed(run):
  params = _zeros(_SOURCE) | {'heads': {'align': jnp.zeros(3)}}
  text = _fails(run, params)
  assert 'Got: heads/align is not in the checkpoint' in text
  assert 'InitFromCheckpoint.allow_missing' in text
  assert 'InitFromCheckpoint.exclude="(' in text
  for fields in (dict(allow_missing=True), dict(exclude=('^heads/',))):
    state = _apply(run, params, **fields)
    assert _values(state) == _ALL
    assert not state.params['heads']['align'].any()


def test_unused_parameters_raise(run):
  params = {'model': dict(_zeros(_SOURCE)['model'])}
  del params['model']['output_bias']
  text = _fails(run, params)
  assert 'Got: model/output_bias of the checkpoint is unused.' in text
  assert 'InitFromCheckpoint.unused' in text
  for fields in (
    dict(unused=('output_bias',)),
    dict(include=('model/layers', 'embeddings')),
  ):
    got = _values(_apply(run, params, **fields))
    assert got == {k: v for k, v in _ALL.items() if k != 'output_bias'}


def test_all_shape_mismatches_are_listed(run):
  params = _zeros(_SOURCE)
  params['model']['embeddings']['token'] = jnp.zeros((7, 2))
  params['model']['output_bias'] = jnp.zeros(7)
  text = _fails(run, params)
  assert (
    'model/embeddings/token is (7, 2) here, (6, 2) in the checkpoint; '
    'model/output_bias is (7,) here, (6,) in the checkpoint'
  ) in text
  state = _apply(run, params, exclude=('token', 'output_bias'))
  assert _values(state)['layers/query'] == 2.0


def test_allow_missing_does_not_allow_shape_mismatches(run):
  params = _zeros(_SOURCE)
  params['model']['output_bias'] = jnp.zeros(7)
  assert 'is (7,) here' in _fails(run, params, allow_missing=True)


def test_run_without_common_parameters_is_rejected(run):
  text = _fails(run, {'model': {'other': jnp.zeros(2)}}, allow_missing=True)
  assert 'do not have any parameters in common' in text


def test_missing_step_is_reported_with_existing_steps(run):
  assert _fails(run, step=3).endswith(
    f'Got: 3. Expected: [1, 5]. Where: {run}.'
  )


def test_missing_run_suggests_a_similar_path(tmp_path):
  (tmp_path / 'good').mkdir()
  with raises_error(
    errors.CheckpointError,
    got=tmp_path / 'goood',
    where='InitFromCheckpoint.model_dir',
    mentions=f'{tmp_path}/good',
  ):
    _apply(str(tmp_path / 'goood'), _zeros(_SOURCE))


def test_file_is_rejected_as_a_run_directory(tmp_path):
  (tmp_path / 'file').write_text('')
  with raises_error(
    errors.CheckpointError,
    got=tmp_path / 'file',
    where='InitFromCheckpoint.model_dir',
  ):
    _apply(str(tmp_path / 'file'), _zeros(_SOURCE))


def test_run_without_checkpoint_is_rejected(tmp_path):
  with raises_error(errors.CheckpointError, where=tmp_path):
    _apply(str(tmp_path), _zeros(_SOURCE))


def test_checkpoint_directory_is_rejected_with_the_settings_of_training(
  tmp_path,
):
  checkpoint = tmp_path / 'run/checkpoints/4'
  checkpoint.mkdir(parents=True)
  (tmp_path / 'run/model.json').write_text('{}')
  with raises_error(
    errors.CheckpointError,
    where=checkpoint,
    mentions=(
      f'InitFromCheckpoint.model_dir="\'{tmp_path / "run"}\'"',
      'InitFromCheckpoint.step=4',
      '--gin.INIT_STEP=4',
    ),
  ) as error:
    _apply(str(checkpoint), _zeros(_SOURCE))
  assert 'xlflax evaluate' not in error.value.fix


@pytest.mark.parametrize('name', ['hf', 'hf/model.safetensors'])
def test_hugging_face_directory_is_rejected_with_a_hint(tmp_path, name):
  (tmp_path / 'hf').mkdir()
  (tmp_path / 'hf/config.json').write_text('{"model_type": "bert"}')
  (tmp_path / 'hf/model.safetensors').write_text('')
  with raises_error(
    errors.CheckpointError,
    mentions=('model directory', 'from-hf', tmp_path / 'hf'),
  ):
    _apply(str(tmp_path / name), _zeros(_SOURCE))


def test_hugging_face_model_name_is_rejected_with_a_hint(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with raises_error(
    errors.CheckpointError,
    got='google/bert',
    mentions=('from-hf', 'google/bert'),
  ):
    _apply('google/bert', _zeros(_SOURCE))


@pytest.mark.parametrize('field', ['include', 'exclude'])
def test_pattern_without_a_match_is_rejected(run, field):
  text = _fails(run, error=errors.ConfigError, **{field: ('no_such',)})
  assert 'Got: no_such' in text
  assert f'InitFromCheckpoint.{field}' in text


@pytest.mark.parametrize('rename', [('(', ''), ('a', r'\1')])
def test_invalid_regular_expression_is_rejected(run, rename):
  text = _fails(run, error=errors.ConfigError, assignment_map=(rename,))
  assert f'Got: {rename}' in text
  assert 'InitFromCheckpoint.assignment_map' in text


def test_replaced_parameters_are_listed(run):
  def replaced(**fields):
    init = initialization.InitFromCheckpoint(model_dir=run, **fields)
    return initialization.replaced_parameters([init], _SOURCE)

  all_names = {f'model/{name}' for name in _ALL}
  assert replaced() == all_names
  assert replaced(exclude=('output_bias',)) == all_names - {'model/output_bias'}
  assert replaced(allow_missing=True) == set()
  matching = vocabulary_matching.EmbeddingTransfer()
  rows = {'model/embeddings/token', 'model/output_bias'}
  assert replaced(vocabulary_matching=matching) == all_names - rows
  assert initialization.replaced_parameters(None, _SOURCE) == set()
  other_names = [
    initialization.InitFromCheckpoint(model_dir=run, include=('layers',)),
    initialization.InitFromCheckpoint(model_dir=run, include=('embeddings',)),
  ]
  assert initialization.replaced_parameters(
    other_names, _SOURCE
  ) == all_names - {'model/output_bias'}
