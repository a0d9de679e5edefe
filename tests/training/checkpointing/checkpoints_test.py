"""Tests of writing, retaining and restoring checkpoints, and of damaged ones."""

import errno
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  run_directory,
)
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_OPTIMIZER = optimizers.AdamW(learning_rate=0.1)


def _state(step=0, *, optimizer=_OPTIMIZER, ema=True, length=12):
  state = tiny.regression_state(optimizer, ema=ema, length=length)
  state = tiny.numbered(state)
  return state.replace(step=jnp.int32(step))


def _factory(state):
  """Returns a state factory on one device, like `StateFactory`."""
  abstract = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state
  )
  sharded = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
  )
  return types.SimpleNamespace(abstract=abstract, abstract_sharded=sharded)


def _write(directory, steps, metrics=None, **options) -> None:
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(**options)
  )
  for step in steps:
    saved.save(_state(step), {'step': step}, metrics and metrics[step])
  saved.close()


def _restore(directory, state=None):
  saved = checkpoints.Checkpoints(directory)
  try:
    return saved.restore_last(_factory(state or _state()))
  finally:
    saved.close()


def _step_dir(directory, step) -> pathlib.Path:
  return directory / checkpoint_reader.DIRECTORY / str(step)


def test_checkpoint_is_restored_bit_exactly_on_another_mesh(tmp_path):
  """Restores parameters, optimizer state and average from 8 devices on one."""
  sharded = tiny.make_factory(
    partitioner=partitioning.Partitioner(fsdp=2, tensor=2)
  )
  values = tiny.numbered(
    jax.tree.map(
      lambda leaf: jax.device_put(
        jnp.zeros(leaf.shape, leaf.dtype), leaf.sharding
      ),
      sharded.abstract_sharded,
    )
  )
  values = values.replace(step=jnp.int32(7))
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(values, {'metrics': [0.1, None], 'seed': 3})
  saved.wait()
  assert saved.last_step == 7
  alone = tiny.make_factory()
  for factory in (sharded, alone):
    restored = saved.restore_last(factory)
    assert (restored.step, restored.meta) == (
      7,
      {'metrics': [0.1, None], 'seed': 3},
    )
    tiny.assert_trees_equal(restored.state, values)
    for leaf, sharding in zip(
      jax.tree.leaves(restored.state),
      jax.tree.leaves(factory.shardings),
      strict=True,
    ):
      assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
  saved.close()
  average = checkpoint_reader.restore_params(tmp_path, 7, alone.abstract.params)
  tiny.assert_trees_equal(average, values.ema)


def test_checkpoint_written_with_limited_memory_is_restored(tmp_path):
  """The run resumes from it and writes later checkpoints without a limit."""
  _write(tmp_path, [3], save_concurrent_gb=1)
  for step in (3, 5):
    restored = _restore(tmp_path)
    assert restored.step == step and restored.meta == {'step': step}
    want = _state(step)
    jax.tree.map(np.testing.assert_array_equal, restored.state, want)
    _write(tmp_path, [5])
  params = checkpoint_reader.restore_params(
    tmp_path, 3, _factory(_state()).abstract_sharded.params
  )
  jax.tree.map(np.testing.assert_array_equal, params, _state().ema)


def test_restore_without_checkpoints_returns_none(tmp_path):
  assert _restore(tmp_path) is None


def test_newest_checkpoint_is_restored(tmp_path):
  _write(tmp_path, [1, 9, 10])
  assert _restore(tmp_path).step == 10
  assert checkpoint_reader.finished_steps(tmp_path) == [1, 9, 10]


def test_existing_checkpoint_is_not_written_again(tmp_path):
  _write(tmp_path, [1, 1])
  assert checkpoint_reader.finished_steps(tmp_path) == [1]


@pytest.mark.parametrize(
  ('options', 'expected_steps'),
  [
    (dict(max_to_keep=2), [4, 5]),
    (dict(max_to_keep=None), [0, 1, 2, 3, 4, 5]),
    (dict(max_to_keep=1, keep_period=2), [0, 2, 4, 5]),
  ],
)
def test_retention_options_select_the_kept_checkpoints(
  tmp_path, options, expected_steps
):
  _write(tmp_path, range(6), **options)
  assert checkpoint_reader.finished_steps(tmp_path) == expected_steps


