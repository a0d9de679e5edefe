"""Sources of text for tasks. Each row of a source is an example."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from xlflax.data.corpus import corpus_files
from xlflax.data.corpus.corpus_directory import (
  Corpus,
  read_monolingual,
  read_parallel,
)

TEXT, STARTS = 'text', 'starts_document'
Fingerprints = tuple[corpus_files.Fingerprint, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRows:
  """Source that provides a task's texts as rows, with one example per row.

  Attributes:
    read: Function that returns the rows in a split as tuples. It may raise an
      XlflaxError.
    columns: Names of the columns, such as `text` and `starts_document`.
    splits: Names of the splits that the source has.
    count: Function that returns the number of rows in a split. It is called
      only if the number is required.
    fingerprint: Function that returns the fingerprints of a split's files,
      which token caches use to detect changed text.
    origins: Function that returns the paths of the files in a split. If None,
      the paths in the fingerprints are used.
    files: Function that returns the paths of a split's files, in the order of
      `fingerprint`. None if the rows are not the concatenated rows of the
      files.
    read_file: Function that returns the rows of a file, given its path and a
      span of bytes (None for the entire file). It is required if `files` is not
      None.
  """

  read: Callable[[str], Iterable]
  columns: Sequence[str]
  splits: Sequence[str]
  count: Callable[[str], int]
  fingerprint: Callable[[str], Fingerprints]
  origins: Callable[[str], Sequence[pathlib.Path]] | None = None
  files: Callable[[str], Sequence[pathlib.Path]] | None = None
  read_file: Callable[..., Iterable] | None = None

  @property
  def names(self) -> list[str]:
    """Feature names: the column names, with `targets` in place of `text`."""
    return ['targets' if name == TEXT else name for name in self.columns]

  def paths(self, split: str) -> list[pathlib.Path]:
    """Returns the paths of the text files from which a split is read.

    These are the files that the fingerprints describe, unless `origins` is set.
    """
    if self.origins:
      return list(self.origins(split))
    return [pathlib.Path(file.path) for file in self.fingerprint(split)]

  def repeated(self, copies: int) -> 'TextRows':
    """Returns a source that yields all rows `copies` times in succession."""

    def read(split: str) -> Iterator:
      for _ in range(copies):
        yield from self.read(split)

    if copies == 1:
      return self
    return dataclasses.replace(
      self,
      read=read,
      count=lambda split: copies * self.count(split),
      origins=self.paths,
      files=None,
      read_file=None,
    )


def monolingual_rows(corpus: Corpus, language: str) -> TextRows:
  """Returns a source with a language's lines and document boundaries."""
  return _corpus_rows(
    corpus,
    (language,),
    read=lambda split: corpus.monolingual(language, split),
    columns=(TEXT, STARTS),
    read_file=read_monolingual,
  )


def parallel_rows(corpus: Corpus, languages: tuple[str, str]) -> TextRows:
  """Returns a source with the sentence pairs in two languages."""
  rows = _corpus_rows(
    corpus,
    languages,
    read=lambda split: corpus.parallel(*languages, split=split),
    columns=('inputs', 'targets'),
    read_file=read_parallel,
  )
  if tuple(languages) in corpus.pairs:
    return rows
  return dataclasses.replace(rows, files=None)


def _corpus_rows(
  corpus: Corpus, languages: Sequence[str], **reader_fields
) -> TextRows:
  def files(split: str) -> tuple[pathlib.Path, ...]:
    return corpus.text_files(*languages, split=split)

  return TextRows(
    splits=corpus.splits(*languages),
    count=lambda split: corpus.count(*languages, split=split),
    fingerprint=lambda split: corpus.group_fingerprint(*languages, split=split),
    origins=files,
    files=files,
    **reader_fields,
  )


def iterate_blocks(
  rows: Iterable[tuple], names: Sequence[str], size: int
) -> Iterator[dict[str, list]]:
  """Groups rows into blocks, each a dict from column names to values.

  Args:
    rows: Rows that have one value for each column.
    names: Names of the columns.
    size: Number of rows in each block. The last block may be shorter.
  """
  rows = iter(rows)
  while block := list(itertools.islice(rows, size)):
    yield dict(zip(names, map(list, zip(*block, strict=True)), strict=True))
