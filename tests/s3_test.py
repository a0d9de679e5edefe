"""Tests of files, leases and checkpoints in an S3 store."""

import concurrent.futures

import jax
import numpy as np
import pytest

from tests import fake_s3
from tests.finetuning import fakes
from xlflax.storage import bucket_access, checksums, directory_lease, paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run

pytest_plugins = ['tests.finetuning.fixtures']


@pytest.fixture
def store():
  faults = fake_s3.get_shared_store()
  faults.every = 0
  yield faults
  faults.every = 0


def test_s3_files_are_written_and_moved(store, tmp_path):
  path = paths.to_path('s3://bucket/files/a.txt')
  paths.write_atomically(path, 'ä')
  assert path.read_text() == 'ä' and paths.file_size(path) == 2
  paths.write_atomically(path.parent / 'b' / 'c.txt', 'c')
  paths.move_directory(path.parent, paths.to_path('s3://bucket/moved'))
  assert not path.exists()
  assert [
    p.name for p in paths.list_directory(paths.to_path('s3://bucket/moved'))
  ] == ['a.txt', 'b']
  (tmp_path / 'a').write_text('ä')
  assert checksums.digest_file(paths.to_path('s3://bucket/moved/a.txt')) == (
    checksums.digest_content('ä'.encode())
  )


def test_concurrent_creations_succeed_once(store):
  path = paths.to_path('s3://bucket/created')
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    results = list(
      pool.map(lambda i: paths.create_file(path, str(i)), range(8))
    )
  assert results.count(True) == 1
  assert path.read_text() == str(results.index(True))


def test_lease_file_exists_while_the_lease_is_held(store):
  directory = paths.to_path('s3://bucket/leased')
  with directory_lease.Lease(directory):
    assert (directory / directory_lease.FILE).exists()
  assert not (directory / directory_lease.FILE).exists()


def test_missing_bucket_is_rejected(store):
  bucket_access.check_usable(paths.to_path('s3://bucket/run'))
  with pytest.raises(bucket_access.errors.RunDirectoryError, match='bucket'):
    bucket_access.check_usable(paths.to_path('s3://another/run'))


@pytest.mark.parametrize('every', (0, 7), ids=('well', 'with faults'))
def test_checkpoint_is_restored_from_s3(store, pretrained, every):
  name = f's3://bucket/run{every}'
  fakes.copy_run(pretrained, paths.to_path(name))
  store.every, before = every, store.num_faults
  params = saved_run.load_run(name).restore_params(20)
  expected = saved_run.load_run(pretrained).restore_params(20)
  for key, value in param_tree.flatten_params(expected).items():
    np.testing.assert_array_equal(
      param_tree.flatten_params(params)[key], value, err_msg=key
    )
  assert jax.tree.structure(params) == jax.tree.structure(expected)
  assert (store.num_faults > before) == bool(every)
