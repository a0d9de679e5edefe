"""Tests of file identities, which depend only on the content of files.

Every identity that decides whether derived data is still valid is tested with
edits that preserve the size and the modification time, and with copies.
"""

import os
import pathlib
import shutil

import pytest

from xlflax.data.corpus import corpus_files, record_formats
from xlflax.storage import checksums, content_hash
from xlflax.training.checkpointing import checkpoint_items
from xlflax.utils import errors

_SIZES = (10, 300_000, 9 << 20)


def _fingerprint(name: str):
  return lambda folder: corpus_files.fingerprint_file(folder / name, folder)


# Name -> (edited file, function that returns the identity of a directory).
_IDENTITIES = {
  'corpus text': ('mono/en.txt', _fingerprint('mono/en.txt')),
  'corpus records': ('mono/en.jsonl', _fingerprint('mono/en.jsonl')),
  'first Moses file': ('parallel/de-en.de', _fingerprint('parallel/de-en.de')),
  'second Moses file': ('parallel/de-en.en', _fingerprint('parallel/de-en.de')),
  'folder of records': ('mono/en.arrow/0', _fingerprint('mono/en.arrow')),
  'files of an option': ('mono/en.txt', content_hash.hash_paths),
}


def _make(folder: pathlib.Path, name: str, size: int) -> pathlib.Path:
  for other in ('parallel/de-en.de', 'parallel/de-en.en', name):
    path = folder / other
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'a' * size)
  os.utime(path, ns=(10**18, 10**18))
  return path


@pytest.mark.parametrize('size', _SIZES)
@pytest.mark.parametrize('position', [0, -1])
@pytest.mark.parametrize('name', _IDENTITIES)
def test_edit_with_the_same_size_and_time_changes_the_identity(
  tmp_path, name, position, size
):
  file, identify = _IDENTITIES[name]
  path = _make(tmp_path, file, size)
  before = identify(tmp_path)
  with path.open('r+b') as stream:
    stream.seek(position % size)
    stream.write(b'b')
  os.utime(path, ns=(10**18, 10**18))
  assert identify(tmp_path) != before


@pytest.mark.parametrize('size', _SIZES)
@pytest.mark.parametrize('name', _IDENTITIES)
def test_copy_with_another_time_has_the_same_identity(tmp_path, name, size):
  file, identify = _IDENTITIES[name]
  _make(tmp_path / 'a' / 'corpus', file, size)
  shutil.copytree(tmp_path / 'a', tmp_path / 'b', copy_function=shutil.copyfile)
  first, second = (identify(tmp_path / side / 'corpus') for side in 'ab')
  assert first == second


def test_edited_record_format_of_the_same_size_is_reread(tmp_path):
  path = tmp_path / record_formats.FILE
  records = tmp_path / 'mono/en.jsonl'
  fields = []
  for field in ('ab', 'cd'):
    path.write_text(f"[[records]]\ntext_field = '{field}'\n")
    os.utime(path, ns=(10**18, 10**18))
    fields.append(record_formats.find_format(records).text_field)
  assert fields == ['ab', 'cd']


def test_edit_of_a_verified_checkpoint_is_detected(tmp_path):
  checkpoint = tmp_path / '3'
  path = _make(checkpoint / 'params', 'array', 100)
  checksums.seal_directory(checkpoint / 'params', {'step': 3})
  checkpoint_items.verify_items(checkpoint, 'params')
  path.write_bytes(b'b' * 100)
  os.utime(path, ns=(10**18, 10**18))
  with pytest.raises(errors.CheckpointError):
    checkpoint_items.verify_items(checkpoint, 'params')
