"""Path functions on disk and in a bucket, and their errors."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from tests import fake_bucket
from tests.errors import raises_error
from xlflax.storage import paths
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


@pytest.fixture(params=['disk', 'bucket'])
def folder(request, tmp_path):
  if request.param == 'disk':
    return tmp_path / 'run'
  request.getfixturevalue('bucket')
  return paths.to_path('gs://bucket/run')


def test_paths_without_a_scheme_are_local(tmp_path):
  assert paths.to_path('runs/a') == pathlib.Path('runs/a')
  assert paths.to_path(tmp_path) is tmp_path
  assert paths.to_absolute_path('a') == pathlib.Path.cwd() / 'a'
  assert not paths.is_bucket(tmp_path)


def test_bucket_paths_keep_their_slashes(bucket):
  path = paths.to_path('gs://bucket/runs/a/')
  assert os.fspath(path / 'x') == 'gs://bucket/runs/a/x' == str(path / 'x')
  assert paths.to_absolute_path(path) == paths.to_path(path) == path
  assert paths.is_bucket(path)


@pytest.mark.parametrize(
  'name', ['hf://bucket/run', 'gs://', 's3://', 'http://a/b']
)
def test_unsupported_schemes_are_rejected(name):
  with raises_error(
    errors.RunDirectoryError, mentions=(name, 'gs://BUCKET/NAME')
  ):
    paths.to_path(name)


def test_missing_bucket_package_is_reported(monkeypatch):
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  with raises_error(
    errors.RunDirectoryError, got='gs://bucket/run', mentions='gcsfs'
  ):
    paths.to_path('gs://bucket/run')


def test_bucket_paths_are_rejected_as_local_paths(tmp_path):
  assert paths.to_local_path(tmp_path, where='--output') == tmp_path
  with raises_error(
    errors.RunDirectoryError, got='gs://bucket/out', where='--output'
  ):
    paths.to_local_path('gs://bucket/out', where='--output')


def test_texts_are_written_and_listed(folder):
  assert (
    paths.list_directory(folder) == [] and paths.file_size(folder / 'a') == 0
  )
  for text in ('one', 'grün'):
    paths.write_atomically(folder / 'deep' / 'a.txt', text)
    assert (folder / 'deep' / 'a.txt').read_text(encoding='utf-8') == text
  assert paths.file_size(folder / 'deep' / 'a.txt') == 5
  assert paths.list_directory(folder) == [folder / 'deep']
  assert [p.name for p in paths.list_directory(folder / 'deep')] == ['a.txt']


def test_failed_write_keeps_the_old_file(folder):
  path = folder / 'a.npz'
  paths.write_atomically(path, lambda file: file.write(b'old'))

  def broken(file):
    file.write(b'new')
    raise ValueError

  with pytest.raises(ValueError):
    paths.write_atomically(path, broken)
  assert path.read_bytes() == b'old'
  assert [child.name for child in paths.list_directory(folder)] == ['a.npz']


def test_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
  """Otherwise, a power loss could leave an empty file."""
  calls = []
  fsync, replace = os.fsync, os.replace
  monkeypatch.setattr(os, 'fsync', lambda *a: calls.append('sync') or fsync(*a))
  monkeypatch.setattr(
    os, 'replace', lambda *a: calls.append('name') or replace(*a)
  )
  paths.write_atomically(tmp_path / 'a', 'text')
  assert calls == ['sync', 'name', 'sync']


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
  """Files of running processes or of other machines are kept."""
  process = subprocess.Popen(
    [
      sys.executable,
      '-c',
      'import os, pathlib, sys, time\n'
      'from xlflax.storage import paths\n'
      'place = pathlib.Path(sys.argv[1])\n'
      'with paths.new_directory(place / "out", where="--output") as made:\n'
      '  (made / "a").touch()\n'
      '  print(flush=True)\n'
      '  paths.write_atomically(place / "b", lambda file: time.sleep(60))\n',
      str(tmp_path),
    ],
    stdout=subprocess.PIPE,
  )
  process.stdout.readline()
  while len(list(tmp_path.iterdir())) < 2:
    time.sleep(0.01)
  alive, other = (
    tmp_path / f'.x.{machine}-{os.getppid()}.tmp'
    for machine in (paths._machine(), '0' * 8)
  )
  alive.touch()
  other.touch()
  process.kill()
  process.wait()
  assert len(list(tmp_path.iterdir())) == 4
  paths.write_atomically(tmp_path / 'c', 'text')
  assert set(tmp_path.iterdir()) == {alive, other, tmp_path / 'c'}


def test_directories_are_copied_and_moved(folder, tmp_path):
  source = tmp_path / 'source'
  for name in ('a', 'b'):
    paths.write_atomically(source / name, name)
  paths.copy_files(source, folder / 'copy')
  paths.write_atomically(source / 'a', 'changed')
  paths.copy_files(source, folder / 'copy')
  assert (folder / 'copy' / 'a').read_text() == 'a'
  paths.move_directory(folder / 'copy', folder / 'other' / 'place')
  assert paths.list_directory(folder / 'copy') == []
  assert [p.name for p in paths.list_directory(folder / 'other' / 'place')] == [
    'a',
    'b',
  ]
  paths.remove_directory(folder / 'other')
  assert paths.list_directory(folder) == []


def test_interrupted_copy_to_a_bucket_is_completed(bucket, tmp_path):
  for name in ('a', 'b'):
    paths.write_atomically(tmp_path / name, name)
  bucket.put('run/copy/a', b'a')
  paths.copy_files(tmp_path, paths.to_path('gs://bucket/run/copy'))
  assert bucket.objects['run/copy/b'][1] == b'b'


def test_listings_contain_objects_of_other_processes(bucket):
  folder = paths.to_path('gs://bucket/run')
  assert paths.list_directory(folder) == []
  bucket.put('run/1/params', b'')
  assert [p.name for p in paths.list_directory(folder)] == ['1']
  bucket.put('run/2/params', b'')
  assert [p.name for p in paths.list_directory(folder)] == ['1', '2']


def test_new_directory_follows_symbolic_links(tmp_path):
  (tmp_path / 'real').mkdir()
  (tmp_path / 'link').symlink_to(tmp_path / 'real')
  with paths.new_directory(tmp_path / 'link', where='--output') as output_dir:
    (output_dir / 'a').write_text('work')
  assert (tmp_path / 'link').is_symlink()
  assert (tmp_path / 'real/a').read_text() == 'work'


def test_new_directory_rejects_a_mount_point():
  with (
    raises_error(errors.RunDirectoryError, got='/proc'),
    paths.new_directory(pathlib.Path('/proc'), where='--output'),
  ):
    raise AssertionError('not reached')
