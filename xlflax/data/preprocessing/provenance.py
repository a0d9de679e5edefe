"""What a prepared corpus directory says of how it was made."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from xlflax.data.corpus.corpus_files import Fingerprint
from xlflax.storage import checksums, file_lock, paths
from xlflax.utils import errors

RECORD_FILE = '.prepared.json'
_OF_SHARES = '.prepared-*.json'
_MARK = '.prepared'  # in the names of records, locks and of what they begin as
_LOCK = f'{_MARK}.lock'
_FORMAT = 3
_NOTHING = checksums.digest_content('')  # of a file that is not written


def lock_output(
  output: pathlib.Path, share: tuple[int, int] | None = None
) -> contextlib.AbstractContextManager[None]:
  """Keeps a second writer out; see `file_lock.lock_directory`."""
  return file_lock.lock_directory(
    output,
    name=_LOCK,
    what='prepared corpus',
    error=errors.CorpusError,
    share=share,
  )


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

  Either that of all of the corpus, which takes in those of shares, or that of
  one share, which reads the one of all. No two processes write the same one.

  Attributes:
    output: the directory that it is of.
  """

  def __init__(self, path: pathlib.Path, data: dict, known: dict):
    """Saves a record; `of_all` and `of_share` say what is in it.

    Args:
      path: its file, in the output directory.
      data: what is saved.
      known: path -> what is known of a file, beside those of the record.
    """
    self.output, self._path = path.parent, path
    self._data = data
    self._known = known | data['files']
    self._save()

  @classmethod
  def of_all(
    cls, output: pathlib.Path, settings: dict, *, overwrite: bool
  ) -> 'Record':
    """The one record that there is then; those of shares are taken in.

    Raises:
      CorpusError: files were made with other settings, and are not to be
        overwritten.
    """
    files: dict = {}
    dictionary_digests: dict = {}
    for stored in _stored(output).values():
      if stored['settings'] == settings:
        files |= stored['files']
        dictionary_digests |= stored['dictionaries']
      elif overwrite:
        files |= dict.fromkeys(stored['files'])
        dictionary_digests |= dict.fromkeys(stored['dictionaries'])
      else:
        raise _other_settings(
          output,
          _differences(stored['settings'], settings),
          'choose another --output, or replace it by --overwrite',
        )
    data = _data(settings, files) | {'dictionaries': dictionary_digests}
    record = cls(output / RECORD_FILE, data, {})
    for pattern in (_OF_SHARES, f'{_LOCK}-*'):  # which nobody holds now
      for path in output.glob(pattern):
        path.unlink()
    return record

  @classmethod
  def of_share(
    cls,
    output: pathlib.Path,
    settings: dict,
    share: tuple[int, int],
    sources: Sequence[Fingerprint],
  ) -> 'Record':
    """That of a share.

    Args:
      output: the directory.
      settings: of all shares.
      share: (i, n): the i-th of n.
      sources: the files that all shares divide among them.

    Raises:
      CorpusError: other shares, or what was there before, have other settings
        or files, or divide them otherwise.
    """
    path = output / _OF_SHARES.replace('*', f'{share[0]}-of-{share[1]}')
    division = {
      'shares': share[1],
      'text': {'files': [list(dataclasses.astuple(s)) for s in sources]},
    }
    _check_shares(output, settings, division)
    stored = _stored(output)
    of_all = stored.get(RECORD_FILE, _data(settings, {}))
    shard_record = stored.get(path.name, _data(settings, {}))
    dictionary_digests = (
      of_all['dictionaries'] | shard_record['dictionaries']
      if not share[0]
      else {}
    )
    data = shard_record | {
      'division': division,
      'dictionaries': dictionary_digests,
    }
    record = cls(path, data, of_all['files'])
    try:  # another one may have begun at the same time
      _check_shares(output, settings, division)
    except errors.CorpusError:
      if path.name not in stored:
        path.unlink()
      raise
    return record

  def find(self, name: str, source: Fingerprint) -> Prepared | None:
    """The written file, if it is there and its source has not changed.

    Raises:
      CorpusError: it was changed since, and would be written again.
    """
    entry = self._known.get(name)
    if (
      entry is None
      or entry['source'] != list(dataclasses.astuple(source))
      or paths.file_size(self.output / name)
      != checksums.parse_size(entry['digest'])
    ):
      if entry:  # else it is to be overwritten
        self._check_as_written(name, entry['digest'])
      return None
    lines, num_words, changed = entry['counts']
    dropped = entry['dropped']
    return Prepared(name, lines, num_words, changed, dropped, reused=True)

  def add(self, prepared: Prepared, source: Fingerprint) -> None:
    """Notes a file that was just written."""
    entry = {
      'source': dataclasses.astuple(source),
      'digest': self._digest(prepared.path),
      'counts': [prepared.lines, prepared.words, prepared.changed],
      'dropped': prepared.dropped,
    }
    self._data['files'][prepared.path] = self._known[prepared.path] = entry
    self._save()

  def check_dictionaries(self) -> None:
    """Raises a CorpusError if a written dictionary was changed since."""
    for name, digest in self._data['dictionaries'].items():
      self._check_as_written(name, digest)

  def set_dictionaries(
    self, made: Sequence[pathlib.Path], *, remove_others: bool
  ) -> None:
    """Notes dictionaries that were just written; others may have to go."""
    names = {path.relative_to(self.output).as_posix() for path in made}
    for name in (
      set(self._data['dictionaries']) - names if remove_others else ()
    ):
      (self.output / name).unlink(missing_ok=True)
      del self._data['dictionaries'][name]
    self._data['dictionaries'] |= {name: self._digest(name) for name in names}
    self._save()

  def remove_others(self, paths: set[str]) -> None:
    """Deletes written files that are no longer to be there.

    Raises:
      CorpusError: one was changed since.
    """
    for path in set(self._data['files']) - paths:
      if entry := self._data['files'][path]:
        self._check_as_written(path, entry['digest'])
      (self.output / path).unlink(missing_ok=True)
      del self._data['files'][path]
    self._save()

  def _check_as_written(self, name: str, digest: str | None) -> None:
    """Refuses to lose what somebody has made of a written file."""
    path = self.output / name
    if digest and path.exists() and checksums.digest_file(path) != digest:
      raise errors.CorpusError(
        'A prepared file was changed since it was written, and would be lost',
        where=path,
        got=f'{paths.file_size(path):,} bytes',
        expected=f'{checksums.parse_size(digest):,} bytes, as written',
        fix='move it, and it is written again; or choose another --output',
      )

  def _digest(self, name: str) -> str:
    path = self.output / name
    return checksums.digest_file(path) if path.exists() else _NOTHING

  def _save(self):
    sealed = checksums.add_digest(self._data)
    text = json.dumps(sealed, indent=1, ensure_ascii=False)
    paths.write_atomically(self._path, text)


