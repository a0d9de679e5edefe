"""Monolingual sentence collections for bitext mining."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class BitextSentence(example_base.Example):
  """Sentence from one of the two collections of a bitext mining task.

  Attributes:
    text: Text of the sentence.
    translations: Ids of the sentence's gold translations in the second
      collection. Empty if the sentence itself is in the second collection.
  """

  KIND = 'mining'

  text: str
  translations: tuple[str, ...] = feature_field(Role.GOLD, default=())


@dataclasses.dataclass(frozen=True, kw_only=True)
class BitextSentences:
  """Two monolingual sentence collections for bitext mining, as in BUCC.

  Attributes:
    languages: Language codes of the two collections. The second is usually
      English.
    first: Sentences of the first collection, by id.
    second: Sentences of the second collection, by id.
    gold: Gold translations as pairs (id in first collection, id in second
      collection). None for a blind test set.
  """

  languages: tuple[str, str]
  first: dict[str, str]
  second: dict[str, str]
  gold: frozenset[tuple[str, str]] | None = None

  def sentences(self) -> Iterator[BitextSentence]:
    """Yields the sentences of the first collection, then of the second."""
    translations: dict[str, list[str]] = {}
    for first_id, second_id in sorted(self.gold or ()):
      translations.setdefault(first_id, []).append(second_id)

    for sentence_id, text in self.first.items():
      yield BitextSentence(
        id=sentence_id,
        language=self.languages[0],
        text=text,
        translations=tuple(translations.get(sentence_id, ())),
      )
    for sentence_id, text in self.second.items():
      yield BitextSentence(
        id=sentence_id, language=self.languages[1], text=text
      )

  @classmethod
  def of(
    cls, sentences: Iterable[BitextSentence], languages: tuple[str, str]
  ) -> 'BitextSentences':
    """Creates `BitextSentences` by grouping sentences by language.

    This is the inverse of `sentences`.
    """
    collections: dict[str, dict[str, str]] = {code: {} for code in languages}
    gold: set[tuple[str, str]] = set()
    for sentence in sentences:
      collections[sentence.language][sentence.id] = sentence.text
      gold |= {
        (sentence.id, translation_id)
        for translation_id in sentence.translations
      }
    first, second = (collections[code] for code in languages)
    return cls(
      languages=languages,
      first=first,
      second=second,
      gold=frozenset(gold) or None,
    )

  def write_pairs(self, predictions: Iterable[tuple[str, str]]) -> str:
    """Formats mined pairs as sorted lines `id<TAB>id`, as in BUCC.

    Raises:
      CorpusError: If a pair contains an id for which no sentence exists.
    """
    pairs = sorted(set(predictions))
    for pair in pairs:
      if pair[0] not in self.first or pair[1] not in self.second:
        raise errors.CorpusError(
          'A mined pair must consist of a sentence id from the first '
          'collection and a sentence id from the second collection',
          got=' '.join(pair),
        )
    return example_base.join_lines('\t'.join(pair) for pair in pairs)

  def write_nearest(self, predictions: Sequence[int]) -> str:
    """Formats line numbers of nearest sentences for XTREME's Tatoeba task.

    For each sentence in the second collection, a line contains the zero-based
    line number of its translation in the first collection. XTREME's labels have
    this direction: English is the second language, and its sentences are
    sorted.

    Raises:
      CorpusError: If the number of predictions differs from the number of
        sentences in the second collection, or if a line number is past the end
        of the first collection.
    """
    example_base.check_number(len(self.second), len(predictions), 'sentences')
    for line in predictions:
      if not 0 <= line < len(self.first):
        raise errors.CorpusError(
          'A predicted line number must be between 0 and '
          f'{len(self.first) - 1}, because the number of sentences in the '
          f'first collection is {len(self.first)}',
          got=line,
        )
    return example_base.join_lines(str(int(line)) for line in predictions)
