"""Sentence pairs from plain files: two columns, or two aligned files."""

import dataclasses
import itertools
from collections.abc import Mapping

from xlflax import errors, registry
from xlflax.data.labelled.readers import parallel
from xlflax.evaluation import sources


@registry.register('file_pairs')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FilePairs(sources.PairSource):
  """Translations in files; no corpus directory is needed.

  Attributes:
    files: pair, such as 'en-ja', to a file of columns separated by tabs, or to
      two files with a translation in the same line.
    columns: of the pair's two languages in the former.
    max_pairs: the first so many of a pair; None: all.
  """

  files: Mapping[str, str | tuple[str, str]]
  columns: tuple[int, int] = (0, 1)
  max_pairs: int | None = None

  def __post_init__(self):
    for name in self.files:
      if len(name.split('-')) != 2:
        raise errors.ConfigError(
          'A pair of languages is named wrongly',
          got=name,
          where='FilePairs.files',
          expected='two codes such as en-ja',
        )

  def pairs(self) -> tuple[sources.Pair, ...]:
    found = tuple(
      (first, second)
      for first, second in (name.split('-') for name in self.files)
    )
    return sources.chosen_pairs(found, None, 'FilePairs.files')

  def load(self, pair: sources.Pair) -> sources.PairedText:
    paths = self.files['-'.join(pair)]
    read = (
      parallel.read_tsv(paths, columns=self.columns)
      if isinstance(paths, str)
      else parallel.read_lines(paths)
    )
    taken = list(itertools.islice(read, self.max_pairs))
    return sources.PairedText(
      [pair.source for pair in taken], [pair.target for pair in taken]
    )
