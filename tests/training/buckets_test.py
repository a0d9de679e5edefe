"""Tests of runs in a bucket: checkpoints, metrics and leases."""

import json
import pathlib
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import fake_bucket
from tests.training import tiny
from xlflax.launch import job_base, local
from xlflax.storage import directory_lease, paths
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  checkpoints,
  config_serialization,
  metrics_file,
  run_directory,
)
from xlflax.training.metric_writers import bucket_mirror, run_metrics
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_OPTIMIZER = optimizers.AdamW(learning_rate=0.1)


@pytest.fixture
def bucket():
  pytest.importorskip('gcsfs')
  shared_bucket = fake_bucket.get_shared_bucket()
  shared_bucket.objects.clear()
  shared_bucket.writable, shared_bucket.silent, shared_bucket.stale = (
    True,
    False,
    0.0,
  )
  return shared_bucket


@pytest.fixture
def run(bucket):
  del bucket
  return paths.to_path('gs://bucket/run')


def _state(step):
  state = tiny.numbered(tiny.regression_state(_OPTIMIZER, length=12))
  return state.replace(step=jnp.int32(step))


def _factory(state):
  abstract = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
  )
  return types.SimpleNamespace(abstract=abstract, abstract_sharded=abstract)


def test_checkpoints_are_complete_despite_stale_listings(
  run, bucket, monkeypatch
):
  """Checkpoints contain files that were not listed when they were finalized."""
  finalize = checkpoint_items.SealedArrays.finalize

  def late(self, directory):
    bucket.stale = 1000.0
    finalize(self, directory)
    bucket.stale = 0.0

  def sleep(seconds):
    bucket.stale = 0.0

  monkeypatch.setattr(checkpoint_items.SealedArrays, 'finalize', late)
  monkeypatch.setattr(paths, 'time', types.SimpleNamespace(sleep=sleep))
  saved = checkpoints.Checkpoints(run)
  saved.save(_state(1), {'step': 1})
  saved.close()
  assert bucket.num_stale_listings
  restored = checkpoints.Checkpoints(run).restore_last(_factory(_state(0)))
  assert restored is not None and restored.step == 1
  assert not [name for name in bucket.objects if '.last-' in name]


def test_permanently_stale_listings_are_an_error(run, bucket, monkeypatch):
  monkeypatch.setattr(bucket, 'stale', 1000.0)
  saved = checkpoints.Checkpoints(run)
  with pytest.raises(errors.CheckpointError, match='could not be written'):
    saved.save(_state(1), {'step': 1})
    saved.wait()
  assert not checkpoint_reader.finished_steps(run)
  monkeypatch.setattr('time.sleep', lambda seconds: None)
  with pytest.raises(TimeoutError, match='not listed'):
    paths.wait_until_listed(run)


@pytest.mark.slow
def test_checkpoints_are_written_and_restored(run, bucket):
  """Covers pruning and the rejection of damaged checkpoints."""
  saved = checkpoints.Checkpoints(
    run, checkpoints.CheckpointOptions(max_to_keep=2)
  )
  for step in (1, 2, 3):
    saved.save(_state(step), {'step': step})
  saved.close()
  assert checkpoint_reader.finished_steps(str(run)) == [2, 3]
  assert saved.describe_last() == (
    'The last checkpoint is gs://bucket/run/checkpoints/3.'
  )
  bucket.put('run/checkpoints/4/params/d/half', b'')  # The writer was killed.
  assert checkpoint_reader.finished_steps(run) == [2, 3]
  for name in list(bucket.objects):
    if name.startswith('run/checkpoints/3/params/') and name.endswith(
      'manifest.ocdbt'
    ):
      bucket.put(name, b'damaged')
  saved = checkpoints.Checkpoints(run)
  restored = saved.restore_last(_factory(_state(0)))
  saved.close()
  assert restored.step == 2 and restored.meta == {'step': 2}
  jax.tree.map(np.testing.assert_array_equal, restored.state, _state(2))
  assert checkpoint_reader.finished_steps(run) == [2]
  assert any(
    name.startswith('run/rejected_checkpoints/3-') for name in bucket.objects
  )


