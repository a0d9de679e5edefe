"""Tests that digests detect changes of sealed files."""

import hashlib
import json

import google_crc32c
import pytest

from xlflax.storage import checksums, content_hash


@pytest.fixture
def sealed(tmp_path):
  (tmp_path / 'sub').mkdir()
  (tmp_path / 'a.bin').write_bytes(bytes(range(200)))
  (tmp_path / 'sub/b.txt').write_text('text')
  (tmp_path / 'empty').write_bytes(b'')
  checksums.seal_directory(tmp_path, {'step': 3})
  return tmp_path


def test_unchanged_directory_has_no_problems(sealed):
  assert checksums.find_problems(sealed) == []
  seal = checksums.read_seal(sealed)
  assert sorted(seal.files) == ['a.bin', 'empty', 'sub/b.txt']
  assert seal.about == {'step': 3}
  text = 'sha256:' + hashlib.sha256(b'text').hexdigest()
  assert seal.files['sub/b.txt'] == f'4-{text}'


def test_long_content_has_a_crc32c_checksum(monkeypatch):
  """The expected value is the check value of CRC catalogs."""
  monkeypatch.setattr(checksums, '_SHORT', 8)
  assert checksums.digest_content('123456789') == '9-crc32c64:e3069283'
  assert checksums.digest_content('1', like='9-crc32c:0') == '1-crc32c:90f599e3'


def test_file_digests_equal_content_digests(tmp_path):
  for size in (1 << 16, (1 << 16) + 1):
    path = tmp_path / str(size)
    path.write_bytes(bytes(size))
    assert checksums.digest_file(path) == checksums.digest_content(bytes(size))
    assert checksums.digest_file(path) == checksums.digest_chunks(
      [b'\0', bytes(size - 1)]
    )
    kind = 'sha256' if size == 1 << 16 else 'crc32c64'
    assert checksums.digest_file(path).startswith(f'{size}-{kind}:')


@pytest.mark.parametrize('short', [0, 1 << 16])
@pytest.mark.parametrize('bit', [0, 77, 1599])
def test_flipped_bits_are_detected(sealed, bit, short, monkeypatch):
  monkeypatch.setattr(checksums, '_SHORT', short)
  checksums.seal_directory(sealed)
  content = bytearray((sealed / 'a.bin').read_bytes())
  content[bit // 8] ^= 1 << bit % 8
  (sealed / 'a.bin').write_bytes(content)
  assert checksums.find_problems(sealed) == [
    'a.bin has changed since it was written'
  ]


def test_truncated_and_missing_files_are_detected(sealed):
  (sealed / 'a.bin').write_bytes(bytes(3))
  (sealed / 'sub/b.txt').unlink()
  (sealed / 'more').write_text('not sealed')
  assert checksums.find_problems(sealed) == [
    'a.bin has 3 bytes, not 200',
    'sub/b.txt is missing',
  ]
  assert checksums.find_problems(sealed, share=(0, 3)) == [
    'a.bin has 3 bytes, not 200'
  ]
  assert checksums.find_problems(sealed, share=(1, 3)) == []


def test_damaged_or_missing_digests_are_detected(sealed):
  path = sealed / checksums.FILE
  text = path.read_text()
  path.write_text(text.replace('"step": 3', '"step": 4'))
  (problem,) = checksums.find_problems(sealed)
  assert problem == (
    'digests.json is damaged (ValueError: The content does not match its own '
    'digest)'
  )
  path.write_text(text[:20])
  (problem,) = checksums.find_problems(sealed)
  assert problem.startswith('digests.json is damaged (JSONDecodeError')
  path.write_text('[' * 100_000)
  (problem,) = checksums.find_problems(sealed)
  assert problem.startswith('digests.json is damaged (RecursionError')
  path.unlink()
  assert checksums.find_problems(sealed) == ['digests.json is missing']


def test_digests_of_chunks_are_combined(sealed, monkeypatch):
  """The digest depends on each chunk and on the order of the chunks."""
  monkeypatch.setattr(checksums, '_PIECE', 64)
  monkeypatch.setattr(checksums, '_SHORT', 0)
  monkeypatch.setattr(checksums, '_BUFFER', 10)
  content = bytes(range(200))
  file_digest = checksums.digest_file(sealed / 'a.bin')
  assert file_digest == checksums.digest_content(content)
  assert file_digest != f'200-crc32c64:{google_crc32c.value(content):08x}'
  for chunks in ([content], [content[:3], b'', content[3:70], content[70:]]):
    assert (
      checksums.digest_chunks([memoryview(part) for part in chunks])
      == file_digest
    )
  swapped = content[64:128] + content[:64] + content[128:]
  assert checksums.digest_content(swapped) != file_digest
  files = [sealed / 'a.bin', sealed / 'empty', sealed / 'sub/b.txt']
  assert checksums.digest_files(files) == {
    path: checksums.digest_content(path.read_bytes()) for path in files
  }


def test_json_digest_detects_changes():
  value = checksums.add_digest({'b': [1, 'ü'], 'a': None})
  again = json.loads(json.dumps(value, indent=3))
  assert checksums.verify_digest(again) == {'b': [1, 'ü'], 'a': None}
  for invalid in ({**again, 'a': 0}, {'a': None}, [again], None):
    with pytest.raises(ValueError):
      checksums.verify_digest(invalid)


def test_path_hashes_depend_on_names_and_content(tmp_path):
  """The hash does not depend on the parent directories."""
  for location in ('a', 'b/c'):
    (tmp_path / location / 'd').mkdir(parents=True)
    (tmp_path / location / 'en.txt').write_text('dog')
    (tmp_path / location / 'd/en-de.txt').write_text('dog hund')

  def content(location, *names):
    return content_hash.hash_paths(
      {name: str(tmp_path / location) for name in names}
    )

  first = content('a', 'en')
  assert first and first == content('b/c', 'en') != content('b/c', 'de')
  assert first != content_hash.hash_paths({'en': (str(tmp_path / 'a/en.txt'),)})
  (tmp_path / 'b/c/d/en-de.txt').write_text('dog Hund')
  assert content('b/c', 'en') not in (first, None)
  (tmp_path / 'a/en.txt').rename(tmp_path / 'a/de.txt')
  assert content('a', 'en') not in (first, None)
  assert content_hash.hash_paths([str(tmp_path / 'gone')]) is None
