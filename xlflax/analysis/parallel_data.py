"""Sources of parallel text for analyses."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Annotated

import pydantic

from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import text_sources
from xlflax.evaluation.text_sources import Pair, PairedText
from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiwayFiles(text_sources.PairSource):
  """Sentence pairs from text files whose lines are translations of each other.

  Attributes:
    files: Map from language to text file. The first language is paired with
      each of the other languages.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description=(
        'a mapping of languages to files, such as '
        "{'en': 'en.txt', 'fr': 'fr.txt'}"
      )
    ),
  ]

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs that this source provides."""
    first, *other_languages = self.files
    return tuple((first, language) for language in other_languages)

  def load(self, pair: Pair) -> PairedText:
    """Reads the sentences of a language pair."""
    sides = [
      [text for _, text in file_reading.read_lines(self.files[language])]
      for language in pair
    ]
    paired_text = PairedText(*sides)
    if len(paired_text.first) == len(paired_text.second):
      where = ' and '.join(self.files[language] for language in pair)
      text_sources.check_pairs(pair, paired_text, where)
    return paired_text


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class OrientedPairs(text_sources.PairSource):
  """Source that moves a given language to the front of each language pair.

  Attributes:
    source: Source of the sentence pairs.
    pivot: Language that is moved to the front of each pair that contains it.
    max_pairs: Maximum number of sentence pairs per language pair, from the
      beginning. If None, all are used.
  """

  source: text_sources.PairSource
  pivot: str = 'en'
  max_pairs: validation.PositiveInt | None = None

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs that this source provides."""
    return tuple(self._orient(pair) for pair in self.source.pairs())

  def load(self, pair: Pair) -> PairedText:
    """Reads the sentences in both languages of a pair.

    Raises:
      CorpusError: If the languages have different numbers of sentences, or if
        they have no sentences.
    """
    source_pair = next(
      source_pair
      for source_pair in self.source.pairs()
      if self._orient(source_pair) == pair
    )
    text = self.source.load(source_pair)
    sides = text if source_pair == pair else text[::-1]
    if len(sides[0]) != len(sides[1]) or not sides[0]:
      raise errors.CorpusError(
        'The analysis requires at least one sentence pair and the same number '
        'of sentences in both languages, but the number of sentences is '
        f'{len(sides[0])} in {pair[0]} and {len(sides[1])} in {pair[1]}',
        where='-'.join(pair),
      )
    return PairedText(
      *(list(itertools.islice(side, self.max_pairs)) for side in sides)
    )

  def _orient(self, pair: Pair) -> Pair:
    """Moves the pivot language to the front of a pair that contains it."""
    return pair[::-1] if pair[1] == self.pivot else pair
