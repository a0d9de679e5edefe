"""Corpus directories: monolingual and parallel text as plain files.

```
DIR/mono/<language>[.anything].txt[.gz|.zst]   one sentence or paragraph a line;
                                               a blank line ends a document
DIR/parallel/<l1>-<l2>[.anything].tsv[.gz|.zst]  sentence<TAB>translation
DIR/dictionaries/<l1>-<l2>.tsv                 word<TAB>translation[<TAB>weight]
DIR/valid/{mono,parallel}/  DIR/test/{mono,parallel}/   the same formats
```

Files of records can take the place of .txt and .tsv files (see
`record_reader`). If a language or pair has several files, they are read in the
order of their names. TensorFlow is not required.
"""

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xlflax.data.corpus import (
  bad_records,
  corpus_files,
  line_reader,
  record_formats,
  text_language,
)
from xlflax.data.corpus.bad_records import OnBadRecord, OnDroppedRecord
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.storage import bucket_staging, paths
from xlflax.utils import errors, name_suggestions, validation

TRAIN = 'train'
VALIDATION = 'validation'
TEST = 'test'
SPLITS = (TRAIN, VALIDATION, TEST)
FOLDERS = {TRAIN: '.', VALIDATION: 'valid', TEST: 'test'}
_TOP_LEVEL_FOLDERS = ('mono', 'parallel', 'dictionaries', 'valid', 'test')
IGNORED = ('README', 'LICENSE', 'LICENCE', 'NOTICE', 'CORPUS.')
# File that a command creates before it writes the files of a corpus directory,
# and removes when all files are complete. It contains the command's name.
INCOMPLETE_FILE = '.incomplete'
# File that identifies a token cache (see `cache_format`).
_TOKEN_CACHE = 'cache.json'
# Records of the shards of a preprocessed corpus. The command without a shard
# merges them when all files are complete.
_SHARD_RECORDS = '.prepared-*.json'
# Number of lines of a file from which languages are estimated.
_NUM_SAMPLED_LINES = 100
# Maximum number of unknown file names in an error.
_MAX_LISTED_NAMES = 20


class Line(NamedTuple):
  """Line of a monolingual text file.

  Attributes:
    text: Text of the line.
    starts_document: Whether the line is the first line of a document.
  """

  text: str
  starts_document: bool


class Pair(NamedTuple):
  """Sentence pair: a sentence and its translation."""

  source: str
  target: str


