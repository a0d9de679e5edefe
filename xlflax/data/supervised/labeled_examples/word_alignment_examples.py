"""Translated sentences with links between their words."""

import dataclasses
from typing import Any

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Form,
  Role,
  feature_field,
)

Links = frozenset[tuple[int, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignedSentence(example_base.Example):
  """A translated sentence with links between its words.

  A column of links has the text 'i-j' for each.

  Attributes:
    language: of the source words.
    target_language: of the target words.
    source_words: the words of one side.
    target_words: of the other.
    sure: links (i, j) from 0 that an aligner must find.
    possible: links that it may find; every sure link is one of them.
  """

  KIND = 'word_alignment'

  target_language: str = feature_field(Role.SECOND_LANGUAGE | Role.OPTIONAL)
  source_words: tuple[str, ...]
  target_words: tuple[str, ...]
  sure: Links = feature_field(Role.GOLD)
  possible: Links = feature_field(Role.GOLD | Role.OPTIONAL)

  @classmethod
  def columns(cls) -> dict[str, Form]:
    texts = dict.fromkeys(('id', 'language', 'target_language'), Form.TEXT)
    lists = ('source_words', 'target_words', 'sure', 'possible')
    return texts | dict.fromkeys(lists, Form.TEXTS)

  def values(self) -> dict[str, Any]:
    return super().values() | {
      name: [f'{i}-{j}' for i, j in sorted(getattr(self, name))]
      for name in ('sure', 'possible')
    }

  @classmethod
  def of_values(cls, values: dict[str, Any]) -> 'AlignedSentence':
    sure = _links(values.pop('sure'))
    possible = sure | _links(values.pop('possible', ()))
    return cls(sure=sure, possible=possible, **values)


def _links(texts) -> Links:
  pairs = (text.split('-') for text in texts)
  return frozenset((int(i), int(j)) for i, j in pairs)