@pytest.mark.parametrize(('highest', 'best'), [(True, 1), (False, 2)])
def test_best_checkpoint_is_kept(tmp_path, highest, best):
  scores = {1: 0.9, 2: 0.1, 3: 0.5, 4: 0.6}
  _write(
    tmp_path,
    scores,
    {s: {'retrieval/mean': v, 'more': 1.0} for s, v in scores.items()},
    max_to_keep=1,
    metric_for_best_model='retrieval/mean',
    greater_is_better=highest,
  )
  assert checkpoint_reader.finished_steps(tmp_path) == [best, 4]


def test_best_checkpoint_is_kept_after_a_restart(tmp_path):
  options = dict(max_to_keep=1, metric_for_best_model='m')
  _write(tmp_path, [1, 2], {1: {'m': 0.9}, 2: {'m': 0.1}}, **options)
  _write(tmp_path, [3, 4], {3: {'m': 0.2}, 4: {'m': 0.3}}, **options)
  assert checkpoint_reader.finished_steps(tmp_path) == [1, 4]


def test_checkpoints_without_a_finite_metric_are_not_best(tmp_path):
  metrics = {
    1: None,
    2: {'m': 0.1},
    3: {'m': math.nan},
    4: {'other': 9.0},
    5: None,
  }
  _write(tmp_path, metrics, metrics, max_to_keep=1, metric_for_best_model='m')
  assert checkpoint_reader.finished_steps(tmp_path) == [2, 5]


def _truncate_data(step_dir) -> None:
  for file in (step_dir / 'params').rglob('d/*'):
    file.write_bytes(file.read_bytes()[:10])


def _delete_metadata(step_dir) -> None:
  (step_dir / 'train' / '_METADATA').unlink()


def _delete_manifest(step_dir) -> None:
  (step_dir / 'params' / 'manifest.ocdbt').unlink()


def _delete_meta_item(step_dir) -> None:
  shutil.rmtree(step_dir / 'meta')


@pytest.mark.parametrize(
  'damage',
  [_truncate_data, _delete_metadata, _delete_manifest, _delete_meta_item],
)
def test_previous_checkpoint_is_restored_if_the_newest_is_damaged(
  tmp_path, damage, warnings_logged
):
  _write(tmp_path, [1, 2])
  damage(_step_dir(tmp_path, 2))
  restored = _restore(tmp_path)
  assert restored.step == 1
  tiny.assert_trees_equal(restored.state, _state(1))
  assert checkpoint_reader.finished_steps(tmp_path) == [1]
  (moved,) = (tmp_path / checkpoints.REJECTED).iterdir()
  assert moved.name.startswith('2-')
  (message,) = [m for m in warnings_logged() if str(moved) in m]
  assert str(_step_dir(tmp_path, 2)) in message
  _write(tmp_path, [2])  # The step can be written again.
  assert _restore(tmp_path).step == 2


@pytest.mark.parametrize(
  'error',
  [
    OSError(errno.ESTALE, os.strerror(errno.ESTALE)),
    RuntimeError('UNAVAILABLE: all attempts to read gs://b/run failed'),
    RuntimeError('Gloo all-reduce failed: Connection closed by peer'),
  ],
)
def test_failed_reads_do_not_reject_a_checkpoint(tmp_path, monkeypatch, error):
  """The checkpoint is not moved, so a restarted run can read it."""

  def fail(*unused):
    raise error

  _write(tmp_path, [1, 2])
  with monkeypatch.context() as patched:
    patched.setattr(checkpoints.checkpoint_items, 'read_arrays', fail)
    with pytest.raises(errors.CheckpointError) as raised:
      _restore(tmp_path)
  assert raised.value.status is errors.ExitStatus.FAILURE
  assert _restore(tmp_path).step == 2


