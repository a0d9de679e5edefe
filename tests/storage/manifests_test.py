"""Tests of manifests, which list the files of a directory."""

import json

import pytest

from tests.errors import raises_error
from xlflax.storage import checksums, manifests, paths
from xlflax.utils import errors


@pytest.fixture
def artifact(tmp_path):
  manifests.write_files(
    tmp_path, manifests.Kind.GRID, {'a.json': '{}', 'sub/b.bin': b'\0\1'}
  )
  return tmp_path


def test_written_artifacts_are_valid(artifact):
  assert manifests.find_problems(artifact) == {}
  manifest = manifests.read_manifest(artifact)
  assert manifest.kind == 'grid' and sorted(manifest.files) == [
    'a.json',
    'sub/b.bin',
  ]
  assert manifests.read_manifest(artifact / 'sub') is None


@pytest.mark.parametrize(
  ('change', 'problem'),
  [
    (lambda path: path.unlink(), 'a.json is missing'),
    (lambda path: path.write_text(''), 'a.json has 0 bytes, not 2'),
    (lambda path: path.write_text('[]'), 'a.json has changed'),
  ],
)
def test_changed_or_missing_files_are_reported(artifact, change, problem):
  change(artifact / 'a.json')
  [(name, description)] = manifests.find_problems(artifact).items()
  assert name == 'a.json' and description.startswith(problem)
  assert manifests.find_problems(artifact, exclude=['a.json']) == {}


@pytest.mark.parametrize('content', [None, '', '{}', '[]', '{"digest": 3}'])
def test_damaged_or_missing_manifest_is_reported(artifact, content):
  path = artifact / manifests.FILE
  path.unlink() if content is None else path.write_text(content)
  [(name, problem)] = manifests.find_problems(artifact).items()
  expected_problem = 'missing' if content is None else 'damaged'
  assert name == manifests.FILE and f'{name} is {expected_problem}' in problem
  if content is not None:
    with raises_error(errors.RunDirectoryError, where='digests.json'):
      manifests.write_files(artifact, manifests.Kind.GRID, {'a.json': '{}'})


def test_changed_manifest_is_reported(artifact):
  content = json.loads((artifact / manifests.FILE).read_text())
  content['about']['kind'] = 'other'
  (artifact / manifests.FILE).write_text(json.dumps(content))
  assert 'damaged' in manifests.find_problems(artifact)[manifests.FILE]


def test_equal_content_is_not_rewritten(artifact):
  before = {p: p.stat().st_mtime_ns for p in artifact.rglob('*')}
  manifests.write_files(
    artifact, manifests.Kind.GRID, {'a.json': '{}', 'sub/b.bin': b'\0\1'}
  )
  assert before == {p: p.stat().st_mtime_ns for p in artifact.rglob('*')}


@pytest.mark.parametrize('writes', range(4))
def test_killed_writer_leaves_a_valid_manifest(artifact, writes, monkeypatch):
  """The writer writes the manifest, two files, and the manifest again."""
  real, remaining_writes = paths.write_atomically, [writes]

  def write(path, content):
    if not remaining_writes[0]:
      raise KeyboardInterrupt
    remaining_writes[0] -= 1
    real(path, content)

  monkeypatch.setattr(paths, 'write_atomically', write)
  with pytest.raises(KeyboardInterrupt):
    manifests.write_files(
      artifact, manifests.Kind.GRID, {'a.json': '[1]', 'sub/b.bin': b'x'}
    )
  monkeypatch.undo()
  assert manifests.find_problems(artifact) == {}
  manifests.write_files(
    artifact, manifests.Kind.GRID, {'a.json': '[1]', 'sub/b.bin': b'x'}
  )
  assert manifests.find_problems(artifact) == {}
  assert not manifests.read_manifest(artifact).before
  (artifact / 'a.json').write_text('{}')  # the previous content
  assert list(manifests.find_problems(artifact)) == ['a.json']


def test_existing_files_are_recorded_and_forgotten(artifact):
  (artifact / 'c').write_text('c')
  manifests.record_files(artifact, manifests.Kind.GRID, ['c'])
  assert 'c' in manifests.read_manifest(artifact).files
  manifests.forget_files(artifact, ['c', 'd'])
  (artifact / 'c').unlink()
  assert manifests.find_problems(artifact) == {}
  (artifact / 'a.json').unlink()
  manifests.record_files(artifact, manifests.Kind.GRID)
  assert list(manifests.read_manifest(artifact).files) == ['sub/b.bin']


def test_missing_recorded_file_is_rejected(artifact):
  manifests.check_file(artifact, 'a.json')
  manifests.check_file(artifact, 'other')
  (artifact / 'a.json').unlink()
  with raises_error(errors.RunDirectoryError, mentions='a.json'):
    manifests.check_file(artifact, 'a.json')


def test_iterated_texts_exclude_long_and_changed_files(artifact):
  (artifact / 'long').write_text('x' * 99)
  (artifact / 'other').write_text('y')
  manifests.record_files(artifact, manifests.Kind.GRID, ['long', 'other'])
  (artifact / 'other').write_text('z')
  assert dict(manifests.iterate_texts(artifact, max_bytes=9)) == {
    'a.json': '{}',
    'sub/b.bin': '\0\1',
  }
  assert checksums.parse_size(checksums.digest_content('abc')) == 3
