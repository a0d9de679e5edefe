"""Every file of an artefact of every kind, changed in every way, is found.

What may be missing, or is read by no command, says the table of files, which
is in the guide.
"""

import collections
import os
import pathlib

import pytest

from tests.integrity import artefacts
from xlflax import integrity
from xlflax.integrity import verification
from xlflax.integrity.artifact_types import Need, artifact_table
from xlflax.storage import manifests
from xlflax.utils import errors

# Of the files of an artefact within another one, each so many-th.
_EACH = collections.defaultdict(
  lambda: 1,
  {
    manifests.Kind.GRID: 11,
    manifests.Kind.SUITE: 17,
    manifests.Kind.PRETRAINING: 19,
  },
)
_CHANGES = ('delete', 'empty', 'cut', 'flip', 'unseal', 'swap')
_ROOT = pathlib.Path(__file__).parents[2]


def _artefact(kind: manifests.Kind):
  return next(one for one in verification.ARTEFACTS if one.kind is kind)


def _found(directory: pathlib.Path) -> str:
  """What is said of damage; '' where all is whole."""
  try:
    found = integrity.verify_directory(directory)
  except errors.RunDirectoryError as error:
    return str(error)
  return '' if found.is_whole else integrity.to_text(found)


def _changed(content: bytes, change: str, other: bytes) -> bytes | None:
  if change == 'flip':
    middle = len(content) // 2
    return (
      content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    )
  if change == 'unseal':  # without the key of its own digest
    return content.replace(b'"digest":', b'"digesT":')
  cut = content[: len(content) // 2]
  return {'delete': None, 'empty': b'', 'cut': cut, 'swap': other}[change]


def _other(first: pathlib.Path, second: pathlib.Path, name: str) -> bytes:
  """The same file of another artefact; the same by number where names differ."""
  path = second / name
  if not path.exists():
    siblings = sorted((first / name).parent.iterdir())
    parent = pathlib.PurePosixPath(name).parent
    others = sorted((second / parent).glob('*')) or siblings
    path = others[siblings.index(first / name) % len(others)]
  return path.read_bytes() if path.is_file() else b'of another'


def _is_list(path: pathlib.Path) -> bool:
  """Whether a file says what others are."""
  return path.name == manifests.FILE or path.name.startswith('.prepared')


def _write(path: pathlib.Path, content: bytes | None) -> None:
  path.unlink() if content is None else path.write_bytes(content)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """A function that makes two artefacts of a kind."""

  def make(kind):
    folder = tmp_path_factory.mktemp('artefact')
    made = [folder / 'first', folder / 'second']
    for number, directory in enumerate(made):
      artefacts.MAKERS[kind](directory, number)
    return made

  return make


def test_every_kind_is_tried():
  assert set(artefacts.MAKERS) == set(manifests.Kind)
  assert {one.kind for one in verification.ARTEFACTS} == set(manifests.Kind)


@pytest.mark.parametrize(
  'kind', list(manifests.Kind), ids=lambda kind: kind.name
)
def test_every_change_of_a_file_is_found(made, kind):
  first, second = made(kind)
  for directory in (first, second):
    found = integrity.verify_directory(directory)
    assert found.kind is kind and found.is_whole, integrity.to_text(found)
  names = sorted(
    path.relative_to(first).as_posix()
    for path in first.rglob('*')
    if path.is_file()
  )
  artefact = _artefact(kind)
  parts = [name for name in names if artefact.part_of(name)[0]]
  for name in set(parts) - set(parts[:: _EACH[kind]]):
    names.remove(name)  # it is tried where its kind is
  silent, changes = [], 0
  for name in names:
    need = artefact.files_of(name).need
    path, content = first / name, (first / name).read_bytes()
    stat = path.stat()
    for change in _CHANGES:
      new = (
        _changed(content, change, _other(first, second, name))
        if content
        else None
      )
      if new == content:
        continue
      changes += 1
      _write(path, new)
      said = _found(first)
      optional = need is Need.OPTIONAL and change == 'delete'
      if _is_list(path) and change == 'swap':
        named = bool(said)  # the files that it lists are told
      else:
        named = path.name in said
      if need is not Need.UNREAD and not optional and not named:
        silent.append(f'{change} {name}')
      path.write_bytes(content)
      os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
  assert silent == [] and changes >= 2 * len(names)
  assert _found(first) == ''


def test_the_guide_has_the_table(regenerate_goldens):
  path = _ROOT / 'docs/reliability.md'
  text = path.read_text(encoding='utf-8')
  start, end = '<!-- files of artefacts -->\n', '<!-- end of files -->'
  before, _, rest = text.partition(start)
  _, _, after = rest.partition(end)
  made = (
    f'{before}{start}\n{artifact_table(verification.ARTEFACTS)}\n{end}{after}'
  )
  if regenerate_goldens:
    path.write_text(made, encoding='utf-8')
  assert text == made
