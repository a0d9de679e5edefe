"""A corpus directory: a user's own text as plain files; no TensorFlow.

```
DIR/mono/<language>[.anything].txt[.gz|.zst]   one sentence or paragraph a line,
                                               a blank line ends a document
DIR/parallel/<l1>-<l2>[.anything].tsv[.gz|.zst]  sentence<TAB>translation
DIR/dictionaries/<l1>-<l2>.tsv                 word<TAB>translation[<TAB>weight]
DIR/valid/{mono,parallel}/  DIR/test/{mono,parallel}/   the same two kinds
```

In place of .txt and .tsv, files of records may lie there (`records`). Several
files of one language or pair are read in the order of their names.
"""

import collections
import functools
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from xlflax.data.corpus import corpus_files, record_formats
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.storage import bucket_staging
from xlflax.utils import errors, name_suggestions, validation

TRAIN = 'train'
VALIDATION = 'validation'
TEST = 'test'
SPLITS = (TRAIN, VALIDATION, TEST)
FOLDERS = {TRAIN: '.', VALIDATION: 'valid', TEST: 'test'}
_TOP = ('mono', 'parallel', 'dictionaries', 'valid', 'test')
IGNORED = ('README', 'LICENSE', 'LICENCE', 'NOTICE', 'CORPUS.')


class Line(NamedTuple):
  """A line of monolingual text, and whether a document begins with it."""

  text: str
  starts_document: bool


class Pair(NamedTuple):
  """A sentence and its translation."""

  source: str
  target: str


