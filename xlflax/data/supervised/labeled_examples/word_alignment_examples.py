"""Sentence pairs with gold word alignments."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  FeatureType,
  Role,
  feature_field,
)

Links = frozenset[tuple[int, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignedSentence(example_base.Example):
  """Sentence and its translation, with gold word alignments.

  In the columns of a SeqIO task, each link is represented by a text 'i-j'.

  Attributes:
    language: Language code of the source words.
    target_language: Language code of the target words.
    source_words: Words of the source sentence.
    target_words: Words of the target sentence.
    sure: Links (i, j) between source word i and target word j, counted from 0,
      that an aligner must find.
    possible: Links (i, j) that an aligner may find, including the sure links.
  """

  KIND = 'word_alignment'

  target_language: str = feature_field(Role.SECOND_LANGUAGE | Role.OPTIONAL)
  source_words: tuple[str, ...]
  target_words: tuple[str, ...]
  sure: Links = feature_field(Role.GOLD)
  possible: Links = feature_field(Role.GOLD | Role.OPTIONAL)

  @classmethod
  def columns(cls) -> dict[str, FeatureType]:
    texts = dict.fromkeys(
      ('id', 'language', 'target_language'), FeatureType.TEXT
    )
    lists = ('source_words', 'target_words', 'sure', 'possible')
    return texts | dict.fromkeys(lists, FeatureType.TEXTS)

  def values(self) -> dict[str, Any]:
    return super().values() | {
      name: [f'{i}-{j}' for i, j in sorted(getattr(self, name))]
      for name in ('sure', 'possible')
    }

  @classmethod
  def of_values(cls, values: dict[str, Any]) -> 'AlignedSentence':
    sure = _parse_links(values.pop('sure'))
    possible = sure | _parse_links(values.pop('possible', ()))
    return cls(sure=sure, possible=possible, **values)


def _parse_links(texts: Iterable[str]) -> Links:
  """Parses links of the form 'i-j'."""
  pairs = (text.split('-') for text in texts)
  return frozenset((int(i), int(j)) for i, j in pairs)
