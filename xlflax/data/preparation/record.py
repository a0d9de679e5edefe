"""What a prepared corpus directory says of how it was made."""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from xlflax import errors, paths
from xlflax.data.corpus.files import Fingerprint

RECORD_FILE = '.prepared.json'
_FORMAT = 2


@dataclasses.dataclass(frozen=True)
class Prepared:
  """One written file.

  Attributes:
    path: in both directories, but for the name of a further copy.
    lines: with text; a file without any is not there.
    words: that could have been switched; 0 where nothing is switched.
    changed: words that were.
    dropped: reason -> lines that were left out.
    reused: whether an earlier call had written it.
  """

  path: str
  lines: int
  words: int
  changed: int
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  reused: bool = False


class Record:
  """What was written, from which files and with which settings.

  Raises:
    CorpusError: the output holds something else, or what was made with other
      settings and is not to be overwritten.
  """

  def __init__(self, output: pathlib.Path, settings: dict, *, overwrite: bool):
    self._output, self._path = output, output / RECORD_FILE
    self._data: dict = {'format': _FORMAT, 'settings': settings, 'files': {}}
    if self._path.exists():
      stored = _read(self._path)
      if stored['settings'] == settings:
        self._data = stored
      elif overwrite:
        self._data['files'] = {path: None for path in stored['files']}
      else:
        raise errors.CorpusError(
          'The output was made with other settings, dictionaries or files',
          got='; '.join(_differences(stored['settings'], settings)),
          where=str(output),
          fix='choose another --output, or replace it by --overwrite',
        )
    elif output.is_dir() and any(output.iterdir()):
      raise errors.CorpusError(
        'The output directory holds other files',
        where=str(output),
        got=', '.join(
          itertools.islice(sorted(p.name for p in output.iterdir()), 5)
        ),
        fix='choose a new or empty directory',
      )
    output.mkdir(parents=True, exist_ok=True)
    self._save()

  def find(self, name: str, source: Fingerprint) -> Prepared | None:
    """The written file, if it is there and its source has not changed."""
    known = self._data['files'].get(name)
    if (
      known is None
      or known['source'] != list(dataclasses.astuple(source))
      or paths.size(self._output / name) != known['size']
    ):
      return None
    lines, words, changed = known['counts']
    dropped = known['dropped']
    return Prepared(name, lines, words, changed, dropped, reused=True)

  def add(self, prepared: Prepared, source: Fingerprint) -> None:
    """Notes a file that was just written."""
    self._data['files'][prepared.path] = {
      'source': dataclasses.astuple(source),
      'size': paths.size(self._output / prepared.path),
      'counts': [prepared.lines, prepared.words, prepared.changed],
      'dropped': prepared.dropped,
    }
    self._save()

  def remove_others(self, paths: set[str]) -> None:
    """Deletes written files that are no longer to be there."""
    for path in set(self._data['files']) - paths:
      (self._output / path).unlink(missing_ok=True)
      del self._data['files'][path]
    self._save()

  def _save(self):
    text = json.dumps(self._data, indent=1, ensure_ascii=False)
    paths.write_atomically(self._path, text)


def _differences(there: Any, asked: Any, name: str = '') -> Iterator[str]:
  """What differs between two settings, a phrase each."""
  if isinstance(there, dict) or isinstance(asked, dict):
    there, asked = there or {}, asked or {}
    for key in sorted(there.keys() | asked.keys()):
      below = f'{name}.{key}' if name else key
      yield from _differences(there.get(key), asked.get(key), below)
  elif there != asked and name.endswith(('files', 'dictionaries')):
    changed = {json.dumps(file) for file in there or ()} ^ {
      json.dumps(file) for file in asked or ()
    }
    paths_of = sorted({json.loads(file)[0] for file in changed})
    more = ', …' if len(paths_of) > 5 else ''
    yield f'{name}: {", ".join(paths_of[:5])}{more} changed, came or went'
  elif there != asked:
    yield f'{name}: {there!r} there, {asked!r} asked'


@contextlib.contextmanager
def alone(output: pathlib.Path) -> Iterator[None]:
  """Keeps a second writer out of a directory, which is made if need be.

  Raises:
    CorpusError: another process writes there.
  """
  output.mkdir(parents=True, exist_ok=True)
  directory = os.open(output, os.O_RDONLY)
  try:
    _lock(directory, output)
    yield
  finally:
    os.close(directory)


def _lock(directory: int, output: pathlib.Path) -> None:
  try:
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    raise errors.CorpusError(
      'Another process is preparing this corpus',
      where=str(output),
      fix='wait for it, or stop it first',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _read(path: pathlib.Path) -> dict:
  """The record in a file.

  Raises:
    CorpusError: the file is damaged, or of another version's format.
  """
  try:
    stored = json.loads(path.read_text(encoding='utf-8'))
  except (ValueError, RecursionError) as error:
    raise _unreadable(path, error, 'JSON') from error
  if not isinstance(stored, dict) or stored.get('format') != _FORMAT:
    raise _unreadable(path, stored, f'an object of format {_FORMAT}')
  return stored


def _unreadable(path: pathlib.Path, got, expected: str) -> errors.CorpusError:
  return errors.CorpusError(
    'The record of a prepared corpus cannot be read',
    got=got,
    expected=expected,
    where=path,
    fix='delete the directory and prepare the corpus again',
  )
