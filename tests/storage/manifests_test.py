"""Manifests know what belongs to a directory, wherever a writer is killed."""

import json

import pytest

from tests.errors import raises_error
from xlflax.storage import checksums, manifests, paths
from xlflax.utils import errors


@pytest.fixture
def artefact(tmp_path):
  manifests.write_files(
    tmp_path, manifests.Kind.GRID, {'a.json': '{}', 'sub/b.bin': b'\0\1'}
  )
  return tmp_path


def test_what_is_written_is_whole(artefact):
  assert manifests.find_problems(artefact) == {}
  known = manifests.read_manifest(artefact)
  assert known.kind == 'grid' and sorted(known.files) == ['a.json', 'sub/b.bin']
  assert manifests.read_manifest(artefact / 'sub') is None


@pytest.mark.parametrize(
  ('change', 'problem'),
  [
    (lambda path: path.unlink(), 'a.json is missing'),
    (lambda path: path.write_text(''), 'a.json has 0 bytes, not 2'),
    (lambda path: path.write_text('[]'), 'a.json has another content'),
  ],
)
def test_what_has_changed_or_is_missing(artefact, change, problem):
  change(artefact / 'a.json')
  [(name, said)] = manifests.find_problems(artefact).items()
  assert name == 'a.json' and said.startswith(problem)
  assert manifests.find_problems(artefact, but=['a.json']) == {}


@pytest.mark.parametrize('content', [None, '', '{}', '[]', '{"digest": 3}'])
def test_the_manifest_itself(artefact, content):
  path = artefact / manifests.FILE
  path.unlink() if content is None else path.write_text(content)
  [(name, problem)] = manifests.find_problems(artefact).items()
  said = 'missing' if content is None else 'damaged'
  assert name == manifests.FILE and f'{name} is {said}' in problem
  if content is not None:
    with raises_error(errors.RunDirectoryError, where='digests.json'):
      manifests.write_files(artefact, manifests.Kind.GRID, {'a.json': '{}'})


def test_a_manifest_s_own_bits(artefact):
  content = json.loads((artefact / manifests.FILE).read_text())
  content['about']['kind'] = 'other'
  (artefact / manifests.FILE).write_text(json.dumps(content))
  assert 'damaged' in manifests.find_problems(artefact)[manifests.FILE]


def test_equal_content_is_not_written(artefact):
  before = {p: p.stat().st_mtime_ns for p in artefact.rglob('*')}
  manifests.write_files(
    artefact, manifests.Kind.GRID, {'a.json': '{}', 'sub/b.bin': b'\0\1'}
  )
  assert before == {p: p.stat().st_mtime_ns for p in artefact.rglob('*')}


@pytest.mark.parametrize('writes', range(4))
def test_a_killed_writer_leaves_what_the_manifest_knows(
  artefact, writes, monkeypatch
):
  """It writes the manifest, two files and the manifest again."""
  real, left = paths.write_atomically, [writes]

  def write(path, content):
    if not left[0]:
      raise KeyboardInterrupt
    left[0] -= 1
    real(path, content)

  monkeypatch.setattr(paths, 'write_atomically', write)
  with pytest.raises(KeyboardInterrupt):
    manifests.write_files(
      artefact, manifests.Kind.GRID, {'a.json': '[1]', 'sub/b.bin': b'x'}
    )
  monkeypatch.undo()
  assert manifests.find_problems(artefact) == {}
  manifests.write_files(
    artefact, manifests.Kind.GRID, {'a.json': '[1]', 'sub/b.bin': b'x'}
  )
  assert manifests.find_problems(artefact) == {}
  assert not manifests.read_manifest(artefact).before
  (artefact / 'a.json').write_text('{}')  # what was there before
  assert list(manifests.find_problems(artefact)) == ['a.json']


def test_files_that_are_there_are_noted_and_forgotten(artefact):
  (artefact / 'c').write_text('c')
  manifests.record_files(artefact, manifests.Kind.GRID, ['c'])
  assert 'c' in manifests.read_manifest(artefact).files
  manifests.forget_files(artefact, ['c', 'd'])
  (artefact / 'c').unlink()
  assert manifests.find_problems(artefact) == {}
  (artefact / 'a.json').unlink()
  manifests.record_files(artefact, manifests.Kind.GRID)
  assert list(manifests.read_manifest(artefact).files) == ['sub/b.bin']


def test_doing_without_a_file(artefact):
  manifests.check_file(artefact, 'a.json')
  manifests.check_file(artefact, 'other')
  (artefact / 'a.json').unlink()
  with raises_error(errors.RunDirectoryError, mentions='a.json'):
    manifests.check_file(artefact, 'a.json')


def test_texts(artefact):
  (artefact / 'long').write_text('x' * 99)
  (artefact / 'other').write_text('y')
  manifests.record_files(artefact, manifests.Kind.GRID, ['long', 'other'])
  (artefact / 'other').write_text('z')
  assert dict(manifests.iterate_texts(artefact, longest=9)) == {
    'a.json': '{}',
    'sub/b.bin': '\0\1',
  }
  assert checksums.parse_size(checksums.digest_content('abc')) == 3
