"""Sentence pairs from files as Tatoeba's test sets come in."""

import dataclasses
import pathlib
import re

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import text_sources
from xlflax.storage import bucket_staging
from xlflax.utils import class_registry, errors


@class_registry.register('tatoeba')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tatoeba(text_sources.PairSource):
  """A folder of files as LASER and XTREME distribute Tatoeba's test sets.

  `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng` have one sentence a line,
  line by line each other's translation. Languages get their two-letter codes
  where they have one.

  Attributes:
    directory: the folder.
    languages: two- or three-letter codes to take; None: all there are.
    name: what the names of the files begin with; 'bible' for Glot500's.
  """

  directory: str
  languages: tuple[str, ...] | None = None
  name: str = 'tatoeba'

  @classmethod
  def from_options(  # type: ignore[override]
    cls, tatoeba: str, languages: tuple[str, ...] | None = None
  ) -> 'Tatoeba':
    """Creates the source from the options of `xlflax evaluate`."""
    return cls(directory=tatoeba, languages=languages)

  def pairs(self) -> tuple[text_sources.Pair, ...]:
    """Returns the language pairs of the source."""
    available = tuple(sorted(self._files()))
    selected = self.languages and tuple(
      language_codes.short_code(code) for code in self.languages
    )
    return text_sources.chosen_pairs(available, selected, self.directory)

  def load(self, pair: text_sources.Pair) -> text_sources.PairedText:
    """Returns the sentences of a language or pair."""
    first, second = map(_read_lines, self._files()[pair])
    if len(first) != len(second):
      raise errors.CorpusError(
        'The two files of a Tatoeba pair differ in length',
        got=f'{len(first)} and {len(second)} lines',
        expected='line i of one is the translation of line i of the other',
        where=' and '.join(map(str, self._files()[pair])),
      )
    if not first:
      raise errors.CorpusError(
        'A Tatoeba file is empty', where=self._files()[pair][0]
      )
    return text_sources.PairedText(first, second)

  def _files(
    self,
  ) -> dict[text_sources.Pair, tuple[pathlib.Path, pathlib.Path]]:
    directory = bucket_staging.stage_input(self.directory)
    if not directory.is_dir():
      raise errors.CorpusError(
        'The folder of Tatoeba files does not exist',
        got=directory,
        fix='give --tatoeba a folder that holds tatoeba.deu-eng.deu, …',
      )
    files_by_pair = {}
    for path in directory.glob(f'{self.name}.*-*.*'):
      match = re.fullmatch(r'\w+\.(\w+)-(\w+)\.\1', path.name)
      if match:
        first, second = map(language_codes.short_code, match.groups())
        files_by_pair[first, second] = (
          path,
          path.with_suffix('.' + match.group(2)),
        )
    if not files_by_pair:
      raise errors.CorpusError(
        'The folder holds no Tatoeba files',
        got=directory,
        expected='names such as tatoeba.deu-eng.deu, tatoeba.deu-eng.eng',
      )
    return files_by_pair


def _read_lines(path: pathlib.Path) -> list[str]:
  if not path.is_file():
    raise errors.CorpusError('A Tatoeba file has no counterpart', expected=path)
  return [line.strip() for _, line in file_reading.read_lines(path)]