def recorded_digests(output: pathlib.Path) -> dict[str, str]:
  """Path -> digest of what the records say was written.

  Raises:
    CorpusError: a record is damaged.
  """
  digests: dict[str, str] = {}
  for stored in _stored(output).values():
    digests |= {
      n: entry['digest'] for n, entry in stored['files'].items() if entry
    }
    digests |= {
      n: entry for n, entry in stored['dictionaries'].items() if entry
    }
  return {name: entry for name, entry in digests.items() if entry != _NOTHING}


def forget_files(output: pathlib.Path, names: set[str]) -> None:
  """Takes files out of the records: the next call writes them.

  Raises:
    CorpusError: a record is damaged.
  """
  for name, stored in _stored(output).items():
    for key in ('files', 'dictionaries'):
      stored[key] = {n: v for n, v in stored[key].items() if n not in names}
    text = json.dumps(
      checksums.add_digest(stored), indent=1, ensure_ascii=False
    )
    paths.write_atomically(output / name, text)


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


def check_output(output: pathlib.Path) -> None:
  """Refuses a directory that holds something else.

  Raises:
    CorpusError: there are files, and no record of them.
  """
  if not output.is_dir():
    return
  other_files = sorted(p.name for p in output.iterdir() if _MARK not in p.name)
  # Looked for in this order, as shares' records become the one of all.
  if other_files and not (
    any(output.glob(_OF_SHARES)) or (output / RECORD_FILE).exists()
  ):
    raise errors.CorpusError(
      'The output directory holds other files',
      where=str(output),
      got=', '.join(other_files[:5]),
      fix='choose a new or empty directory',
    )


def _data(settings: dict, files: dict) -> dict:
  return {
    'format': _FORMAT,
    'settings': settings,
    'files': files,
    'dictionaries': {},
  }


def _stored(output: pathlib.Path) -> dict[str, dict]:
  """Name -> record: the one of all, then those of shares."""
  records = {}
  for path in [output / RECORD_FILE, *sorted(output.glob(_OF_SHARES))]:
    with contextlib.suppress(FileNotFoundError):
      records[path.name] = _read(path)
  return records


def _check_shares(output: pathlib.Path, settings: dict, division: dict) -> None:
  """Refuses a share that does not go with what is there."""
  for stored in _stored(output).values():
    stored_settings = {**stored['settings'], **stored.get('division', division)}
    differences = list(_differences(stored_settings, {**settings, **division}))
    if differences:
      raise _other_settings(
        output,
        differences,
        'Pass the same options and text to all shards. The command without a '
        'shard writes missing files, and with --overwrite replaces the output.',
      )


def _other_settings(
  output: pathlib.Path, differences: Iterable[str], fix: str
) -> errors.CorpusError:
  return errors.CorpusError(
    'The output was made with other settings, dictionaries or files',
    got='; '.join(differences),
    where=str(output),
    fix=fix,
  )


def _read(path: pathlib.Path) -> dict:
  """The record in a file.

  Raises:
    CorpusError: the file is damaged, or of another version's format.
  """
  try:
    stored = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(stored, dict) and stored.get('format') == _FORMAT:
      stored = checksums.verify_digest(stored)
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
