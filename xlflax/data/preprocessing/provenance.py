"""Provenance records for preprocessed corpus directories."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.corpus.bad_records import BadRecordCount
from xlflax.data.corpus.corpus_files import Fingerprint
from xlflax.storage import checksums, file_lock, paths
from xlflax.utils import errors

RECORD_FILE = '.prepared.json'
_SHARD_RECORD_PATTERN = '.prepared-*.json'
# Part of the names of records, locks and their temporary files.
_NAME_PREFIX = '.prepared'
_LOCK = f'{_NAME_PREFIX}.lock'
_FORMAT = 5
_COMMAND = 'preprocess'
# Reason for dropping lines and records that cannot be used.
BAD_RECORD = 'bad record'
# Recorded digest of files that are not written because no line remains.
_EMPTY_DIGEST = checksums.digest_content('')


def lock_output(
  output: pathlib.Path, shard: tuple[int, int] | None = None
) -> contextlib.AbstractContextManager[None]:
  """Returns a context manager that locks the output directory.

  In the context, no other process can write to the directory.

  See `file_lock.lock_directory`.

  Args:
    output: Output directory.
    shard: Pair (i, n) to lock only shard i of n shards. If None, the complete
      directory is locked.
  """
  return file_lock.lock_directory(
    output,
    name=_LOCK,
    what='prepared corpus',
    error=errors.CorpusError,
    share=shard,
  )


@dataclasses.dataclass(frozen=True)
class Prepared:
  """Statistics of one output file of a preprocessing run.

  Attributes:
    path: Path relative to the output directory. It equals the path in the
      corpus directory, except for code-switched copies and for files that
      contain records.
    lines: Number of lines with text. A file without such lines is not written.
    words: Number of words that could have been code-switched. It is 0 if the
      file is not code-switched.
    changed: Number of words that were code-switched.
    dropped: Number of dropped lines, by reason.
    bad_records: Number and examples of the lines and records that were dropped
      because they could not be used, by problem.
    reused: Whether the file was written by an earlier run and was kept.
  """

  path: str
  lines: int
  words: int
  changed: int
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  bad_records: tuple[BadRecordCount, ...] = ()
  reused: bool = False


class Record:
  """Provenance record of the files in a preprocessed corpus directory.

  A record lists the written files, their source files and the settings. A
  record is either complete or belongs to a single shard. A complete record
  includes the records of all shards. If an earlier call wrote a complete
  record, a shard's record uses it. Two processes never write the same record.

  Attributes:
    output: Output directory.
  """

  def __init__(self, path: pathlib.Path, data: dict, other_files: dict):
    """Creates and saves a record. Use `open_complete` or `open_shard` instead.

    Args:
      path: Path of the record in the output directory.
      data: Content of the provenance record, as JSON data.
      other_files: Records of the files that were written by other shards or in
        earlier calls, by path.
    """
    self.output = path.parent
    self._path = path
    self._data = data
    self._entries = other_files | data['files']
    self._save()

  @classmethod
  def open_complete(
    cls, output: pathlib.Path, settings: dict, *, overwrite: bool
  ) -> 'Record':
    """Opens the provenance record of all files, merged from shard records.

    A new output and an output with different settings are marked as incomplete
    until `finish` is called. If no file was written with the
    recorded settings, they are replaced.

    Args:
      output: Output directory.
      settings: Settings that the current call requests.
      overwrite: Whether to overwrite files that were written with different
        settings.

    Raises:
      CorpusError: If files were written with different settings and `overwrite`
        is False.
    """
    files: dict = {}
    dictionary_digests: dict = {}
    stored_records = _read_records(output)
    for stored in stored_records.values():
      if stored['settings'] == settings:
        files |= stored['files']
        dictionary_digests |= stored['dictionaries']
      elif not stored['files']:
        # An earlier call failed before it wrote any text.
        dictionary_digests |= stored['dictionaries']
      elif overwrite:
        files |= dict.fromkeys(stored['files'])
        dictionary_digests |= dict.fromkeys(stored['dictionaries'])
      else:
        raise _other_settings_error(
          output,
          _differences(stored['settings'], settings),
          _fix_of_other_settings(output),
        )
    if stored_records.keys() != {RECORD_FILE} or any(
      stored['settings'] != settings for stored in stored_records.values()
    ):
      corpus_writer.mark_incomplete(output, _COMMAND)
    data = _new_record(settings, files) | {'dictionaries': dictionary_digests}
    record = cls(output / RECORD_FILE, data, {})
    # The lock of the directory guarantees that no shard is being written.
    for pattern in (_SHARD_RECORD_PATTERN, f'{_LOCK}-*'):
      for path in output.glob(pattern):
        path.unlink()
    return record

  @classmethod
  def open_shard(
    cls,
    output: pathlib.Path,
    settings: dict,
    shard: tuple[int, int],
    sources: Sequence[Fingerprint],
  ) -> 'Record':
    """Opens the provenance record of one preprocessing shard.

    Args:
      output: Output directory.
      settings: Settings, which must be the same for all shards.
      shard: Pair (i, n) for shard i of n shards, where i is zero-based.
      sources: Fingerprints of the source files of all shards.

    Raises:
      CorpusError: If other shards or an earlier call have different settings,
        source files or numbers of shards.
    """
    index, num_shards = shard
    path = output / _SHARD_RECORD_PATTERN.replace(
      '*', f'{index}-of-{num_shards}'
    )
    division = {
      'num_shards': num_shards,
      'text': {
        'files': [list(dataclasses.astuple(source)) for source in sources]
      },
    }
    _check_shards(output, settings, division)
    stored = _read_records(output)
    complete_record = stored.get(RECORD_FILE, _new_record(settings, {}))
    shard_record = stored.get(path.name, _new_record(settings, {}))
    # The first shard writes the dictionaries.
    dictionary_digests = {}
    if index == 0:
      dictionary_digests = (
        complete_record['dictionaries'] | shard_record['dictionaries']
      )
    data = shard_record | {
      'division': division,
      'dictionaries': dictionary_digests,
    }
    record = cls(path, data, complete_record['files'])
    # Another shard may have been started at the same time.
    try:
      _check_shards(output, settings, division)
    except errors.CorpusError:
      if path.name not in stored:
        path.unlink()
      raise
    return record

  def start_writing(self) -> None:
    """Marks the output as incomplete before its files are changed."""
    corpus_writer.mark_incomplete(self.output, _COMMAND)

  def finish(self) -> None:
    """Marks the output as complete."""
    corpus_writer.mark_complete(self.output)

  def find(
    self, name: str, source: Fingerprint, *, allow_bad_records: bool = False
  ) -> Prepared | None:
    """Returns a file's statistics, or None if the file must be written again.

    Args:
      name: Path of the file, relative to the output directory.
      source: Fingerprint of the source file.
      allow_bad_records: Whether to accept a file from which bad records were
        dropped. If False, such a file must be written again.

    Raises:
      CorpusError: If the file must be written again but has been modified since
        it was written.
    """
    entry = self._entries.get(name)
    if (
      entry is None
      or entry['source'] != list(dataclasses.astuple(source))
      or paths.file_size(self.output / name)
      != checksums.parse_size(entry['digest'])
    ):
      # Without an entry, the file is overwritten.
      if entry:
        self._check_as_written(name, entry['digest'])
      return None
    if entry['bad_records'] and not allow_bad_records:
      return None
    lines, num_words, changed = entry['counts']
    return Prepared(
      name,
      lines,
      num_words,
      changed,
      entry['dropped'],
      bad_records=tuple(
        BadRecordCount(problem, count, tuple(examples), *fix)
        for problem, count, examples, *fix in entry['bad_records']
      ),
      reused=True,
    )

  def add(self, prepared: Prepared, source: Fingerprint) -> None:
    """Adds an output file to the provenance record."""
    entry = {
      'source': dataclasses.astuple(source),
      'digest': self._digest(prepared.path),
      'counts': [prepared.lines, prepared.words, prepared.changed],
      'dropped': prepared.dropped,
      'bad_records': [dataclasses.astuple(bad) for bad in prepared.bad_records],
    }
    self._data['files'][prepared.path] = entry
    self._entries[prepared.path] = entry
    self._save()

  def check_dictionaries(self) -> None:
    """Raises a CorpusError if a dictionary was changed after it was written."""
    for name, digest in self._data['dictionaries'].items():
      self._check_as_written(name, digest)

  def set_dictionaries(
    self, dictionary_paths: Sequence[pathlib.Path], *, remove_others: bool
  ) -> None:
    """Records the dictionaries that were written to the output directory.

    Args:
      dictionary_paths: Paths of the dictionaries.
      remove_others: Whether to delete the records of all other dictionaries.
    """
    names = {
      path.relative_to(self.output).as_posix() for path in dictionary_paths
    }
    if remove_others:
      for name in set(self._data['dictionaries']) - names:
        (self.output / name).unlink(missing_ok=True)
        del self._data['dictionaries'][name]
    self._data['dictionaries'] |= {name: self._digest(name) for name in names}
    self._save()

  def remove_others(self, paths: set[str]) -> None:
    """Deletes written files that are no longer part of the output.

    Args:
      paths: Paths of the files that are part of the output.

    Raises:
      CorpusError: If a file to delete has been modified.
    """
    other_paths = set(self._data['files']) - paths
    for path in other_paths:
      if entry := self._data['files'][path]:
        self._check_as_written(path, entry['digest'])
    if other_paths:
      self.start_writing()
    for path in other_paths:
      (self.output / path).unlink(missing_ok=True)
      del self._data['files'][path]
    self._save()

  def _check_as_written(self, name: str, digest: str | None) -> None:
    """Raises a CorpusError if a file has been modified since it was written."""
    path = self.output / name
    if digest and path.exists() and checksums.digest_file(path) != digest:
      raise errors.CorpusError(
        'A preprocessed file would be overwritten, but it was modified after '
        f'it was written. It had {checksums.parse_size(digest):,} bytes and '
        f'now has {paths.file_size(path):,} bytes',
        where=path,
        fix='Move the file to a different directory, or choose a different '
        '--output.',
      )

  def _digest(self, name: str) -> str:
    path = self.output / name
    return checksums.digest_file(path) if path.exists() else _EMPTY_DIGEST

  def _save(self):
    data = checksums.add_digest(self._data)
    text = json.dumps(data, indent=1, ensure_ascii=False)
    paths.write_atomically(self._path, text)


def recorded_digests(output: pathlib.Path) -> dict[str, str]:
  """Returns the recorded digests of all written files, by path.

  Raises:
    CorpusError: If a provenance record is damaged.
  """
  digests: dict[str, str] = {}
  for stored in _read_records(output).values():
    digests |= {
      name: entry['digest'] for name, entry in stored['files'].items() if entry
    }
    digests |= {
      name: digest for name, digest in stored['dictionaries'].items() if digest
    }
  return {
    name: digest for name, digest in digests.items() if digest != _EMPTY_DIGEST
  }


def forget_files(output: pathlib.Path, names: set[str]) -> None:
  """Deletes the records of files, so that the next run writes the files again.

  Args:
    output: Output directory.
    names: Paths of the files, relative to the output directory.

  Raises:
    CorpusError: If a provenance record is damaged.
  """
  for record_name, stored in _read_records(output).items():
    for key in ('files', 'dictionaries'):
      stored[key] = {
        name: entry for name, entry in stored[key].items() if name not in names
      }
    text = json.dumps(
      checksums.add_digest(stored), indent=1, ensure_ascii=False
    )
    paths.write_atomically(output / record_name, text)


def _differences(stored: Any, requested: Any, name: str = '') -> Iterator[str]:
  """Yields a phrase for each difference between two settings.

  Args:
    stored: Settings that a provenance record contains.
    requested: Settings that the current call requests.
    name: Name of the setting, with a dot before the name of each nested field.
  """
  if isinstance(stored, dict) or isinstance(requested, dict):
    stored, requested = stored or {}, requested or {}
    for key in sorted(stored.keys() | requested.keys()):
      nested_name = f'{name}.{key}' if name else key
      yield from _differences(stored.get(key), requested.get(key), nested_name)
  elif stored != requested and name.endswith(('files', 'dictionaries')):
    changed = {json.dumps(file) for file in stored or ()} ^ {
      json.dumps(file) for file in requested or ()
    }
    changed_paths = sorted({json.loads(file)[0] for file in changed})
    ellipsis = ', …' if len(changed_paths) > 5 else ''
    listed_paths = ', '.join(changed_paths[:5])
    yield f'{name}: {listed_paths}{ellipsis} added, removed or changed'
  elif stored != requested:
    yield f'{name}: {stored!r} stored, {requested!r} requested'


def check_output(output: pathlib.Path) -> None:
  """Checks that an output directory is empty or has provenance records.

  Raises:
    CorpusError: If the directory contains files but no provenance record.
  """
  if not output.is_dir():
    return
  other_files = sorted(
    path.name
    for path in output.iterdir()
    if _NAME_PREFIX not in path.name
    and path.name != corpus_directory.INCOMPLETE_FILE
  )
  # The records of shards are checked first, because another process may replace
  # them by the complete record.
  if other_files and not (
    any(output.glob(_SHARD_RECORD_PATTERN)) or (output / RECORD_FILE).exists()
  ):
    raise errors.CorpusError(
      'The output directory contains files that xlflax did not write',
      where=str(output),
      got=', '.join(other_files[:5]),
      fix='Choose a new or empty directory.',
    )


def _new_record(settings: dict, files: dict) -> dict:
  return {
    'format': _FORMAT,
    'settings': settings,
    'files': files,
    'dictionaries': {},
  }


def _read_records(output: pathlib.Path) -> dict[str, dict]:
  """Reads all provenance records of an output directory, by file name."""
  record_paths = [
    output / RECORD_FILE,
    *sorted(output.glob(_SHARD_RECORD_PATTERN)),
  ]
  records = {}
  for path in record_paths:
    with contextlib.suppress(FileNotFoundError):
      records[path.name] = _read_record(path)
  return records


def _check_shards(output: pathlib.Path, settings: dict, division: dict) -> None:
  """Checks that a shard has the same settings and files as existing records."""
  for stored in _read_records(output).values():
    stored_settings = {**stored['settings'], **stored.get('division', division)}
    differences = list(_differences(stored_settings, {**settings, **division}))
    if differences:
      raise _other_settings_error(
        output,
        differences,
        'Pass the same options and text to all shards. To write missing '
        'files, run the command without --shard_index and --num_shards. To '
        'replace the output, add --overwrite.',
      )


def _fix_of_other_settings(output: pathlib.Path) -> str:
  """Returns the hint for an output that was written with other settings."""
  if (output / corpus_directory.INCOMPLETE_FILE).exists():
    return (
      'The output is incomplete. Pass the settings with which it was started '
      'to write the missing files, or pass --overwrite to start again with the '
      'requested settings.'
    )
  return (
    'Choose a different --output, or pass --overwrite to replace the existing '
    'output.'
  )


def _other_settings_error(
  output: pathlib.Path, differences: Iterable[str], fix: str
) -> errors.CorpusError:
  return errors.CorpusError(
    'The existing output was written with different settings, dictionaries or '
    'source files',
    got='; '.join(differences),
    where=str(output),
    fix=fix,
  )


def _read_record(path: pathlib.Path) -> dict:
  """Reads a provenance record from a file.

  Raises:
    CorpusError: If the file is damaged, or if its format belongs to a different
      version.
  """
  try:
    stored = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(stored, dict) and stored.get('format') == _FORMAT:
      stored = checksums.verify_digest(stored)
  except (ValueError, RecursionError) as error:
    raise _unreadable_record_error(path, error) from error
  if not isinstance(stored, dict) or stored.get('format') != _FORMAT:
    raise _unreadable_record_error(path, stored)
  return stored


def _unreadable_record_error(path: pathlib.Path, got) -> errors.CorpusError:
  return errors.CorpusError(
    'The provenance record of the preprocessed corpus cannot be read. It must '
    f'be a JSON object with format {_FORMAT}',
    got=got,
    where=path,
    fix='Delete the directory and preprocess the corpus again.',
  )
