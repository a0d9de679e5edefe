"""Unusable buckets are detected before any computation."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests import fake_azure, fake_bucket
from tests.errors import raises_error
from xlflax.storage import bucket_access, paths
from xlflax.utils import errors


@pytest.fixture
def bucket():
  """Reachable bucket, emptied for each test."""
  pytest.importorskip('gcsfs')
  fake = fake_bucket.get_shared_bucket()
  fake.objects.clear()
  fake.writable, fake.silent = True, False
  yield fake
  fake.writable, fake.silent = True, False


def test_check_leaves_a_usable_bucket_unchanged(bucket, tmp_path):
  bucket_access.check_usable(paths.to_path('gs://bucket/run'))
  assert bucket.objects == {}
  bucket_access.check_usable(tmp_path / 'none')
  assert not (tmp_path / 'none').exists()


def _error_message(name, **options) -> str:
  with pytest.raises(errors.RunDirectoryError) as caught:
    bucket_access.check_usable(paths.to_path(name), **options)
  text = str(caught.value)
  assert 'The bucket cannot be used.' in text
  assert f'Where: {name}.' in text and 'credentials' in text
  return text


def test_missing_bucket_is_rejected(bucket):
  assert "http_response_code='404'" in _error_message('gs://nosuch/run')


def test_read_only_bucket_is_rejected(bucket):
  bucket.writable = False
  assert "http_response_code='403'" in _error_message('gs://bucket/run')


def test_unresponsive_bucket_is_rejected(bucket):
  bucket.silent = True
  start = time.monotonic()
  assert 'no response within 0.3 s' in _error_message(
    'gs://bucket/run', seconds=0.3
  )
  assert time.monotonic() - start < 5


def test_unwritable_disk_is_rejected(tmp_path):
  """The check of a missing directory leaves no files behind."""
  bucket_access.check_usable(tmp_path / 'a/b')
  assert not list(tmp_path.iterdir())
  with raises_error(errors.RunDirectoryError, mentions='/proc/results'):
    bucket_access.check_usable(pathlib.Path('/proc/results'))


_KILLED_WHILE_WRITING = """
import pathlib, resource, signal, sys
from xlflax.storage import bucket_access
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
bucket_access.check_usable(pathlib.Path(sys.argv[1]))
"""


def test_killed_check_leaves_no_file(tmp_path):
  process = subprocess.run(
    [sys.executable, '-c', _KILLED_WHILE_WRITING, str(tmp_path)], check=False
  )
  assert process.returncode == -signal.SIGXFSZ
  assert list(tmp_path.iterdir()) == []


def test_azure_container_is_rejected_for_checkpoints():
  """Other files can be written to Azure."""
  fake_azure.get_shared_store()
  folder = paths.to_path('az://bucket/x')
  bucket_access.check_usable(folder, checkpoints=False)
  bucket_access.check_readable(folder)
  with raises_error(errors.RunDirectoryError, mentions='TensorStore'):
    bucket_access.check_usable(folder)
