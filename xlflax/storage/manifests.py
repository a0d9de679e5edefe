"""Manifests: of what kind a directory is, and which files it consists of.

A manifest is the `digests.json` of a directory (see `digests`). It has the
digest of every file that is written once and for all, so that one that is
missing, damaged or another artefact's is found. Files that grow or come and go
in an artefact's life are not in it. Everything here works in buckets, too.

A file and the manifest cannot change at one moment. So a manifest that is
about to have another digest of a file keeps the one before beside it: wherever
a process is killed, the file on disk is one that the manifest knows.
"""

import enum
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from xlflax.foundation import errors
from xlflax.storage import digests, paths

FILE = digests.FILE
_KIND, _BEFORE = 'kind', 'before'


class Kind(enum.StrEnum):
  """What a directory can be; the words are what people read."""

  RUN = 'run'
  CACHE = 'token cache'
  ROWS = 'cached rows'
  VOCABULARY = 'vocabulary'
  CORPUS = 'prepared corpus'
  GRID = 'grid'
  SUITE = 'suite'
  EVALUATION = 'evaluation'
  REPORT = 'report'
  ANALYSIS = 'analysis'
  STATES = 'sentence states'
  EXPORT = 'exported model'
  PRETRAINING = 'pretraining'


class Manifest(NamedTuple):
  """What a manifest says.

  Attributes:
    kind: of the directory, a word of `Kind`; '' where that is not said.
    files: path below the directory -> digest.
    before: path -> the digest before, of files that are being replaced.
  """

  kind: str
  files: Mapping[str, str]
  before: Mapping[str, str] = {}


def read(directory: pathlib.Path) -> Manifest | None:
  """The manifest of a directory; None where there is none.

  Raises:
    RunDirectoryError: it is damaged.
  """
  try:
    files, about = digests.read_seal(directory)
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    raise errors.RunDirectoryError(
      'A manifest is damaged',
      got=f'{type(error).__name__}: {error}'[:200],
      where=str(directory / FILE),
      fix=f'xlflax verify {directory} --repair',
      status=errors.ExitStatus.FAILURE
      if errors.is_away(error)
      else errors.ExitStatus.MISTAKE,
    ) from error
  return Manifest(about.get(_KIND, ''), files, about.get(_BEFORE, {}))


def write(
  directory: pathlib.Path, kind: Kind, contents: Mapping[str, str | bytes]
) -> None:
  """Writes small files of an artefact, and their digests into its manifest.

  What is as it should be is not written.

  Args:
    directory: of the artefact.
    kind: of artefact.
    contents: path below the directory -> content.

  Raises:
    RunDirectoryError: the manifest is damaged.
  """
  known = read(directory)
  files = dict(known.files) if known else {}
  new = {name: digests.of_content(text) for name, text in contents.items()}
  before = {
    name: files[name]
    for name, digest in new.items()
    if files.get(name, digest) != digest
  }
  if before:
    _write(directory, Manifest(str(kind), files | new, before))
  for name, content in contents.items():
    if not _is(directory / name, content):
      paths.write_atomically(directory / name, content)
  _replace(directory, Manifest(str(kind), files | new))


def note(
  directory: pathlib.Path, kind: Kind, names: Collection[str] | None = None
) -> None:
  """Puts files that are written into the manifest of their directory.

  Args:
    directory: of the artefact.
    kind: of artefact.
    names: paths below the directory; None: all that is there, and nothing
      else.

  Raises:
    RunDirectoryError: the manifest is damaged.
    OSError: a file cannot be read.
  """
  if names is None:
    digests.seal(directory, {_KIND: str(kind)})
    return
  known = read(directory)
  found = {name: digests.of_file(directory / name) for name in names}
  files = dict(known.files) if known else {}
  _replace(directory, Manifest(str(kind), files | found))


def forget(directory: pathlib.Path, names: Collection[str]) -> None:
  """Takes files out of a manifest, before they are removed."""
  known = read(directory)
  if known and known.files.keys() & set(names):
    files = {n: one for n, one in known.files.items() if n not in set(names)}
    _write(directory, known._replace(files=files))


def problems(
  directory: pathlib.Path, *, but: Collection[str] = ()
) -> dict[str, str]:
  """File -> what is wrong with it; the manifest itself among them.

  Args:
    directory: of the artefact.
    but: files that are not looked at.
  """
  try:
    known = read(directory)
  except errors.RunDirectoryError as error:
    return {FILE: f'{FILE} is damaged ({error.got})'}
  if known is None:
    return {FILE: f'{FILE} is missing'}
  wanted = {n: one for n, one in known.files.items() if n not in set(but)}
  for name, digest in known.before.items():
    if name in wanted and _has(directory / name, digest):
      wanted[name] = digest
  return digests.changes(directory, wanted)


def check(directory: pathlib.Path, name: str) -> None:
  """Refuses to do without a file that the manifest has.

  Raises:
    RunDirectoryError: the file is missing, or the manifest is damaged.
  """
  known = read(directory)
  if known and name in known.files and not (directory / name).exists():
    raise errors.RunDirectoryError(
      'A file is missing',
      got=f'no {name}',
      expected='all files that its manifest names',
      where=str(directory),
      fix=f'xlflax verify {directory} --repair',
    )


def texts(
  directory: pathlib.Path, *, longest: int
) -> Iterator[tuple[str, str]]:
  """(path, content) of the short files of text that are as they were written.

  Args:
    directory: of the artefact.
    longest: bytes of a file that counts as short.
  """
  known = read(directory)
  for name, digest in (known.files if known else {}).items():
    if digests.size(digest) > longest:
      continue
    try:
      text = (directory / name).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError):
      continue
    if digests.of_content(text, like=digest) == digest:
      yield name, text


def _write(directory: pathlib.Path, manifest: Manifest) -> None:
  about: dict = {_KIND: manifest.kind}
  if manifest.before:
    about[_BEFORE] = dict(manifest.before)
  digests.write_seal(directory, manifest.files, about)


def _replace(directory: pathlib.Path, manifest: Manifest) -> None:
  """Writes a manifest unless it is there already."""
  if read(directory) != manifest:
    _write(directory, manifest)


def _is(path: pathlib.Path, content: str | bytes) -> bool:
  """Whether a file has this content."""
  if isinstance(content, str):
    content = content.encode('utf-8')
  try:
    return path.read_bytes() == content
  except OSError:
    return False


def _has(path: pathlib.Path, digest: str) -> bool:
  """Whether a file has this digest."""
  try:
    return digests.of_file(path, like=digest) == digest
  except OSError:
    return False