class Corpus:
  """The validated list of a corpus directory's files, and their readers.

  The names of all files and the first text of each are checked at once; every
  other line is checked when it is read, or by `validate`.

  Raises:
    CorpusError: missing directory, no text in it, unknown names, files without
      text, or a pair given in both directions.
  """

  OPENED_BY = 'xlflax.data.Corpus({})'

  @validation.validate_call
  def __init__(self, directory: validation.FilePath):
    self.directory = bucket_staging.stage_input(directory)
    if not self.directory.is_dir():
      raise errors.CorpusError(
        'The corpus directory does not exist',
        got=str(directory),
        expected='a directory with mono/ or parallel/',
      )
    record_formats.check_corpus_toml(self.directory)
    self.files = _list_files(self.directory)
    self._by_group = _group(self.files)
    if not self._by_group:
      raise errors.CorpusError(
        'The corpus directory holds neither monolingual nor parallel text',
        got=', '.join(sorted(p.name for p in self.directory.iterdir()))
        or 'nothing',
        expected='mono/<language>.txt or parallel/<l1>-<l2>.tsv',
        where=str(self.directory),
      )
    _check_directions(self.pairs, self.directory)
    for text_file in self.files:
      _check_has_text(text_file)

  @property
  def languages(self) -> tuple[str, ...]:
    """Every language of monolingual or parallel text, sorted."""
    codes = (code for _, _, codes in self._by_group for code in codes)
    return tuple(sorted(set(codes)))

  @property
  def pairs(self) -> tuple[tuple[str, str], ...]:
    """Every pair (l1, l2) of parallel text in any split, sorted."""
    return tuple(
      sorted(
        {codes for kind, _, codes in self._by_group if kind is Kind.PARALLEL}
      )
    )

  @property
  def dictionaries(self) -> tuple[TextFile, ...]:
    """The dictionary files."""
    return tuple(f for f in self.files if f.kind is Kind.DICTIONARY)

  @validation.validate_call
  def monolingual_languages(self, split: str = TRAIN) -> tuple[str, ...]:
    """Languages with monolingual text in `split`, sorted."""
    check_split(split)
    return tuple(codes[0] for codes in self._codes(Kind.MONOLINGUAL, split))

  @validation.validate_call
  def parallel_pairs(self, split: str = TRAIN) -> tuple[tuple[str, str], ...]:
    """Pairs with parallel text in `split`, sorted."""
    check_split(split)
    return tuple(self._codes(Kind.PARALLEL, split))

  @validation.validate_call
  def splits(self, *languages: str) -> tuple[str, ...]:
    """Splits in which a language, or a pair as it is filed, has text."""
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    return tuple(s for s in SPLITS if (kind, s, languages) in self._by_group)

  @validation.validate_call
  def monolingual(self, language: str, split: str = TRAIN) -> Iterator[Line]:
    """Yields the lines of a language; blank lines become document borders.

    Before: the file `a\\nb\\n\\nc`; after: `('a', True), ('b', False),
    ('c', True)`. Each file begins a document.

    Raises:
      CorpusError: no such text, or a line that is not UTF-8 (file:line).
    """
    for text_file in self._find(Kind.MONOLINGUAL, split, (language,)):
      yield from read_monolingual(text_file.path)

  @validation.validate_call
  def parallel(
    self, first: str, second: str, split: str = TRAIN
  ) -> Iterator[Pair]:
    """Yields the pairs of two languages, `first` as source in either order.

    Raises:
      CorpusError: no such text, or a malformed line (file:line).
    """
    filed = (first, second)
    swap = (second, first) in self.pairs
    if swap:
      filed = (second, first)
    for text_file in self._find(Kind.PARALLEL, split, filed):
      for pair in read_parallel(text_file.path):
        yield Pair(pair.target, pair.source) if swap else pair

  @validation.validate_call
  def count(self, *languages: str, split: str = TRAIN) -> int:
    """Sentences of a language, or of a pair: N_i of the sampling p ∝ N^α.

    Counted by one pass over the files, then remembered.
    """
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    if kind is Kind.PARALLEL and languages[::-1] in self.pairs:
      languages = languages[::-1]
    files = self._find(kind, split, languages)
    return sum(
      _count(f.path, corpus_files.fingerprint_file(f.path, self.directory))
      for f in files
    )

  @validation.validate_call
  def fingerprint(
    self, split: str | None = None
  ) -> tuple[corpus_files.Fingerprint, ...]:
    """Returns the fingerprint of every text file (of a split)."""
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
    """The fingerprints of the files of one language, or of one pair."""
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    files = self._find(kind, split, languages)
    return tuple(
      corpus_files.fingerprint_file(f.path, self.directory) for f in files
    )

  @validation.validate_call
  def text_files(
    self, *languages: str, split: str = TRAIN
  ) -> tuple[pathlib.Path, ...]:
    """The files of one language, or of one pair as it is filed, in order."""
    kind = Kind.PARALLEL if len(languages) == 2 else Kind.MONOLINGUAL
    return tuple(f.path for f in self._find(kind, split, languages))

  def validate(self) -> dict[str, int]:
    """Reads and checks every line; sentences by folder and language or pair.

    Returns:
      For instance `{'mono/en': 9, 'valid/parallel/de-en': 2}`; dictionaries
      count their entries.

    Raises:
      CorpusError: the first malformed line (file:line).
    """
    counts: collections.Counter[str] = collections.Counter()
    for text_file in self.files:
      counts[_label(text_file)] += _validate(text_file)
    return dict(sorted(counts.items()))

  def _codes(self, kind: Kind, split: str) -> list[Any]:
    """The languages of each text of a kind in a split."""
    groups = [
      codes for k, s, codes in self._by_group if (k, s) == (kind, split)
    ]
    return sorted(groups)

  def _find(
    self, kind: Kind, split: str, languages: tuple[str, ...]
  ) -> list[TextFile]:
    check_split(split)
    files = self._by_group.get((kind, split, languages))
    if not files:
      available = ['-'.join(codes) for codes in self._codes(kind, split)]
      raise errors.CorpusError(
        f'The corpus has no {kind.value} text of {"-".join(languages)} in '
        f'its {split} split',
        expected=', '.join(available) or None,
        where=str(self.directory),
        fix=name_suggestions.suggest_language('-'.join(languages), available)
        if len(languages) == 1
        else name_suggestions.did_you_mean('-'.join(languages), available),
      )
    return files


def check_split(split: str) -> None:
  """Raises CorpusError for a split that no corpus directory has."""
  if split not in SPLITS:
    raise errors.CorpusError(
      'Unknown split',
      got=split,
      expected=', '.join(SPLITS),
      fix=name_suggestions.did_you_mean(split, SPLITS)
      or 'write its name as Python has it; the folder of validation is valid/',
    )


