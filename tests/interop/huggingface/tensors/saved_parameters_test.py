"""Reading saved parameters completely, in chunks and by rows."""

import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.interop.huggingface.tensors import saved_parameters
from xlflax.training import train_state
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  checkpoints,
)

_TABLE = np.arange(70, dtype=np.float32).reshape(7, 10)


def _save_checkpoint(directory, in_chunks, ema=()):
  """Saves a checkpoint, optionally in chunks of two rows like an import."""
  checkpoint_store = checkpoints.Checkpoints(
    directory,
    checkpoints.CheckpointOptions(
      enable_async_checkpointing=False,
      save_concurrent_gb=1 if in_chunks else None,
    ),
  )
  table = jnp.asarray(_TABLE)
  if in_chunks:
    table = checkpoint_items.LazyArray(_TABLE.shape, lambda: _TABLE)
  checkpoint_store.save(
    train_state.TrainState(
      step=jnp.int32(0),
      params={'model': {'table': table, 'one': {'bias': jnp.ones(3)}}},
      opt_state=(),
      ema=ema,
      objective_state={},
    ),
    {},
  )
  checkpoint_store.close()
  return saved_parameters.Reader(
    checkpoint_reader.checkpoint_path(directory, 0)
  )


@pytest.mark.parametrize('in_chunks', [False, True])
def test_complete_arrays_and_rows_are_equal(tmp_path, monkeypatch, in_chunks):
  monkeypatch.setattr(checkpoint_items, '_CHUNK_BYTES', 80)
  monkeypatch.setattr(saved_parameters, '_BLOCK_BYTES', 80)
  read = _save_checkpoint(tmp_path, in_chunks)
  read.verify()
  if in_chunks:
    stored = read._open('params', 'model/table')
    assert stored.chunk_layout.read_chunk.shape[0] < 7
  np.testing.assert_array_equal(read('model/table'), _TABLE)
  rows = np.array([6, 0, 3])
  np.testing.assert_array_equal(read('model/table', rows), _TABLE[rows])
  np.testing.assert_array_equal(read('model/one/bias'), np.ones(3))


def test_ema_parameters_are_read(tmp_path):
  ema = {
    'model': {'table': jnp.asarray(_TABLE * 2), 'one': {'bias': jnp.ones(3)}}
  }
  read = _save_checkpoint(tmp_path, False, ema)
  np.testing.assert_array_equal(read('model/table'), _TABLE * 2)
  rows = np.array([1])
  np.testing.assert_array_equal(read('model/table', rows), _TABLE[rows] * 2)
