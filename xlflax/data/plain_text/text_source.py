"""The text of a task as rows: what it is read from, and how."""

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
Prints = tuple[corpus_files.Fingerprint, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRows:
  """Rows of texts and marks, in order, by split.

  Attributes:
    read: function of a split that gives the rows as tuples; may raise an
      XlflaxError.
    columns: their names.
    splits: that there are.
    count: function of a split: its rows; asked only when it is needed.
    fingerprint: function of a split that gives (path, size, time) of its
      files, for caches to notice changed text.
    origins: function of a split that gives the paths of these files; None: as
      `fingerprint` names them.
    files: function of a split that gives the paths of its files, in the order
      of `fingerprint`; None where the rows are not those of the files, one
      after the other.
    read_file: function of a path and of the part of it to read (None: all),
      where `files` is given.
  """

  read: Callable[[str], Iterable]
  columns: Sequence[str]
  splits: Sequence[str]
  count: Callable[[str], int]
  fingerprint: Callable[[str], Prints]
  origins: Callable[[str], Sequence[pathlib.Path]] | None = None
  files: Callable[[str], Sequence[pathlib.Path]] | None = None
  read_file: Callable[..., Iterable] | None = None

  @property
  def names(self) -> list[str]:
    """The columns as a task calls them: its text is `targets`."""
    return ['targets' if name == TEXT else name for name in self.columns]

  def paths(self, split: str) -> list[pathlib.Path]:
    """Where the files of `fingerprint` lie."""
    if self.origins:
      return list(self.origins(split))
    return [pathlib.Path(file.path) for file in self.fingerprint(split)]

  def repeated(self, copies: int) -> 'TextRows':
    """The rows `copies` times, one copy after the other."""

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
  """Lines of one language: `text` and `starts_document`."""
  return _of_files(
    corpus,
    (language,),
    read=lambda split: corpus.monolingual(language, split),
    columns=(TEXT, STARTS),
    read_file=read_monolingual,
  )


def parallel_rows(corpus: Corpus, languages: tuple[str, str]) -> TextRows:
  """Pairs of two languages: `inputs` and `targets`."""
  rows = _of_files(
    corpus,
    languages,
    read=lambda split: corpus.parallel(*languages, split=split),
    columns=('inputs', 'targets'),
    read_file=read_parallel,
  )
  if tuple(languages) in corpus.pairs:
    return rows
  return dataclasses.replace(rows, files=None)


def _of_files(corpus: Corpus, languages: Sequence[str], **others) -> TextRows:
  def files(split: str) -> tuple[pathlib.Path, ...]:
    return corpus.text_files(*languages, split=split)

  return TextRows(
    splits=corpus.splits(*languages),
    count=lambda split: corpus.count(*languages, split=split),
    fingerprint=lambda split: corpus.group_fingerprint(*languages, split=split),
    origins=files,
    files=files,
    **others,
  )


def iterate_blocks(
  rows: Iterable[tuple], names: Sequence[str], size: int
) -> Iterator[dict[str, list]]:
  """Columns of `size` rows at a time; the last ones may be fewer."""
  rows = iter(rows)
  while block := list(itertools.islice(rows, size)):
    yield dict(zip(names, map(list, zip(*block, strict=True)), strict=True))
