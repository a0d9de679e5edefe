"""Staging of inputs and outputs in buckets: copies, uploads and resumption."""

import collections
import json
import os

import pytest

from tests import fake_azure, fake_bucket, fake_s3
from tests.errors import raises_error
from xlflax.storage import bucket_staging, paths
from xlflax.utils import errors


@pytest.fixture(params=['gs', 's3', 'az'])
def root(request, monkeypatch, tmp_path):
  """Empty directory in a bucket without local copies."""
  if request.param == 'gs':
    pytest.importorskip('gcsfs')
    fake = fake_bucket.get_shared_bucket()
    fake.objects.clear()
    fake.writable, fake.silent, fake.every = True, False, 0
    fake.stale = 0.0
  elif request.param == 's3':
    fake_s3.get_shared_store().every = 0
  else:
    fake_azure.get_shared_store()
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'staged'))
  return paths.to_path(f'{request.param}://bucket/{tmp_path.name}')


def _write(folder, **files: str) -> None:
  for name, text in files.items():
    path = folder / name.replace('_', '/', 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _texts(folder) -> dict[str, str]:
  return {
    path.relative_to(folder).as_posix(): path.read_text()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and not path.name.startswith('.')
  }


def test_local_paths_are_not_staged(tmp_path):
  assert (
    bucket_staging.stage_input(tmp_path)
    == bucket_staging.staging_path(tmp_path)
    == tmp_path
  )
  with bucket_staging.stage_output(tmp_path / 'new') as folder:
    assert folder == tmp_path / 'new'
  assert not folder.exists()
  assert bucket_staging.find_written_copy(tmp_path, 'x') == tmp_path


def test_unchanged_inputs_are_copied_once(root, monkeypatch):
  _write(root, a='1', b_c='2')
  folder = bucket_staging.stage_input(root)
  assert _texts(folder) == {'a': '1', 'b/c': '2'}
  assert bucket_staging.stage_input(root / 'b/c').read_text() == '2'
  before = (folder / 'a').stat().st_mtime_ns
  (root / 'b/c').unlink()
  _write(root, b_d='four')
  requests = []
  files = paths.get_filesystem(root)
  get = files.get_file

  def get_file(name, target):
    requests.append(name)
    get(name, target)

  monkeypatch.setattr(files, 'get_file', get_file)
  bucket_staging._copied.cache_clear()  # as in another process
  assert bucket_staging.stage_input(root) == folder
  assert _texts(folder) == {'a': '1', 'b/d': 'four'}
  assert [name.rpartition('/')[2] for name in requests] == ['d']
  assert (folder / 'a').stat().st_mtime_ns == before


def test_missing_input_is_rejected(root):
  with pytest.raises(errors.RunDirectoryError):
    bucket_staging.stage_input(root)


def _interrupt_upload(monkeypatch, folder, name: str):
  """Interrupts the upload at a file."""
  put = bucket_staging._Mirror._put

  def stops(self, which):
    if which == name:
      raise KeyboardInterrupt
    put(self, which)

  with monkeypatch.context() as patched:
    patched.setattr(bucket_staging._Mirror, '_put', stops)
    with pytest.raises(KeyboardInterrupt):
      folder()


def test_killed_upload_is_completed_by_the_next_run(root, monkeypatch):
  def run():
    with bucket_staging.stage_output(root) as folder:
      if not (folder / 'mark.json').exists():
        _write(folder, b_c='2')
        (folder / 'mark.json').write_text('{}')
        (folder / '.lock').write_text('')

  _interrupt_upload(monkeypatch, run, 'mark.json')
  assert not (root / 'mark.json').exists() and (root / 'b/c').exists()
  with raises_error(errors.RunDirectoryError, mentions='uploaded.json'):
    bucket_staging.stage_input(root)
  run()
  assert _texts(bucket_staging.stage_input(root)) == {
    'b/c': '2',
    'mark.json': '{}',
  }
  manifest = json.loads((root / bucket_staging.MANIFEST).read_text())
  assert manifest['files'].keys() == {'b/c', 'mark.json'}


def test_another_machine_continues_an_output(root, monkeypatch, tmp_path):
  with bucket_staging.stage_output(root) as folder:
    _write(folder, a='1', b='2')
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'another'))
  with bucket_staging.stage_output(root) as other:
    assert other != folder and _texts(other) == {'a': '1', 'b': '2'}
    _write(other, a='one')
    (other / 'b').unlink()
  assert _texts(bucket_staging.stage_input(root)) == {'a': 'one'}
  assert not (root / 'b').exists()
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'staged'))
  with bucket_staging.stage_output(root) as again:
    assert again == folder and _texts(again) == {'a': 'one'}
    assert bucket_staging.find_written_copy(root, 'a') == folder
    _write(folder, a='others')
    assert bucket_staging.find_written_copy(root, 'a') == root