class Corpus:
  """Corpus directory with validated file names, and readers for its text.

  The constructor checks all file names and the first line of text in each file.
  All other lines are checked when they are read, or by `validate`.

  Args:
    directory: Corpus directory.
    skip_bad_records: Whether to skip lines and records that cannot be used,
      such as lines that are not valid UTF-8. Otherwise, they raise an error
      when they are read. If True, files without text are accepted.

  Raises:
    CorpusError: If the directory does not exist, contains no text, or is the
      output of a command that did not finish, if a file has an unknown name or
      contains no text, or if a language pair has files for both directions.
  """

  OPENED_BY: ClassVar[str] = 'xlflax.data.Corpus({})'

  @validation.validate_call
  def __init__(
    self, directory: validation.FilePath, *, skip_bad_records: bool = False
  ):
    self.directory = bucket_staging.stage_input(directory)
    if not self.directory.is_dir():
      hint = None
      if exists := self.directory.exists():
        path = paths.to_path(directory)
        hint = name_suggestions.suggest_corpus_directory(path)
      raise errors.CorpusError(
        'The path of the corpus is a file, but must be a directory'
        if exists
        else 'The corpus directory does not exist',
        got=str(directory),
        fix=hint
        or 'Pass a directory that contains a folder mono/ or parallel/.',
      )
    check_complete(self.directory)
    record_formats.check_corpus_toml(self.directory)
    self.files = tuple(
      dataclasses.replace(file, skips_bad_records=skip_bad_records)
      for file in _list_files(self.directory, paths.to_path(directory))
    )
    self._by_group = _group_files(self.files)
    if not self._by_group:
      raise errors.CorpusError(
        'The corpus directory must contain monolingual or parallel text',
        got=', '.join(sorted(p.name for p in self.directory.iterdir()))
        or 'an empty directory',
        where=str(self.directory),
        fix='Add files mono/<language>.txt or parallel/<l1>-<l2>.tsv.',
      )
    _check_directions(self.files, self.directory)
    if not skip_bad_records:
      _check_files_have_text(self.files, self.directory)

  def __str__(self) -> str:
    return str(self.directory)

  @property
  def languages(self) -> tuple[str, ...]:
    """All languages with monolingual or parallel text, sorted."""
    codes = (code for _, _, codes in self._by_group for code in codes)
    return tuple(sorted(set(codes)))

  @property
  def pairs(self) -> tuple[tuple[str, str], ...]:
    """All language pairs (l1, l2) with parallel text in any split, sorted."""
    return tuple(
      sorted(
        {codes for kind, _, codes in self._by_group if kind is Kind.PARALLEL}
      )
    )

  @property
  def dictionaries(self) -> tuple[TextFile, ...]:
    """All dictionary files in the corpus directory."""
    return tuple(f for f in self.files if f.kind is Kind.DICTIONARY)

  @validation.validate_call
  def monolingual_languages(self, split: str = TRAIN) -> tuple[str, ...]:
    """Returns the languages with monolingual text in a split, sorted."""
    check_split(split)
    return tuple(
      codes[0] for codes in self._language_groups(Kind.MONOLINGUAL, split)
    )

  @validation.validate_call
  def parallel_pairs(self, split: str = TRAIN) -> tuple[tuple[str, str], ...]:
    """Returns the language pairs with parallel text in a split, sorted."""
    check_split(split)
    return tuple(self._language_groups(Kind.PARALLEL, split))

  @validation.validate_call
  def splits(self, *languages: str) -> tuple[str, ...]:
    """Returns the splits that contain text in a language or language pair.

    Args:
      *languages: One language code, or two in the order of the file name.
    """
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    return tuple(s for s in SPLITS if (kind, s, languages) in self._by_group)

  @validation.validate_call
  def monolingual(self, language: str, split: str = TRAIN) -> Iterator[Line]:
    r"""Yields a language's lines; blank lines become document boundaries.

    For example, the file `a\nb\n\nc` yields
    `('a', True), ('b', False), ('c', True)`. Each file starts a new document.

    Raises:
      CorpusError: If the language has no text, or if a line is not valid UTF-8.
        The error contains the file and the line.
    """
    for text_file in self._find_files(Kind.MONOLINGUAL, split, (language,)):
      yield from _mark_documents(read_texts(text_file))

  @validation.validate_call
  def parallel(
    self, first: str, second: str, split: str = TRAIN
  ) -> Iterator[Pair]:
    """Yields the sentence pairs in two languages, with `first` as the source.

    The order of the languages in the file name does not matter.

    Raises:
      CorpusError: If the language pair has no text, or if a line is malformed.
        The error contains the file and the line.
    """
    swap = (second, first) in self.pairs
    languages = (second, first) if swap else (first, second)
    for text_file in self._find_files(Kind.PARALLEL, split, languages):
      for source, target in read_texts(text_file):
        yield Pair(target, source) if swap else Pair(source, target)

  @validation.validate_call
  def count(self, *languages: str, split: str = TRAIN) -> int:
    """Returns the number of sentences or, for two languages, sentence pairs.

    This is the number N_i in the sampling rates p ∝ N^α. The files are read
    only once, and the count is cached.

    Args:
      *languages: One language code, or two in any order.
      split: Name of the corpus split.
    """
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    if kind is Kind.PARALLEL and languages[::-1] in self.pairs:
      languages = languages[::-1]
    files = self._find_files(kind, split, languages)
    return sum(
      _count_lines(f, corpus_files.fingerprint_file(f.path, self.directory))
      for f in files
    )

  @validation.validate_call
  def fingerprint(
    self, split: str | None = None
  ) -> tuple[corpus_files.Fingerprint, ...]:
    """Returns the fingerprints of the text files, optionally of one split."""
    if split is not None:
      check_split(split)
    return tuple(
      corpus_files.fingerprint_file(f.path, self.directory)
      for f in self.files
      if split in (None, f.split)
    )

  @validation.validate_call
  def group_fingerprint(
    self, *languages: str, split: str = TRAIN
  ) -> tuple[corpus_files.Fingerprint, ...]:
    """Returns the fingerprints of a language's or language pair's files."""
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    files = self._find_files(kind, split, languages)
    return tuple(
      corpus_files.fingerprint_file(f.path, self.directory) for f in files
    )

  @validation.validate_call
  def text_files(
    self, *languages: str, split: str = TRAIN
  ) -> tuple[pathlib.Path, ...]:
    """Returns the paths of a language's or language pair's files, in order.

    Args:
      *languages: One language code, or two in the order of the file name.
      split: Name of the corpus split.
    """
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    return tuple(f.path for f in self._find_files(kind, split, languages))

  def with_files(self, files: Sequence[TextFile]) -> 'Corpus':
    """Returns a copy of the corpus that contains only the given files."""
    corpus = copy.copy(self)
    corpus.files = tuple(files)
    corpus._by_group = _group_files(corpus.files)
    return corpus

  def validate(self) -> dict[str, int]:
    """Reads and checks every line of the corpus, and counts the sentences.

    Returns:
      The number of sentences for each folder and language or language pair,
      such as `{'mono/en': 9, 'valid/parallel/de-en': 2}`. For a dictionary, it
      is the number of entries.

    Raises:
      CorpusError: If a line is malformed. The error contains the file and the
        line.
    """
    counts: collections.Counter[str] = collections.Counter()
    for text_file in self.files:
      counts[_folder_label(text_file)] += _validate_file(text_file)
    return dict(sorted(counts.items()))

  def _language_groups(self, kind: Kind, split: str) -> list[Any]:
    """Returns the sorted languages or language pairs of a split's files."""
    return sorted(
      codes
      for group_kind, group_split, codes in self._by_group
      if (group_kind, group_split) == (kind, split)
    )

  def _find_files(
    self, kind: Kind, split: str, languages: tuple[str, ...]
  ) -> list[TextFile]:
    check_split(split)
    files = self._by_group.get((kind, split, languages))
    if files:
      return files

    name = '-'.join(languages)
    available = [
      '-'.join(codes) for codes in self._language_groups(kind, split)
    ]
    if len(languages) == 1:
      hint = name_suggestions.suggest_language(name, available)
    else:
      hint = name_suggestions.did_you_mean(name, available)
    raise errors.CorpusError(
      f'The {split} split of the corpus contains no {kind.name.lower()} text '
      f'in {name}',
      expected=', '.join(available) or None,
      where=str(self.directory),
      fix=hint,
    )


