"""Tests that verification reports every change of every file of an artifact.

Exceptions are the files that the table in docs/reliability.md lists as optional
or as not read by any command.
"""

import collections
import os
import pathlib

import pytest

from tests.integrity import artifacts
from tests.slow import mark_slow
from xlflax import integrity
from xlflax.integrity import verification
from xlflax.integrity.artifact_types import Requirement, format_file_table
from xlflax.storage import manifests
from xlflax.utils import errors

# Artifact kind -> n: only every n-th file of nested artifacts is changed.
_STRIDES = collections.defaultdict(
  lambda: 1,
  {
    manifests.Kind.GRID: 11,
    manifests.Kind.SUITE: 17,
    manifests.Kind.PRETRAINING: 19,
  },
)
_CHANGES = ('delete', 'empty', 'cut', 'flip', 'unseal', 'swap')
_ROOT = pathlib.Path(__file__).parents[2]


def _artifact_type(kind: manifests.Kind):
  return next(t for t in verification.ARTIFACT_TYPES if t.kind is kind)


def _report_damage(directory: pathlib.Path) -> str:
  """Returns the report of a damaged directory, or '' for a valid one."""
  try:
    report = integrity.verify_directory(directory)
  except errors.RunDirectoryError as error:
    return str(error)
  return '' if report.is_valid else integrity.format_report(report)


def _changed(content: bytes, change: str, other: bytes) -> bytes | None:
  if change == 'flip':
    middle = len(content) // 2
    return (
      content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    )
  if change == 'unseal':  # Removes the key of the digest of the file itself.
    return content.replace(b'"digest":', b'"digesT":')
  cut = content[: len(content) // 2]
  return {'delete': None, 'empty': b'', 'cut': cut, 'swap': other}[change]


def _read_other_artifact(
  first: pathlib.Path, second: pathlib.Path, name: str
) -> bytes:
  """Reads the same file of another artifact, by index if the names differ."""
  path = second / name
  if not path.exists():
    siblings = sorted((first / name).parent.iterdir())
    parent = pathlib.PurePosixPath(name).parent
    candidates = sorted((second / parent).glob('*')) or siblings
    path = candidates[siblings.index(first / name) % len(candidates)]
  return path.read_bytes() if path.is_file() else b'of another'


def _is_manifest(path: pathlib.Path) -> bool:
  """Returns whether a file contains the digests of other files."""
  return path.name == manifests.FILE or path.name.startswith('.prepared')


def _write(path: pathlib.Path, content: bytes | None) -> None:
  path.unlink() if content is None else path.write_bytes(content)


@pytest.fixture(scope='module')
def make_artifacts(tmp_path_factory):
  """Fixture that creates two artifacts of a kind."""

  def make(kind):
    folder = tmp_path_factory.mktemp('artifact')
    directories = [folder / 'first', folder / 'second']
    for number, directory in enumerate(directories):
      artifacts.MAKERS[kind](directory, number)
    return directories

  return make


def test_every_kind_has_a_type_and_is_tested():
  assert set(artifacts.MAKERS) == set(manifests.Kind)
  kinds = {artifact_type.kind for artifact_type in verification.ARTIFACT_TYPES}
  assert kinds == set(manifests.Kind)


@pytest.mark.parametrize(
  'kind',
  mark_slow(
    list(manifests.Kind),
    slow=[
      manifests.Kind.EXPORT,
      manifests.Kind.GRID,
      manifests.Kind.SUITE,
      manifests.Kind.PRETRAINING,
    ],
  ),
  ids=lambda kind: kind.name,
)
def test_file_changes_are_reported(make_artifacts, kind):
  first, second = make_artifacts(kind)
  for directory in (first, second):
    report = integrity.verify_directory(directory)
    assert report.kind is kind
    assert report.is_valid, integrity.format_report(report)
  names = sorted(
    path.relative_to(first).as_posix()
    for path in first.rglob('*')
    if path.is_file()
  )
  artifact_type = _artifact_type(kind)
  nested = [name for name in names if artifact_type.nested_type(name)[0]]
  for name in set(nested) - set(nested[:: _STRIDES[kind]]):
    names.remove(name)  # The test of the nested kind covers the file.
  unreported, num_changes = [], 0
  for name in names:
    requirement = artifact_type.files_for(name).requirement
    path, content = first / name, (first / name).read_bytes()
    stat = path.stat()
    for change in _CHANGES:
      new = (
        _changed(content, change, _read_other_artifact(first, second, name))
        if content
        else None
      )
      if new == content:
        continue
      num_changes += 1
      _write(path, new)
      report = _report_damage(first)
      may_be_missing = (
        requirement is Requirement.OPTIONAL and change == 'delete'
      )
      if _is_manifest(path) and change == 'swap':
        is_reported = bool(report)  # The report names the files that it lists.
      elif path.name == '.prepared.json' and change == 'delete':
        is_reported = bool(report)  # The directory has no known kind.
      else:
        is_reported = path.name in report
      is_read = requirement is not Requirement.NOT_READ
      if is_read and not may_be_missing and not is_reported:
        unreported.append(f'{change} {name}')
      path.write_bytes(content)
      os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
  assert unreported == [] and num_changes >= 2 * len(names)
  assert _report_damage(first) == ''


def test_guide_contains_the_file_table(regenerate_goldens):
  path = _ROOT / 'docs/reliability.md'
  text = path.read_text(encoding='utf-8')
  start, end = '<!-- artifact files -->\n', '<!-- end of artifact files -->'
  before, _, remainder = text.partition(start)
  _, _, after = remainder.partition(end)
  table = format_file_table(verification.ARTIFACT_TYPES)
  expected = f'{before}{start}\n{table}\n{end}{after}'
  if regenerate_goldens:
    path.write_text(expected, encoding='utf-8')
  assert text == expected