def read_monolingual(
  path: pathlib.Path, span: corpus_lines.Span | None = None
) -> Iterator[Line]:
  """Yields the lines of one file; see `Corpus.monolingual`.

  Args:
    path: of the file.
    span: reads the lines that begin in this part of it.
  """
  starts_document = span is None or corpus_lines.follows_blank(path, span.start)
  with corpus_lines.absolute_numbers(path, span):
    for number, line in _numbered(path, span):
      if line:
        yield Line(
          corpus_lines.decode_line(line, path, number), starts_document
        )
      starts_document = not line


def read_parallel(
  path: pathlib.Path, span: corpus_lines.Span | None = None
) -> Iterator[Pair]:
  """Yields the pairs of one file, as they are in its two columns."""
  with corpus_lines.absolute_numbers(path, span):
    for number, line in _numbered(path, span):
      yield Pair(*corpus_lines.split_columns(line, path, number))


def _numbered(
  path: pathlib.Path, span: corpus_lines.Span | None
) -> Iterator[tuple[int, bytes]]:
  if span is None:
    return corpus_lines.read_text(path)
  return corpus_lines.read_span(path, span)


@functools.cache
def _count(path: pathlib.Path, fingerprint: corpus_files.Fingerprint) -> int:
  del fingerprint  # A changed file is another key.
  return sum(1 for _, line in corpus_lines.read_text(path) if line)


def _list_files(directory: pathlib.Path) -> tuple[TextFile, ...]:
  for entry in _entries(directory):
    if entry.name in _TOP and entry.is_dir():
      continue
    if entry.is_dir() or not entry.name.upper().startswith(IGNORED):
      raise errors.CorpusError(
        'Unknown name in a corpus directory',
        got=entry.name,
        expected=', '.join(f'{name}/' for name in _TOP),
        where=str(entry),
        fix='rename it or move it elsewhere',
      )
  files = []
  for split, folder in FOLDERS.items():
    files += _list_kinds(directory / folder, split)
  return tuple(files)


def _list_kinds(folder: pathlib.Path, split: str) -> list[TextFile]:
  kinds = [Kind.MONOLINGUAL, Kind.PARALLEL]
  if split == TRAIN:
    kinds.append(Kind.DICTIONARY)
  elif folder.is_dir():
    for entry in _entries(folder):
      if entry.name not in ('mono', 'parallel'):
        raise errors.CorpusError(
          'Unknown name in a corpus directory',
          got=entry.name,
          expected='mono/ or parallel/',
          where=str(entry),
        )
  return [
    corpus_files.parse_name(path, kind, split)
    for kind in kinds
    if (folder / kind.value).is_dir()
    for path in corpus_files.without_seconds(_entries(folder / kind.value))
  ]


def _entries(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))


def _group(files) -> dict[tuple, list[TextFile]]:
  groups = collections.defaultdict(list)
  for text_file in files:
    if text_file.kind is not Kind.DICTIONARY:
      key = (text_file.kind, text_file.split, text_file.languages)
      groups[key].append(text_file)
  return dict(groups)


def _check_directions(pairs, directory: pathlib.Path) -> None:
  for first, second in pairs:
    if first < second and (second, first) in pairs:
      raise errors.CorpusError(
        'The same pair is given in both directions',
        got=f'{first}-{second} and {second}-{first}',
        expected='one direction; either order of sides can be read from it',
        where=str(directory),
        fix=f'swap the columns of the {second}-{first} files and rename '
        f'them {first}-{second}.<name>.tsv, or delete them',
      )


def _check_has_text(text_file: TextFile) -> None:
  lines = corpus_lines.read_text(text_file.path)
  if not any(line for _, line in lines):
    name = (
      'Language' if len(text_file.languages) == 1 else 'Pair'
    ) + f' {"-".join(text_file.languages)} without text'
    raise errors.CorpusError(
      name,
      got='a file with no line of text',
      where=str(text_file.path),
      expected='at least one line',
      fix='fill or delete the file',
    )


def _label(text_file: TextFile) -> str:
  folder = FOLDERS[text_file.split]
  prefix = '' if folder == '.' else f'{folder}/'
  return f'{prefix}{text_file.kind.value}/{"-".join(text_file.languages)}'


def _validate(text_file: TextFile) -> int:
  if text_file.kind is Kind.DICTIONARY:
    return corpus_lines.check_dictionary(text_file.path)
  read = (
    read_monolingual if text_file.kind is Kind.MONOLINGUAL else read_parallel
  )
  return sum(1 for _ in read(text_file.path))