def check_complete(directory: pathlib.Path) -> None:
  """Raises a CorpusError if a command has not finished writing a corpus."""
  marker = directory / INCOMPLETE_FILE
  if marker.exists():
    command = marker.read_text(encoding='utf-8').strip()
    raise errors.CorpusError(
      'The corpus directory is incomplete, because the command that writes it '
      'is still running or was interrupted',
      where=str(directory),
      fix=f'Run the same command `xlflax {command}` again to write the missing '
      'files.',
    )
  records = sorted(path.name for path in directory.glob(_SHARD_RECORDS))
  if records:
    ellipsis = ', …' if len(records) > 3 else ''
    raise errors.CorpusError(
      'The corpus directory is incomplete, because its shards were not merged',
      got=', '.join(records[:3]) + ellipsis,
      where=str(directory),
      fix='Run the same `xlflax preprocess` command without --shard_index and '
      '--num_shards to write the missing files and merge the records of the '
      'shards.',
    )


def check_split(split: str) -> None:
  """Raises a CorpusError if a split is not train, validation or test."""
  if split not in SPLITS:
    raise errors.CorpusError(
      'Corpus directories do not have a split with the requested name',
      got=split,
      expected=', '.join(SPLITS),
      fix=name_suggestions.suggest_split(split, SPLITS)
      or 'Use one of the expected names. The folder of the validation split is '
      'valid/.',
    )


