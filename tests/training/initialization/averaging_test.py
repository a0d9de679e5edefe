"""Tests of averaging checkpoints."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.evaluation.fixtures import (  # noqa: F401
  corpus,
  eval_model,
  make_run,
  model,
  vocabulary,
  vocabulary_dir,
)
from tests.training import tiny
from xlflax import cli
from xlflax.training import train_state
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  run_directory,
  saved_run,
)
from xlflax.training.initialization import averaging
from xlflax.training.initialization import init_from as initialization
from xlflax.utils import errors

_STEPS = (2, 10, 16, 30)


@pytest.fixture(scope='module')
def directory(make_run, tmp_path_factory):  # noqa: F811
  """A run whose parameters at step s are 1 + s / 100 times the model's."""
  return make_run(tmp_path_factory.mktemp('runs') / 'run', steps=_STEPS)


def _paths(directory, *steps):
  return [checkpoint_reader.checkpoint_path(directory, step) for step in steps]


def _average(directory, output, *arguments):
  return cli.main(
    [
      'convert',
      'average',
      f'--model_dir={directory}',
      f'--output={output}',
      *arguments,
    ]
  )


@pytest.mark.parametrize(
  'command',
  [
    'convert average --model_dir={run} --last=2 --output={out}',
    'convert to-hf {run} --output={out}',
    'evaluate --model_dir={run} --tasks=perplexity --corpus={corpus}',
  ],
)
def test_flipped_bit_is_detected_by_commands(
  directory,
  corpus,  # noqa: F811
  tmp_path,
  command,
  capsys,
):
  run, out = tmp_path / 'run', tmp_path / 'out'
  shutil.copytree(directory, run)
  item = run / 'checkpoints' / '30' / 'params'
  data = max(item.rglob('d/*'), key=lambda path: path.stat().st_size)
  content = bytearray(data.read_bytes())
  content[len(content) // 2] ^= 16
  data.write_bytes(content)
  arguments = command.format(run=run, out=out, corpus=corpus).split()
  assert cli.main([*arguments]) != 0
  assert not out.exists()


def _scaled(eval_model, steps):  # noqa: F811
  """Returns the mean of the float32 checkpoints, computed in float64."""

  def mean(leaf):
    parts = [np.asarray(leaf * (1 + step / 100), np.float64) for step in steps]
    return (sum(parts) / len(parts)).astype(np.float32)

  return jax.tree.map(mean, eval_model.params)


@pytest.mark.parametrize(
  ('flag', 'steps'),
  [
    ('--last=3', (10, 16, 30)),
    ('--checkpoint_steps=30,2', (2, 30)),
    ('--last=1', (30,)),
  ],
)
def test_average_equals_the_mean_of_checkpoints(
  directory,
  eval_model,  # noqa: F811
  tmp_path,
  capsys,
  flag,
  steps,
):
  output = tmp_path / 'mean'
  assert _average(directory, output, flag) == 0
  assert ', '.join(map(str, steps)) in capsys.readouterr().out
  run = saved_run.load_run(output)
  assert run.steps == [30] and run.is_finished()
  assert run.model == eval_model.model
  assert run.vocabulary.hash == eval_model.vocabulary.hash
  tiny.assert_trees_equal(
    jax.tree.map(np.asarray, run.restore_params(30)), _scaled(eval_model, steps)
  )
  record = json.loads((output / averaging.RECORD).read_text())
  assert record == {str(directory): list(steps)}
  assert run_directory.read_trainer(output) == run_directory.read_trainer(
    directory
  )
  assert not (
    output / run_directory.TRAINER
  ).exists()  # The output cannot be resumed.
  assert [p.name for p in tmp_path.iterdir()] == ['mean']


def test_checkpoints_of_several_runs_are_averaged(
  directory,
  make_run,  # noqa: F811
  eval_model,  # noqa: F811
  tmp_path,
):
  other = make_run(tmp_path / 'other', steps=(2, 16))
  again = f'--model_dir={other}'
  assert _average(directory, tmp_path / 'mean', again, '--last=1') == 0
  run = saved_run.load_run(tmp_path / 'mean')
  assert run.steps == [30]
  tiny.assert_trees_equal(
    jax.tree.map(np.asarray, run.restore_params(30)),
    _scaled(eval_model, (16, 30)),
  )


def test_runs_of_different_models_are_rejected(
  directory,
  eval_model,  # noqa: F811
  tmp_path,
  capsys,
):
  """The models have the same shapes but another configuration."""
  other = tmp_path / 'other'
  shutil.copytree(directory, other)
  config = dataclasses.replace(eval_model.model.config, layer_norm_epsilon=0.5)
  run_directory.write_model(other, eval_model.model.clone(config=config))
  again = f'--model_dir={other}'
  assert _average(directory, tmp_path / 'mean', again, '--last=1') != 0
  assert not (tmp_path / 'mean').exists()


def test_average_is_used_as_initial_parameters(directory, eval_model, tmp_path):  # noqa: F811
  averaging.average_checkpoints({directory: (2, 10)}, tmp_path / 'mean')
  zeros = jax.tree.map(jnp.zeros_like, eval_model.params)
  import types

  state = initialization.initialize_from_runs(
    initialization.InitFromCheckpoint(model_dir=str(tmp_path / 'mean')),
    train_state.TrainState(
      step=jnp.int32(0), params=zeros, opt_state=(), ema=(), objective_state={}
    ),
    types.SimpleNamespace(
      shardings=types.SimpleNamespace(
        params=jax.tree.map(lambda x: x.sharding, zeros)
      )
    ),
  )
  tiny.assert_trees_equal(
    jax.tree.map(np.asarray, state.params), _scaled(eval_model, (2, 10))
  )


def test_average_does_not_depend_on_the_group_size(directory, monkeypatch):
  full_mean = averaging.mean_params(_paths(directory, 2, 16))
  monkeypatch.setattr(averaging, '_GROUP_SIZE', 40)
  tiny.assert_trees_equal(
    averaging.mean_params(_paths(directory, 2, 16)), full_mean
  )


def test_parameters_are_grouped_by_size():
  shapes = {'a': (averaging._GROUP_SIZE,), 'b': (3, 4), 'c': ()}
  assert list(averaging._group_names(shapes)) == [['a'], ['b', 'c']]


def test_missing_steps_are_reported(directory, tmp_path, capsys):
  assert _average(directory, tmp_path / 'mean', '--checkpoint_steps=2,3,5') == 2
  text = capsys.readouterr().err
  assert 'Got: [3, 5]' in text and '[2, 10, 16, 30]' in text
  assert not (tmp_path / 'mean').exists()


def test_too_few_checkpoints_are_reported(directory, tmp_path, capsys):
  assert _average(directory, tmp_path / 'mean', '--last=5') == 2
  text = capsys.readouterr().err
  assert 'Got: [2, 10, 16, 30]' in text and 'At least 5' in text
  assert 'CheckpointOptions.max_to_keep' in text


@pytest.mark.parametrize(
  ('flag', 'message'),
  [('--last=0', '--last'), ('--checkpoint_steps=2,x', '2,x')],
)
def test_invalid_flags_are_rejected(directory, tmp_path, capsys, flag, message):
  assert _average(directory, tmp_path / 'mean', flag) == 2
  assert message in capsys.readouterr().err


def test_existing_output_is_not_overwritten(directory, tmp_path, capsys):
  (tmp_path / 'file').write_text('kept')
  assert _average(directory, tmp_path, '--last=2') == 2
  assert (tmp_path / 'file').read_text() == 'kept'


def test_hugging_face_directory_is_rejected_with_a_hint(tmp_path, capsys):
  (tmp_path / 'config.json').write_text('{}')
  assert _average(tmp_path, tmp_path / 'mean', '--last=5') == 2
  assert_mentions(capsys.readouterr().err, 'from-hf', tmp_path)


def test_missing_run_is_rejected(tmp_path):
  with pytest.raises(errors.RunDirectoryError):
    averaging.average_checkpoints({tmp_path / 'none': (1,)}, tmp_path / 'mean')


def test_checkpoints_of_different_shapes_are_rejected(
  make_run,  # noqa: F811
  eval_model,  # noqa: F811
  tmp_path,
):
  directory = make_run(tmp_path / 'run', steps=(2,))
  saved = checkpoints.Checkpoints(directory)
  saved.save(
    train_state.TrainState(
      step=jnp.int32(4),
      params={'model': {'w': jnp.zeros(3)}},
      opt_state={},
      ema=(),
      objective_state={},
    ),
    {},
  )
  saved.close()
  with pytest.raises(errors.CheckpointError):
    averaging.average_checkpoints({directory: (2, 4)}, tmp_path / 'mean')


def test_non_finite_parameters_are_rejected(tmp_path):
  saved = checkpoints.Checkpoints(
    tmp_path, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  for step, value in ((1, 0.0), (2, np.nan)):
    saved.save(
      train_state.TrainState(
        step=jnp.int32(step),
        params={'model': {'w': jnp.full((3,), value)}},
        opt_state=(),
        ema=(),
        objective_state={},
      ),
      meta={},
    )
  saved.close()
  with raises_error(
    errors.CheckpointError, mentions=(3, 'model/w', 'NaN', 'checkpoints/2')
  ):
    averaging.mean_params(_paths(tmp_path, 1, 2))
