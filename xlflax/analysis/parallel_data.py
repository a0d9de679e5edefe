"""Parallel text of an analysis: pairs the same way round, sides of one size."""

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
  """Files of several languages that are line by line translations.

  Attributes:
    files: language -> file. The first is paired with each of the others.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'en': 'en.txt', 'fr': 'fr.txt'}"
    ),
  ]

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs of the source."""
    first, *others = self.files
    return tuple((first, other) for other in others)

  def load(self, pair: Pair) -> PairedText:
    """Returns the sentences of a language or pair."""
    sides = [
      [text for _, text in file_reading.read_lines(self.files[language])]
      for language in pair
    ]
    return PairedText(*sides)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Oriented(text_sources.PairSource):
  """The pairs of another source with one language in front.

  Attributes:
    source: where the text comes from.
    pivot: comes first in each pair that has it.
    max_pairs: the first so many of a pair; None: all.
  """

  source: text_sources.PairSource
  pivot: str = 'en'
  max_pairs: validation.PositiveInt | None = None

  def pairs(self) -> tuple[Pair, ...]:
    """Returns the language pairs of the source."""
    return tuple(self._turned(pair) for pair in self.source.pairs())

  def load(self, pair: Pair) -> PairedText:
    """As many sentences of both languages.

    Raises:
      CorpusError: the sides differ in length, or are empty.
    """
    filed = next(
      one for one in self.source.pairs() if self._turned(one) == pair
    )
    text = self.source.load(filed)
    sides = text if filed == pair else text[::-1]
    if len(sides[0]) != len(sides[1]) or not sides[0]:
      raise errors.CorpusError(
        'The two sides of a language pair are not translations',
        got=f'{len(sides[0])} sentences of {pair[0]}, '
        f'{len(sides[1])} of {pair[1]}',
        where='-'.join(pair),
        expected='as many on both sides, and at least one',
      )
    return PairedText(
      *(list(itertools.islice(side, self.max_pairs)) for side in sides)
    )

  def _turned(self, pair: Pair) -> Pair:
    return pair[::-1] if pair[1] == self.pivot != pair[0] else pair