def test_another_machine_continues_after_a_killed_upload(
  root, monkeypatch, tmp_path
):
  """Keeps existing files and files that xlflax did not write."""
  with bucket_staging.stage_output(root) as folder:
    _write(folder, old='1')
  _write(root, **{'own.lock': 'of the user'})

  def run():
    with bucket_staging.stage_output(root) as staged:
      _write(staged, new='2')
      (staged / 'mark.json').write_text('{}')

  _interrupt_upload(monkeypatch, run, 'mark.json')
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'another'))
  run()
  assert (
    _texts(bucket_staging.stage_input(root)).items()
    >= {'old': '1', 'new': '2'}.items()
  )
  assert (root / 'own.lock').read_text() == 'of the user'


def test_output_deleted_from_the_bucket_starts_empty(root):
  with bucket_staging.stage_output(root) as folder:
    _write(folder, a='1')
  for name in ('a', bucket_staging.MANIFEST):
    (root / name).unlink()
  with bucket_staging.stage_output(root) as folder:
    assert not list(folder.iterdir())


def test_only_changed_files_are_uploaded(root, monkeypatch):
  with bucket_staging.stage_output(root) as folder:
    _write(folder, a='1', b_c='2')
  _write(folder, a='3')
  moved = []
  put = bucket_staging._Mirror._put
  monkeypatch.setattr(
    bucket_staging._Mirror,
    '_put',
    lambda self, n: moved.append(n) or put(self, n),
  )
  for _ in range(2):
    with bucket_staging.stage_output(root) as again:
      assert _texts(again) == {'a': '3', 'b/c': '2'}
  assert moved == ['a']


def test_input_changed_within_a_second_is_copied_again(root):
  for text in '12':
    _write(root, a=text)
    bucket_staging._copied.cache_clear()
    assert (bucket_staging.stage_input(root) / 'a').read_text() == text


def test_failed_block_uploads_nothing(root):
  with (
    pytest.raises(ValueError, match='x'),
    bucket_staging.stage_output(root) as folder,
  ):
    _write(folder, a='1')
    raise ValueError('x')
  assert not paths.list_directory(root)
  with bucket_staging.stage_output(root) as folder:
    assert _texts(folder) == {'a': '1'}  # resumes


def test_new_output_is_started_from_scratch(root, monkeypatch):
  def run(text):
    with bucket_staging.stage_output(root, new=True) as folder:
      assert not list(folder.iterdir())
      _write(folder, a=text, b=text)

  _interrupt_upload(monkeypatch, lambda: run('1'), 'b')
  run('2')
  assert _texts(bucket_staging.stage_input(root)) == {'a': '2', 'b': '2'}
  with pytest.raises(errors.RunDirectoryError):
    run('3')


def test_concurrent_writer_is_rejected(root):
  with (
    bucket_staging.stage_output(root),
    raises_error(errors.RunDirectoryError, where='bucket'),
    bucket_staging.stage_output(root),
  ):
    pass


@pytest.mark.parametrize('damage', ['missing', 'other', 'manifest'])
def test_damaged_upload_is_reported(root, damage):
  with bucket_staging.stage_output(root) as folder:
    _write(folder, a='1', b='2')
  if damage == 'missing':
    (root / 'a').unlink()
  elif damage == 'other':
    (root / 'a').write_text('3')
  else:
    (root / bucket_staging.MANIFEST).write_text('{"files": {}}')
  with pytest.raises(errors.RunDirectoryError) as caught:
    bucket_staging.stage_input(root)
  message = str(caught.value)
  assert {
    'missing': 'missing from the bucket: a',
    'other': 'a has changed',
    'manifest': 'its own digest',
  }[damage] in message
  assert os.fspath(root) in message


