"""What every kind of artefact consists of: the table of its files.

`artefacts.toml` has this table, `docs/reliability.md` shows it, and a test
changes every file of an artefact of each kind and asks `xlflax verify` about it.
"""

import dataclasses
import enum
import fnmatch
import importlib.resources
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator

from xlflax.integrity.verification_report import Finding
from xlflax.storage import manifests

Look = Callable[[pathlib.Path], Iterable[Finding]]
_PLACE = importlib.resources.files('xlflax.integrity')
_TABLE = tomllib.loads((_PLACE / 'artefacts.toml').read_text(encoding='utf-8'))


class Need(enum.Enum):
  """Whether an artefact is whole without a file."""

  REQUIRED = 'required'
  OPTIONAL = 'optional'  # damage is found, but not that it is missing
  UNREAD = 'not read'  # by any command; not looked at


@dataclasses.dataclass(frozen=True)
class Files:
  """Some of the files of an artefact.

  Attributes:
    names: patterns of their paths; `*` stands for `/` as well.
    need: whether the artefact is whole without them.
    without: what happens without them, or if they are damaged.
    found: how damage is found.
    again: what makes them again.
  """

  names: tuple[str, ...]
  need: Need
  without: str
  found: str
  again: str


@dataclasses.dataclass(frozen=True)
class Artefact:
  """A kind of directory.

  Attributes:
    kind: of it.
    marks: patterns of files that only such a directory has, for one whose
      manifest is missing or damaged.
    files: of it; the first pattern that fits a file counts.
    look: looks at a directory of this kind.
    parts: (regular expression of the beginning of a path, what lies there).
  """

  kind: manifests.Kind
  marks: tuple[str, ...]
  files: tuple[Files, ...]
  look: Look
  parts: tuple[tuple[str, 'Artefact'], ...] = ()

  def is_marked(self, directory: pathlib.Path) -> bool:
    """Whether a directory has a file of this kind."""
    return any(
      next(iter(directory.glob(mark)), None) is not None for mark in self.marks
    )

  def files_of(self, name: str) -> Files:
    """The line of the table that a file is in; raises KeyError without."""
    part, below = self.part_of(name)
    if part is not None:
      return part.files_of(below)
    for files in self.files:
      if any(fnmatch.fnmatchcase(name, pattern) for pattern in files.names):
        return files
    raise KeyError(f'{self.kind}: {name}')

  def part_of(self, name: str) -> tuple['Artefact | None', str]:
    """What lies where a file is, if it is in a part; its path below that."""
    for beginning, part in self.parts:
      match = re.match(beginning, name)
      if match:
        return part, name[match.end() :]
    return None, name


def artifact_type(
  kind: manifests.Kind, look: Look, *parts: tuple[str, Artefact]
) -> Artefact:
  """A kind of directory, with its marks and files in `artefacts.toml`.

  Args:
    kind: of it.
    look: looks at a directory of this kind.
    *parts: (regular expression of the beginning of a path, what lies there).
  """
  marks = tuple(_TABLE[kind.name.lower()]['marks'])
  return Artefact(kind, marks, tuple(_files(kind.name.lower())), look, parts)


def _files(kind: str) -> Iterator[Files]:
  """Those of a kind in the table, by its name there."""
  for entry in _TABLE[kind]['files']:
    if 'as' in entry:
      yield from _files(entry['as'])
    else:
      need = Need(entry.get('need', 'required'))
      yield Files(**entry | {'names': tuple(entry['names']), 'need': need})


def artifact_table(artefacts: Iterable[Artefact]) -> str:
  """The table of files as Markdown."""
  lines = [
    '| artefact | files | | without it, or damaged | how damage is found '
    '| made again by |',
    '| --- | --- | --- | --- | --- | --- |',
  ]
  for artefact in artefacts:
    lines += [_line(artefact.kind, files) for files in artefact.files]
  return '\n'.join(lines) + '\n'


def _line(kind: manifests.Kind, files: Files) -> str:
  names = ', '.join(f'`{name}`' for name in files.names)
  descriptions = (files.without, files.found, files.again)
  return (
    f'| {kind} | {names} | {files.need.value} | {" | ".join(descriptions)} |'
  )


def inner_directories(
  directory: pathlib.Path, *patterns: str
) -> Iterator[tuple[str, pathlib.Path]]:
  """(path below it, directory) of the directories that patterns name."""
  for pattern in patterns:
    for path in sorted(directory.glob(pattern)):
      if path.is_dir() and not path.name.startswith('.'):
        yield path.relative_to(directory).as_posix(), path