def _flip(path: pathlib.Path, rng) -> None:
  content = bytearray(path.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  path.write_bytes(content)


@pytest.mark.parametrize('item', ['params', 'train', 'meta'])
def test_flipped_bits_are_detected(tmp_path, item):
  """A bit of each file of an item is flipped in turn."""
  _write(tmp_path / 'run', [1, 2])
  rng = random.Random(item)
  source = _step_dir(tmp_path / 'run', 2) / item
  abstract = _factory(_state()).abstract_sharded.params
  files = [p for p in source.rglob('*') if p.is_file() and p.stat().st_size]
  for number, file in enumerate(sorted(files)):
    if (
      file.name == 'commit_success.txt'
    ):  # Only the existence of this file matters.
      continue
    run = tmp_path / str(number)
    shutil.copytree(tmp_path / 'run', run)
    _flip(_step_dir(run, 2) / item / file.relative_to(source), rng)
    if item == 'train':  # The averaged parameters are evaluated.
      with raises_error(
        errors.CheckpointError,
        where='2',
        mentions=f'train/{file.relative_to(source)}',
      ):
        checkpoint_reader.restore_params(run, 2, abstract)
    assert _restore(run).step == 1


def test_mixed_items_of_two_checkpoints_are_rejected(tmp_path):
  """Each item is valid, but the items belong to different checkpoints."""
  _write(tmp_path, [1, 2, 3])
  for item in ('params', 'train'):
    shutil.rmtree(_step_dir(tmp_path, 3) / item)
    shutil.copytree(
      _step_dir(tmp_path, 2) / item, _step_dir(tmp_path, 3) / item
    )
  shutil.rmtree(_step_dir(tmp_path, 2))
  _step_dir(tmp_path, 1).rename(_step_dir(tmp_path, 2))
  with raises_error(errors.CheckpointError, mentions=('params', 1)):
    _restore(tmp_path)


def test_missing_checkpoint_is_reported_with_existing_steps(tmp_path):
  with raises_error(
    errors.CheckpointError, got=None, expected=None, where=tmp_path
  ) as error:
    checkpoint_reader.checkpoint_path(tmp_path, -1)
  assert_mentions(error.value.fix, 'xlflax train')
  _write(tmp_path, [1, 2])
  with raises_error(errors.CheckpointError, got=3, mentions=(1, 2)):
    checkpoint_reader.checkpoint_path(tmp_path, 3)


def test_checkpoint_of_another_run_is_not_restored(tmp_path):
  """The checkpoint is valid and has the same step and shapes."""
  for name in ('a', 'b'):
    run_directory.write_model(tmp_path / name, tiny.make_model())
    _write(tmp_path / name, [1, 2])
  shutil.rmtree(_step_dir(tmp_path / 'a', 2))
  shutil.copytree(_step_dir(tmp_path / 'b', 2), _step_dir(tmp_path / 'a', 2))
  assert _restore(tmp_path / 'a').step == 1


def test_all_checkpoints_damaged_is_an_error(tmp_path):
  """No checkpoint is moved, because the cause may be temporary."""
  _write(tmp_path, [1, 2])
  for step in (1, 2):
    _truncate_data(_step_dir(tmp_path, step))
  with pytest.raises(errors.CheckpointError) as error:
    _restore(tmp_path)
  text = str(error.value)
  assert 'Got: step 2: ' in text
  assert '; step 1: ' in text and str(tmp_path) in text
  assert checkpoint_reader.finished_steps(tmp_path) == [1, 2]


def test_unfinished_checkpoint_is_ignored(tmp_path):
  _write(tmp_path, [1])
  shutil.copytree(
    _step_dir(tmp_path, 1), tmp_path / 'checkpoints/2.orbax-checkpoint-tmp-0'
  )
  assert checkpoint_reader.finished_steps(tmp_path) == [1]
  assert _restore(tmp_path).step == 1


def test_different_vocabulary_size_is_reported(tmp_path):
  _write(tmp_path, [3])
  with pytest.raises(errors.CheckpointError) as error:
    _restore(tmp_path, _state(length=13))
  text = str(error.value)
  assert 'model/w is (12,) in the checkpoint, (13,) in the model' in text
  assert 'model/bias' not in text and 'vocabulary' in text
  assert checkpoint_reader.finished_steps(tmp_path) == [3]


def test_missing_and_unexpected_parameters_are_reported(tmp_path):
  _write(tmp_path, [3])
  abstract = {
    'model': {
      'w': jax.ShapeDtypeStruct((12,), jnp.float32),
      'new': jax.ShapeDtypeStruct((2,), jnp.float32),
    }
  }
  with raises_error(
    errors.CheckpointError, mentions=('model/bias', 'model/new')
  ):
    checkpoint_reader.restore_params(tmp_path, 3, abstract)


@pytest.mark.parametrize(
  'other',
  [
    dict(ema=False),
    dict(optimizer=optimizers.Adafactor(learning_rate=0.1)),
    dict(optimizer=optimizers.AdamW(learning_rate=0.1, frozen=('bias',))),
  ],
)
def test_different_optimizer_or_average_does_not_reject_checkpoints(
  tmp_path, other
):
  """An error is raised, and the checkpoints are not moved."""
  _write(tmp_path, [1, 2])
  with pytest.raises(errors.CheckpointError) as error:
    _restore(tmp_path, _state(**other))
  text = str(error.value)

  assert 'only in the checkpoint' in text
  assert checkpoint_reader.finished_steps(tmp_path) == [1, 2]
  assert not (tmp_path / checkpoints.REJECTED).exists()


def test_restore_of_a_missing_step_is_an_error(tmp_path):
  _write(tmp_path, [1, 2])
  with pytest.raises(errors.CheckpointError) as error:
    checkpoint_reader.restore_params(
      tmp_path, 5, _factory(_state()).abstract.params
    )
  assert error.value.got == 5
  assert error.value.expected == 'one of the steps 1, 2'
  assert error.value.where == str(tmp_path)


@pytest.mark.parametrize('asynchronous', [True, False])
def test_failed_write_reports_the_last_complete_step(
  tmp_path, monkeypatch, asynchronous
):
  _write(tmp_path, [1])
  saved = checkpoints.Checkpoints(
    tmp_path,
    checkpoints.CheckpointOptions(enable_async_checkpointing=asynchronous),
  )

  def full(*args, **kwargs):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(pathlib.Path, 'rename', full)
  monkeypatch.setattr('os.rename', full)
  with pytest.raises(errors.CheckpointError) as error:
    saved.save(_state(2), {})
    saved.wait()
  monkeypatch.undo()
  text = str(error.value)

  assert 'No space left on device' in text
  assert 'step 1' in error.value.fix
  assert _restore(tmp_path).step == 1


_FULL_DISK = """
import resource, sys
import jax, jax.numpy as jnp
from xlflax.utils import errors, logs
from xlflax.training.checkpointing import checkpoints
from xlflax.training import train_state

def make(step):
  params = {'w': jax.random.normal(jax.random.key(step), (1 << 19,))}
  return train_state.TrainState(step=jnp.int32(step), params=params, opt_state=(),
                          ema=(), objective_state={})

logs.set_up_logging()
saved = checkpoints.Checkpoints(sys.argv[1])
saved.save(make(1), {})
saved.wait()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
  saved.save(make(2), {})
  while saved.is_writing:
    saved.check()
  saved.wait()
except errors.CheckpointError as error:
  print(error)
"""


def test_full_disk_is_reported_in_one_message(tmp_path):
  """Files cannot grow beyond 1 MiB after the first checkpoint.

  The message contains the name of the file and no traceback of Orbax threads.
  """
  done = subprocess.run(
    [sys.executable, '-c', _FULL_DISK, str(tmp_path)],
    check=True,
    capture_output=True,
    text=True,
  )
  out = done.stdout
  assert f'Got: File too large. Where: {tmp_path / "checkpoints/2"}.' in out
  assert out.count('\n') == 1 and 'Traceback' not in done.stderr, done.stderr
  assert 'step 1' in out
  assert checkpoint_reader.finished_steps(tmp_path) == [1]
  abstract = {'w': jax.ShapeDtypeStruct((1 << 19,), jnp.float32)}
  params = checkpoint_reader.restore_params(tmp_path, 1, abstract)
  assert (params['w'] == jax.random.normal(jax.random.key(1), (1 << 19,))).all()


@pytest.mark.parametrize(
  'options',
  [dict(save_interval_steps=0), dict(max_to_keep=0), dict(keep_period=0)],
)
def test_options_must_be_positive(options):
  with pytest.raises(errors.ConfigError) as error:
    checkpoints.CheckpointOptions(**options)
  ((name, value),) = options.items()
  assert_mentions(error.value, f'CheckpointOptions.{name}', value)


@pytest.mark.parametrize('content', [None, '', '{"a/b": 0.1}'])
def test_damaged_metrics_of_a_checkpoint_are_an_error(tmp_path, content):
  """Regression test: the best checkpoint was deleted, or Orbax raised an exception."""
  options = checkpoints.CheckpointOptions(
    max_to_keep=1, metric_for_best_model='a/b', enable_async_checkpointing=False
  )
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  saved = checkpoints.Checkpoints(tmp_path, options)
  for step, score in ((1, 0.9), (2, 0.5)):
    saved.save(state.replace(step=jnp.int32(step)), {}, {'a/b': score})
  saved.close()
  path = tmp_path / 'checkpoints/1/metrics/metrics'
  path.unlink() if content is None else path.write_text(content)
  with raises_error(
    errors.CheckpointError, where='1', mentions=('--repair', 'metrics/metrics')
  ):
    checkpoints.Checkpoints(tmp_path, options)