def test_failed_requests_are_retried(root, monkeypatch):
  _write(root, a='1' * 100)
  monkeypatch.setattr('time.sleep', lambda seconds: None)
  files = paths.get_filesystem(root)
  get, turns = files.get_file, iter(range(100))

  def cut(name, target):
    turn = next(turns)
    if turn == 0:
      raise RuntimeError('502')
    get(name, target)
    if turn == 1:
      os.truncate(target, 50)

  monkeypatch.setattr(files, 'get_file', cut)
  assert (bucket_staging.stage_input(root) / 'a').read_text() == '1' * 100
  assert next(turns) == 3

  def away(name, target):
    raise RuntimeError('502')

  monkeypatch.setattr(files, 'get_file', away)
  bucket_staging._copied.cache_clear()  # as in another process
  _write(root, a='2')
  with raises_error(OSError, mentions=('RuntimeError', 502)) as caught:
    bucket_staging.stage_input(root)
  converted_error = errors.convert_os_error(caught.value)
  assert converted_error.status is errors.ExitStatus.FAILURE


def test_staging_tolerates_store_errors(root):
  if os.fspath(root).startswith('az:'):
    pytest.skip('Azurite answers well')
  faults = (
    fake_s3.get_shared_store()
    if os.fspath(root).startswith('s3:')
    else fake_bucket.get_shared_bucket()
  )
  texts = {f'{number:02}': str(number) * number for number in range(30)}
  before, faults.every = faults.num_faults, 7
  try:
    with bucket_staging.stage_output(root) as folder:
      _write(folder, **texts)
    assert _texts(bucket_staging.stage_input(root)) == texts
  finally:
    faults.every = 0
  assert faults.num_faults > before + 3


def test_full_staging_disk_is_reported(root, monkeypatch):
  _write(root, a='1' * 3_000_000)
  usage = collections.namedtuple('usage', 'free')
  monkeypatch.setattr('shutil.disk_usage', lambda path: usage(2_000_000))
  with raises_error(errors.RunDirectoryError, mentions=('XLFLAX_STAGE', 2, 3)):
    bucket_staging.stage_input(root)


def test_stale_listings_do_not_affect_staging(root, monkeypatch, tmp_path):
  """Stale listings omit recently written, replaced and deleted objects."""
  if not os.fspath(root).startswith('gs:'):
    pytest.skip("only the stand-in of Google's buckets has such lists")
  fake = fake_bucket.get_shared_bucket()
  monkeypatch.setattr(fake, 'stale', 1000.0)
  with bucket_staging.stage_output(root) as folder:
    _write(folder, a='1', b_c='2', d='3')
  assert not root.exists() and fake.num_stale_listings
  for stage in ('one', 'two', 'one'):
    monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / stage))
    bucket_staging._copied.cache_clear()
    assert bucket_staging.stage_input(root).joinpath('b/c').read_text() == '2'
  monkeypatch.setattr(fake, 'stale', 0.0)
  assert len(paths.list_directory(root)) == 4
  monkeypatch.setattr(fake, 'stale', 1000.0)
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'staged'))
  with bucket_staging.stage_output(root) as folder:
    _write(folder, a='one', b_c='4')
    (folder / 'd').unlink()
  for stage in ('one', 'three'):
    monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / stage))
    bucket_staging._copied.cache_clear()
    assert _texts(bucket_staging.stage_input(root)) == {'a': 'one', 'b/c': '4'}


def test_object_names_with_parent_directories_are_rejected(root):
  _write(root, a='1')
  mirror = bucket_staging._Mirror(
    os.fspath(root), bucket_staging.staging_path(root, 'in')
  )
  inside = os.fspath(root).partition('://')[2]
  listed = mirror._files.find(os.fspath(root), detail=True)
  info = next(iter(listed.values()))
  mirror._files = type(
    'Listing', (), {'find': lambda self, name, detail: {f'{inside}/../x': info}}
  )()
  with raises_error(errors.RunDirectoryError, mentions='/x'):
    mirror.read()


def test_endpoints_have_separate_staging_directories(root, monkeypatch):
  pytest.importorskip('s3fs')
  monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://one:9000')
  first_path = bucket_staging.staging_path('s3://bucket/x')
  monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://two:9000')
  assert bucket_staging.staging_path('s3://bucket/x') != first_path
  assert first_path.parts[-2:] == ('bucket', 'x')