def relative_path(file: TextFile) -> str:
  """Returns the path of a file in a corpus directory, such as `mono/en.txt`.

  If the file's lines are divided into splits, the path is in the folder of the
  split, such as `valid/mono/en.txt`.
  """
  path = pathlib.Path(FOLDERS[file.split], file.kind.value, file.path.name)
  return path.as_posix()


def _mark_documents(lines: Iterable[tuple[str, ...]]) -> Iterator[Line]:
  """Yields the lines with text, and whether they start a document."""
  starts_document = True
  for (text,) in lines:
    if text:
      yield Line(text, starts_document)
    starts_document = not text


def handler_of_bad_records(file: TextFile) -> OnBadRecord | None:
  """Returns a handler that ignores bad records, or None to raise errors."""
  return bad_records.ignore if file.skips_bad_records else None


def read_texts(
  file: TextFile,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[tuple[str, ...]]:
  """Yields the text, or source and target, of each line in a corpus file.

  A blank line, which ends a document of monolingual text, is yielded as
  `('',)`.

  Args:
    file: Monolingual or parallel file.
    on_bad_record: Function that is called with the error of each line or record
      that cannot be used. If None, `file.skips_bad_records` determines whether
      the error is ignored or raised.
    on_dropped_record: Function that is called for each valid record that is
      dropped. Its argument is the reason (`record_reader.read_record_lines`).

  Raises:
    BadRecordError: If a line or record is bad and is not skipped.
  """
  texts = _read_all_texts(
    file, on_bad_record or handler_of_bad_records(file), on_dropped_record
  )
  if file.line_splits is None:
    return texts
  return _select_lines(texts, file.line_splits.mask(file.split))


def _select_lines(
  lines: Iterable[tuple[str, ...]], mask: np.ndarray
) -> Iterator[tuple[str, ...]]:
  """Yields the selected lines that contain text, and document boundaries."""
  index = 0
  follows_selected = False
  for texts in lines:
    if texts[0]:
      is_selected = bool(mask[index])
      index += 1
      if is_selected:
        yield texts
      follows_selected |= is_selected
    elif follows_selected:
      yield texts
      follows_selected = False


def _read_all_texts(
  file: TextFile,
  on_bad_record: OnBadRecord | None,
  on_dropped_record: OnDroppedRecord | None,
) -> Iterator[tuple[str, ...]]:
  """Yields the texts of all lines in a file; see `read_texts`."""
  if file.kind is Kind.PARALLEL:
    yield from read_parallel(
      file.path,
      on_bad_record=on_bad_record,
      on_dropped_record=on_dropped_record,
    )
    return
  lines = line_reader.read_text(
    file.path, on_bad_record=on_bad_record, on_dropped_record=on_dropped_record
  )
  decode = bad_records.skip_bad_records(line_reader.decode_line, on_bad_record)
  for number, line in lines:
    text = decode(line, file.path, number)
    if text is not None:
      yield (text,)


def read_monolingual(
  path: pathlib.Path,
  span: line_reader.Span | None = None,
  on_bad_record: OnBadRecord | None = None,
) -> Iterator[Line]:
  """Yields the lines of a single file; see `Corpus.monolingual`.

  Args:
    path: Path of the file.
    span: Range of bytes. Only lines that start in this range are read. If None,
      all lines are read.
    on_bad_record: Function that is called with the error of each line or record
      that cannot be used. If None, the error is raised.
  """
  decode = bad_records.skip_bad_records(line_reader.decode_line, on_bad_record)
  starts_document = span is None or line_reader.follows_blank(path, span.start)
  with line_reader.absolute_line_numbers(path, span):
    for number, line in _read_lines(path, span, on_bad_record=on_bad_record):
      text = decode(line, path, number)
      if text:
        yield Line(text, starts_document)
      if text is not None:
        starts_document = not text


def read_parallel(
  path: pathlib.Path,
  span: line_reader.Span | None = None,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[Pair]:
  """Yields a file's sentence pairs, with the texts in the file's column order.

  Args:
    path: Path of the file.
    span: Range of bytes. Only lines that start in this range are read. If None,
      all lines are read.
    on_bad_record: Function that is called with the error of each line or record
      that cannot be used. If None, the error is raised.
    on_dropped_record: Function that is called for each valid record that is
      dropped. Its argument is the reason (`record_reader.read_record_lines`).
  """
  lines = _read_lines(
    path,
    span,
    strip=line_reader.PAIR_SPACES,
    on_bad_record=on_bad_record,
    on_dropped_record=on_dropped_record,
  )
  split = bad_records.skip_bad_records(line_reader.split_columns, on_bad_record)
  with line_reader.absolute_line_numbers(path, span):
    for number, line in lines:
      columns = split(line, path, number)
      if columns is not None:
        yield Pair(*columns)


def _read_lines(
  path: pathlib.Path,
  span: line_reader.Span | None,
  *,
  strip: bytes | None = None,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[tuple[int, bytes]]:
  """Yields (line number, line) of a file or of a range of its bytes."""
  if span is None:
    return line_reader.read_text(
      path,
      strip=strip,
      on_bad_record=on_bad_record,
      on_dropped_record=on_dropped_record,
    )
  return line_reader.read_span(path, span, strip=strip)


@functools.cache
def _count_lines(file: TextFile, fingerprint: corpus_files.Fingerprint) -> int:
  """Returns the number of lines with text in a file."""
  del fingerprint  # Part of the cache key, so that a changed file is recounted.
  if file.skips_bad_records or file.line_splits:
    return sum(1 for texts in read_texts(file) if texts[0])
  return sum(1 for _, line in line_reader.read_text(file.path) if line)


def is_corpus_directory(directory: pathlib.Path) -> bool:
  """Returns whether a directory contains the text folders of a corpus."""
  return any(
    (directory / folder / name).is_dir()
    for folder in FOLDERS.values()
    for name in ('mono', 'parallel')
  )


def suggest_parent(directory: str | pathlib.Path) -> str | None:
  """Suggests the parent directory if the path is a split folder of a corpus.

  For example, the result for `c/test` is 'Did you mean c?'.

  Args:
    directory: Path that was passed as a corpus directory.

  Returns:
    The suggestion, or None if the path is not a split folder of a corpus.
  """
  directory = paths.to_path(directory)
  if paths.is_bucket(directory) or directory.name not in FOLDERS.values():
    return None
  parent = directory.parent
  return f'Did you mean {parent}?' if is_corpus_directory(parent) else None


def _suggest_token_cache(
  directory: pathlib.Path, given_path: pathlib.Path
) -> str | None:
  """Returns a hint for a token cache that was passed as a corpus directory."""
  if is_corpus_directory(directory) or not (directory / _TOKEN_CACHE).is_file():
    return None
  return (
    f'The directory {given_path} is a token cache. Pass the directory of the '
    'corpus files as the corpus directory. The option --cache of `xlflax '
    'train` takes the token cache.'
  )


def _list_files(
  directory: pathlib.Path, given_path: pathlib.Path
) -> tuple[TextFile, ...]:
  """Lists the files of a corpus directory.

  Args:
    directory: Corpus directory on the local disk.
    given_path: Path that the user passed, on disk or in a bucket, for the error
      message.

  Raises:
    CorpusError: If files have unknown names. The error lists all of them.
  """
  for entry in _visible_entries(directory):
    if entry.name in _TOP_LEVEL_FOLDERS and entry.is_dir():
      continue
    if entry.is_dir() or not entry.name.upper().startswith(IGNORED):
      raise errors.CorpusError(
        'The corpus directory contains an unexpected file or folder',
        got=entry.name,
        expected=', '.join(f'{name}/' for name in _TOP_LEVEL_FOLDERS),
        where=str(entry),
        fix=name_suggestions.suggest_corpus_directory(given_path)
        or _suggest_token_cache(directory, given_path)
        or 'Rename the file or folder, or move it to a different directory.',
      )
  files: list[TextFile] = []
  name_errors: list[errors.CorpusError] = []
  for split, folder in FOLDERS.items():
    split_files, split_errors = _list_split(directory / folder, split)
    files += split_files
    name_errors += split_errors
  if len(name_errors) == 1:
    raise name_errors[0]
  csv_errors = [
    error
    for error in name_errors
    if corpus_files.is_csv(pathlib.Path(str(error.where)))
  ]
  if name_errors:
    names = [
      pathlib.Path(str(error.where)).relative_to(directory).as_posix()
      for error in name_errors
    ]
    ellipsis = ', …' if len(names) > _MAX_LISTED_NAMES else ''
    raise errors.CorpusError(
      f'The names of {len(names)} files in the corpus directory are not valid. '
      f'Language codes must consist of {corpus_files.LANGUAGE_RULE}',
      got=', '.join(names[:_MAX_LISTED_NAMES]) + ellipsis,
      expected=name_errors[0].expected,
      where=str(directory),
      fix=f'{csv_errors[0].fix} Convert other CSV files in the same way.'
      if csv_errors
      else 'Rename the files, or move them to a different directory.',
    )
  return tuple(files)


def _list_split(
  folder: pathlib.Path, split: str
) -> tuple[list[TextFile], list[errors.CorpusError]]:
  """Returns the files of a split, and an error for each unknown file name."""
  kinds = [Kind.MONOLINGUAL, Kind.PARALLEL]
  if split == TRAIN:
    kinds.append(Kind.DICTIONARY)
  elif folder.is_dir():
    for entry in _visible_entries(folder):
      if entry.name not in ('mono', 'parallel'):
        raise errors.CorpusError(
          f'The folder {folder.name}/ of a corpus directory must contain only '
          'the folders mono/ and parallel/',
          got=entry.name,
          where=str(entry),
          fix='Rename the file or folder, or move it to a different directory.',
        )
  files, name_errors = [], []
  for kind in kinds:
    if not (folder / kind.value).is_dir():
      continue
    entries = _visible_entries(folder / kind.value)
    for path in corpus_files.drop_second_files(entries):
      try:
        files.append(corpus_files.parse_name(path, kind, split))
      except errors.CorpusError as error:
        name_errors.append(error)
  return files, name_errors


def _visible_entries(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))


def _group_files(files) -> dict[tuple, list[TextFile]]:
  groups = collections.defaultdict(list)
  for text_file in files:
    if text_file.kind is not Kind.DICTIONARY:
      key = (text_file.kind, text_file.split, text_file.languages)
      groups[key].append(text_file)
  return dict(groups)


def _check_directions(
  files: Sequence[TextFile], directory: pathlib.Path
) -> None:
  """Raises a CorpusError if a language pair has files for both directions."""
  files_by_pair = collections.defaultdict(list)
  for file in files:
    if file.kind is Kind.PARALLEL:
      files_by_pair[file.languages].append(file)
  for first, second in sorted(files_by_pair):
    opposite = second, first
    if first < second and opposite in files_by_pair:
      raise _two_directions_error(
        files_by_pair[first, second],
        files_by_pair[opposite],
        _trigram_profiles(files, (first, second)),
        directory,
      )


def _two_directions_error(
  files: Sequence[TextFile],
  opposite_files: Sequence[TextFile],
  profiles: Mapping[str, text_language.Counts],
  directory: pathlib.Path,
) -> errors.CorpusError:
  """Returns the error for a language pair with files for both directions.

  Args:
    files: Parallel files of one direction, such as `en-de.tsv`.
    opposite_files: Parallel files of the opposite direction, such as
      `de-en.tsv`.
    profiles: Character trigram counts by language, for languages with
      monolingual text.
    directory: Directory of the corpus.
  """
  first, second = files[0].languages

  def format_files(files):
    names = [file.path.relative_to(directory).as_posix() for file in files]
    return name_suggestions.format_names(names)

  hints = []
  for group in (files, opposite_files):
    swapped = [file for file in group if _has_swapped_columns(file, profiles)]
    if swapped:
      source, target = group[0].languages
      hints.append(
        f'The text of {format_files(swapped)} suggests that the first column '
        f'is in {target} and the second column is in {source}. If this is '
        f'correct, only replace {source}-{target} with {target}-{source} in the '
        'name.'
      )
  hints.append(
    'Use the same order of the languages in all names. If the columns of a '
    'file are not in the order of its name, only rename the file. Otherwise, '
    f'swap the columns of the {second}-{first} files and rename them to '
    f'{first}-{second}.'
  )
  return errors.CorpusError(
    f'The corpus must not contain files for both {first}-{second} and '
    f'{second}-{first}. Files for one direction are sufficient, because the '
    'two columns can be read in either order',
    got=f'{format_files(files)} for {first}-{second}; '
    f'{format_files(opposite_files)} for {second}-{first}',
    where=str(directory),
    fix=' '.join(hints),
  )


def _trigram_profiles(
  files: Iterable[TextFile], languages: Collection[str]
) -> dict[str, text_language.Counts]:
  """Returns trigram counts of the first monolingual text in each language."""
  profiles: dict[str, text_language.Counts] = {}
  for file in files:
    if file.kind is not Kind.MONOLINGUAL or file.languages[0] not in languages:
      continue
    # A file that cannot be read must not hide the error for the language pair.
    with contextlib.suppress(errors.CorpusError):
      lines = read_monolingual(file.path, on_bad_record=bad_records.ignore)
      text = ' '.join(
        line.text for line in itertools.islice(lines, _NUM_SAMPLED_LINES)
      )
      counts = text_language.count_trigrams(text)
      if sum(counts.values()) >= text_language.MIN_TRIGRAMS:
        profiles.setdefault(file.languages[0], counts)
  return profiles


def _has_swapped_columns(
  file: TextFile, profiles: Mapping[str, text_language.Counts]
) -> bool:
  """Returns whether the columns seem to be in the opposite order of the name."""
  try:
    pairs = read_parallel(file.path, on_bad_record=bad_records.ignore)
    columns = [
      ' '.join(column)
      for column in zip(
        *itertools.islice(pairs, _NUM_SAMPLED_LINES), strict=True
      )
    ]
  except errors.CorpusError:
    return False
  return bool(columns) and text_language.are_columns_swapped(
    file.languages, columns, profiles
  )


def _check_files_have_text(
  files: Sequence[TextFile], directory: pathlib.Path
) -> None:
  """Raises a single CorpusError for all files that contain no text."""
  empty_files = [file for file in files if not _has_text(file)]
  if len(empty_files) == 1:
    [file] = empty_files
    raise errors.CorpusError(
      f'The corpus file for {"-".join(file.languages)} contains no text',
      where=str(file.path),
      fix='Add text to the file, or delete it.',
    )
  if empty_files:
    names = [
      file.path.relative_to(directory).as_posix() for file in empty_files
    ]
    raise errors.CorpusError(
      f'{len(names)} corpus files contain no text',
      got=name_suggestions.format_names(names),
      where=str(directory),
      fix='Add text to the files, or delete them.',
    )


def _has_text(file: TextFile) -> bool:
  return any(line for _, line in line_reader.read_text(file.path))


def _folder_label(text_file: TextFile) -> str:
  folder = FOLDERS[text_file.split]
  prefix = '' if folder == '.' else f'{folder}/'
  return f'{prefix}{text_file.kind.value}/{"-".join(text_file.languages)}'


def _validate_file(text_file: TextFile) -> int:
  if text_file.kind is Kind.DICTIONARY:
    return line_reader.check_dictionary(text_file.path)
  lines: Iterator[Line | Pair]
  if text_file.kind is Kind.MONOLINGUAL:
    lines = read_monolingual(text_file.path)
  else:
    lines = read_parallel(text_file.path)
  return sum(1 for _ in lines)