def test_run_directory_is_claimed(run, tmp_path):
  source = tmp_path / 'vocabulary'
  paths.write_atomically(source / 'vocabulary.json', '{}')
  run_directory.claim_run_directory(
    run, config_serialization.to_json_config({'a': 1}), gin_config='a = 1\n'
  )
  run_directory.claim_run_directory(
    run, config_serialization.to_json_config({'a': 1})
  )
  run_directory.copy_vocabulary(source, run)
  run_directory.check_vocabulary(source, run)
  paths.write_atomically(source / 'vocabulary.json', '{"other": 1}')
  with pytest.raises(
    run_directory.errors.RunDirectoryError, match='vocabulary'
  ):
    run_directory.check_vocabulary(source, run)
  with pytest.raises(
    run_directory.errors.RunDirectoryError, match='a different configuration'
  ):
    run_directory.claim_run_directory(
      run, config_serialization.to_json_config({'a': 2})
    )


def _steps(run) -> list[int]:
  text = (run / run_directory.METRICS).read_text(encoding='utf-8')
  return [json.loads(line)['step'] for line in text.splitlines()]


def test_metrics_of_a_resumed_run(run):
  for steps in ((1, 2, 3), (3, 4)):
    writer = run_metrics.RunMetrics(run)
    for step in steps:
      writer.write(step, train={'loss': 1.0})
    writer.hasten()
    writer.close()
    assert _steps(run)[-1] == steps[-1]
    metrics_file.truncate_metrics(run, 2)
  assert _steps(run) == [1, 2]
  assert len(paths.list_directory(run / run_directory.TENSORBOARD)) == 2


def test_failed_copies_are_retried(run, bucket, tmp_path, caplog):
  class Failing:
    """Directory in which the first writes fail."""

    failures = 2

    def joinpath(self, *parts):
      return types.SimpleNamespace(
        write_bytes=lambda content: self._write(run.joinpath(*parts), content)
      )

    def _write(self, path, content):
      if self.failures:
        self.failures -= 1
        raise OSError('lost')
      path.write_bytes(content)

  (tmp_path / 'a').write_text('one')
  copies = bucket_mirror.Mirror(tmp_path, Failing(), every=0.01)
  for _ in range(2000):
    if 'run/a' in bucket.objects:
      break
    time.sleep(0.01)
  (tmp_path / 'a').write_text('one two')
  copies.close()
  assert bucket.objects['run/a'][1] == b'one two'
  assert caplog.text.count('(OSError: lost)') == 2


def test_launcher_finds_the_last_checkpoint_and_logs_on_disk(run, bucket):
  for name in ('8/commit_success.txt', '16/params/d/half'):
    bucket.put(f'run/checkpoints/{name}', b'')
  command = ('train', f'--model_dir={run}')
  assert job_base.last_checkpoint(job_base.model_dir(command)) == 8
  started = local.LocalJob(command=command, nproc_per_node=2)
  assert started.log_directory == pathlib.Path('run.logs')


def _write_remote_lease(run, refreshed: float) -> None:
  owner_record = {'owner': 'x', 'host': 'other', 'pid': 7, 'place': 'other'}
  (run / directory_lease.FILE).write_text(
    json.dumps(owner_record | {'time': 'noon', 'refreshed': refreshed})
  )


def test_lease_file_exists_while_the_lease_is_held(run):
  with directory_lease.Lease(run) as held:
    assert json.loads((run / directory_lease.FILE).read_text())['host']
    held.check()
  assert not (run / directory_lease.FILE).exists()


def test_lease_of_another_host_is_taken_over_without_heartbeats(run):
  """A lease that the other process refreshes is not taken over."""
  _write_remote_lease(run, time.time())
  over = threading.Event()

  def live():
    while not over.wait(0.05):
      _write_remote_lease(run, time.time())

  other = threading.Thread(target=live)
  other.start()
  try:
    with pytest.raises(errors.RunDirectoryError, match='process 7 on other'):
      directory_lease.Lease(run, stale_seconds=5).__enter__()
  finally:
    over.set()
    other.join()
  _write_remote_lease(run, time.time() - 3600)
  with directory_lease.Lease(run, refresh_seconds=0.05) as held:
    held.check()
    end = time.monotonic() + 20
    with pytest.raises(errors.RunDirectoryError, match='has taken over'):
      while time.monotonic() < end:
        _write_remote_lease(run, time.time())  # The process was only suspended.
        held.check()
        time.sleep(0.05)
  assert (run / directory_lease.FILE).exists()  # the lease of the other process


def test_object_with_the_name_of_a_run_is_ignored(run, bucket):
  """Listings of folders may change between two requests."""
  bucket.put('run', b'')
  run_directory.check_not_a_file(run)
