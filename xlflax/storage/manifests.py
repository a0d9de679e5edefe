"""Manifests, which record a directory's type and its files.

A manifest is the `digests.json` of a directory (see `checksums`). It contains
the digest of every file that is written exactly once. Missing, corrupt and
exchanged files are thereby detected. Files that grow or are replaced later are
not included. All functions also work for directories in buckets.

A file and its manifest cannot be changed together atomically. A manifest that
is about to change the digest of a file therefore also keeps the previous
digest. Wherever a process is killed, the manifest matches the file on disk.
"""

import enum
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from xlflax.storage import checksums, paths
from xlflax.utils import errors

FILE = checksums.FILE
_KIND, _BEFORE = 'kind', 'before'


class Kind(enum.StrEnum):
  """Directory types, as recorded in manifests."""

  RUN = 'run'
  CACHE = 'token_cache'
  ROWS = 'cached_rows'
  VOCABULARY = 'vocabulary'
  CORPUS = 'prepared_corpus'
  GRID = 'grid'
  SUITE = 'suite'
  EVALUATION = 'evaluation'
  REPORT = 'report'
  ANALYSIS = 'analysis'
  STATES = 'sentence_states'
  EXPORT = 'exported_model'
  PRETRAINING = 'pretraining'

  @property
  def label(self) -> str:
    """Name of the directory type in messages, such as 'token cache'."""
    return self.value.replace('_', ' ')


class Manifest(NamedTuple):
  """Content of a directory's manifest.

  Attributes:
    kind: Type of the directory, a value of `Kind`, or '' if it is not
      specified.
    files: Mapping from the files' paths, relative to the directory, to their
      digests.
    before: Mapping from the paths of files that are currently being replaced to
      the digests of their previous contents.
  """

  kind: str
  files: Mapping[str, str]
  before: Mapping[str, str] = {}


def read_manifest(directory: pathlib.Path) -> Manifest | None:
  """Reads a directory's manifest, or returns None if there is none.

  Raises:
    RunDirectoryError: If the manifest is corrupt.
  """
  try:
    files, about = checksums.read_seal(directory)
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    raise errors.RunDirectoryError(
      'The manifest is damaged',
      got=f'{type(error).__name__}: {error}'[:200],
      where=str(directory / FILE),
      fix=f'Run `xlflax verify {directory} --repair`.',
      status=errors.ExitStatus.FAILURE
      if errors.is_unavailable(error)
      else errors.ExitStatus.MISTAKE,
    ) from error
  return Manifest(about.get(_KIND, ''), files, about.get(_BEFORE, {}))


def write_files(
  directory: pathlib.Path, kind: Kind, contents: Mapping[str, str | bytes]
) -> None:
  """Writes small files to a directory and records them in its manifest.

  Unchanged files are not written again.

  Args:
    directory: Directory that contains the manifest.
    kind: Type of the directory.
    contents: Mapping from the files' paths, relative to the directory, to their
      contents.

  Raises:
    RunDirectoryError: If the manifest is corrupt.
  """
  manifest = read_manifest(directory)
  files = dict(manifest.files) if manifest else {}
  new_digests = {
    name: checksums.digest_content(content)
    for name, content in contents.items()
  }
  before = {
    name: files[name]
    for name, digest in new_digests.items()
    if files.get(name, digest) != digest
  }
  if before:
    _write(directory, Manifest(str(kind), files | new_digests, before))
  for name, content in contents.items():
    if not _has_content(directory / name, content):
      paths.write_atomically(directory / name, content)
  _replace(directory, Manifest(str(kind), files | new_digests))


def record_files(
  directory: pathlib.Path, kind: Kind, names: Collection[str] | None = None
) -> None:
  """Records existing files in their directory's manifest.

  Args:
    directory: Directory that contains the manifest.
    kind: Type of the directory.
    names: Paths of the files to record, relative to the directory. If None, the
      manifest is replaced by a new one that lists all existing files.

  Raises:
    RunDirectoryError: If the manifest is corrupt.
    OSError: If a file cannot be read.
  """
  if names is None:
    checksums.seal_directory(directory, {_KIND: str(kind)})
    return
  manifest = read_manifest(directory)
  new_digests = {
    name: checksums.digest_file(directory / name) for name in names
  }
  files = dict(manifest.files) if manifest else {}
  _replace(directory, Manifest(str(kind), files | new_digests))


def forget_files(directory: pathlib.Path, names: Collection[str]) -> None:
  """Removes files from a manifest before the files are deleted."""
  manifest = read_manifest(directory)
  if manifest and manifest.files.keys() & set(names):
    files = {
      name: digest
      for name, digest in manifest.files.items()
      if name not in set(names)
    }
    _write(directory, manifest._replace(files=files))


def find_problems(
  directory: pathlib.Path, *, exclude: Collection[str] = ()
) -> dict[str, str]:
  """Finds invalid files in a directory and describes their problems.

  The manifest itself is also checked.

  Args:
    directory: Directory that contains the manifest.
    exclude: Names of files that are not checked.
  """
  try:
    manifest = read_manifest(directory)
  except errors.RunDirectoryError as error:
    return {FILE: f'{FILE} is damaged ({error.got})'}
  if manifest is None:
    return {FILE: f'{FILE} is missing'}
  expected = {
    name: digest
    for name, digest in manifest.files.items()
    if name not in set(exclude)
  }
  for name, digest in manifest.before.items():
    if name in expected and _has_digest(directory / name, digest):
      expected[name] = digest
  return checksums.find_changes(directory, expected)


def check_file(directory: pathlib.Path, name: str) -> None:
  """Checks that a file exists if the manifest lists it.

  Raises:
    RunDirectoryError: If the file is missing, or the manifest is corrupt.
  """
  manifest = read_manifest(directory)
  if manifest and name in manifest.files and not (directory / name).exists():
    raise errors.RunDirectoryError(
      'The manifest lists a file that does not exist',
      got=name,
      where=str(directory),
      fix=f'Run `xlflax verify {directory} --repair`.',
    )


def iterate_texts(
  directory: pathlib.Path, *, max_bytes: int
) -> Iterator[tuple[str, str]]:
  """Yields (path, content) of each text file that matches its digest.

  Files that are larger than `max_bytes` are skipped.

  Args:
    directory: Directory that contains the manifest.
    max_bytes: Maximum size in bytes of a file that is read.
  """
  manifest = read_manifest(directory)
  for name, digest in (manifest.files if manifest else {}).items():
    if checksums.parse_size(digest) > max_bytes:
      continue
    try:
      text = (directory / name).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError):
      continue
    if checksums.digest_content(text, like=digest) == digest:
      yield name, text


def _write(directory: pathlib.Path, manifest: Manifest) -> None:
  about: dict = {_KIND: manifest.kind}
  if manifest.before:
    about[_BEFORE] = dict(manifest.before)
  checksums.write_seal(directory, manifest.files, about)


def _replace(directory: pathlib.Path, manifest: Manifest) -> None:
  """Writes a manifest if it has changed."""
  if read_manifest(directory) != manifest:
    _write(directory, manifest)


def _has_content(path: pathlib.Path, content: str | bytes) -> bool:
  """Returns whether a file has the given content."""
  if isinstance(content, str):
    content = content.encode('utf-8')
  try:
    return path.read_bytes() == content
  except OSError:
    return False


def _has_digest(path: pathlib.Path, digest: str) -> bool:
  """Returns whether a file has the given digest."""
  try:
    return checksums.digest_file(path, like=digest) == digest
  except OSError:
    return False
