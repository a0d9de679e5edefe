"""Parameters are equal if they are read at once, in pieces or by rows."""

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


def _saved(directory, in_pieces, ema=()):
  """A checkpoint; in pieces, as an import writes it, of two rows each."""
  checkpoint_store = checkpoints.Checkpoints(
    directory,
    checkpoints.CheckpointOptions(
      enable_async_checkpointing=False,
      save_concurrent_gb=1 if in_pieces else None,
    ),
  )
  table = jnp.asarray(_TABLE)
  if in_pieces:
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


@pytest.mark.parametrize('in_pieces', [False, True])
def test_complete_arrays_and_rows_are_equal(tmp_path, monkeypatch, in_pieces):
  monkeypatch.setattr(checkpoint_items, '_CHUNK_BYTES', 80)
  monkeypatch.setattr(saved_parameters, '_BLOCK_BYTES', 80)
  read = _saved(tmp_path, in_pieces)
  read.verify()
  if in_pieces:
    stored = read._open('params', 'model/table')
    assert stored.chunk_layout.read_chunk.shape[0] < 7
  np.testing.assert_array_equal(read('model/table'), _TABLE)
  rows = np.array([6, 0, 3])
  np.testing.assert_array_equal(read('model/table', rows), _TABLE[rows])
  np.testing.assert_array_equal(read('model/one/bias'), np.ones(3))


def test_the_running_average_is_read(tmp_path):
  ema = {
    'model': {'table': jnp.asarray(_TABLE * 2), 'one': {'bias': jnp.ones(3)}}
  }
  read = _saved(tmp_path, False, ema)
  np.testing.assert_array_equal(read('model/table'), _TABLE * 2)
  rows = np.array([1])
  np.testing.assert_array_equal(read('model/table', rows), _TABLE[rows] * 2)
