import threading
import time
import traceback

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.data import dataset_config, prefetch
from xlflax.data.tokenizers import vocabulary_spec

_B, _T = 16, 4


_SPEC = vocabulary_spec.make_dummy_spec(64)


class _Loader:
  """Loader whose row r of step s contains the number 100 s + r."""

  def __init__(self, fail_at=None):
    self.dataset = dataset_config.DatasetConfig(
      name='s', mixture='m', layout='sentences', length=_T, batch_size=_B
    )
    self.spec = self.dataset.batch_spec(_SPEC)
    self.requests = []
    self._fail_at = fail_at

  def rows(self, step, start, stop):
    if step == self._fail_at:
      raise KeyError('the ninth line is broken')
    self.requests.append((step, start, stop))
    values = np.arange(start, stop, dtype=np.int32)[:, None] + 100 * step
    return {
      key: np.broadcast_to(values + i, (stop - start, _T))
      for i, key in enumerate(self.spec)
    }


def _sharding(*spec, shape=(8,), names=('data',)):
  mesh = jax.make_mesh(shape, names)
  return NamedSharding(mesh, PartitionSpec(*spec))


def test_batches_are_ordered_and_sharded():
  loader, sharding = _Loader(), _sharding('data')
  with prefetch.Prefetcher(loader, sharding=sharding, first_step=3) as feed:
    for step in (3, 4, 5):
      batch = feed.next()
      assert list(batch) == list(loader.spec)
      assert batch['token_ids'].sharding == sharding
      np.testing.assert_array_equal(
        np.asarray(batch['token_ids'])[:, 0], np.arange(_B) + 100 * step
      )
      np.testing.assert_array_equal(
        np.asarray(batch['segment_ids'])[:, 0], np.arange(_B) + 100 * step + 1
      )
  # Adjacent rows are read in one call.
  assert loader.requests[0] == (3, 0, _B)


def test_each_key_may_have_its_own_sharding():
  loader = _Loader()
  shardings = dict.fromkeys(loader.spec, _sharding('data'))
  shardings['positions'] = _sharding('a', 'b', shape=(4, 2), names=('a', 'b'))
  batch = prefetch.device_batch(loader, 1, shardings)
  assert batch['positions'].sharding == shardings['positions']
  assert batch['positions'].addressable_shards[0].data.shape == (4, 2)
  np.testing.assert_array_equal(
    np.asarray(batch['positions'])[:, 3], np.arange(_B) + 102
  )


def test_only_rows_of_local_devices_are_read(monkeypatch):
  """Simulates a process whose devices hold the rows 4..7 and 12..15."""
  loader, sharding = _Loader(), _sharding('data')
  local_ranges = [(4, 6), (6, 8), (12, 14), (14, 16)]
  monkeypatch.setattr(prefetch, '_local_spans', lambda *unused: local_ranges)

  def make(shape, unused, callback):
    assert shape == (_B, _T)
    return [callback((slice(*span), slice(None))) for span in local_ranges]

  monkeypatch.setattr(jax, 'make_array_from_callback', make)
  parts = prefetch.device_batch(loader, 0, sharding)['token_ids']
  assert loader.requests == [(0, 4, 8), (0, 12, 16)]
  assert [part[:, 0].tolist() for part in parts] == [
    [4, 5],
    [6, 7],
    [12, 13],
    [14, 15],
  ]


def test_errors_reach_the_consumer_with_their_traceback():
  feed = prefetch.Prefetcher(_Loader(fail_at=1), sharding=_sharding('data'))
  feed.next()
  for _ in range(2):
    with pytest.raises(KeyError, match='the ninth line') as caught:
      feed.next()
  frames = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
  assert 'rows' in frames
  feed.close()


def test_queue_is_bounded_and_close_stops_the_thread():
  loader = _Loader()
  feed = prefetch.Prefetcher(loader, sharding=_sharding('data'), size=2)
  time.sleep(0.5)
  assert len(loader.requests) <= 3
  names = [t.name for t in threading.enumerate()]
  assert 'prefetch-s' in names
  feed.close()
  assert 'prefetch-s' not in [t.name for t in threading.enumerate()]
  with pytest.raises(ValueError, match='closed'):
    feed.next()
