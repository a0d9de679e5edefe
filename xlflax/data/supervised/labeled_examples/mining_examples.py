"""Collections of sentences in which translations are to be found."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedSentence(example_base.Example):
  """One sentence of either collection, as a row of a SeqIO task.

  Attributes:
    text: the sentence.
    translations: ids of its gold translations on the other side, for
      sentences of the first.
  """

  KIND = 'mining'

  text: str
  translations: tuple[str, ...] = feature_field(Role.GOLD, default=())


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedSentences:
  """Two monolingual collections in which translations are to be found (BUCC).

  Attributes:
    languages: of the two sides; the second is usually English.
    first: id -> sentence.
    second: id -> sentence.
    gold: pairs (id of first, id of second) that are translations; None for a
      blind test set.
  """

  languages: tuple[str, str]
  first: dict[str, str]
  second: dict[str, str]
  gold: frozenset[tuple[str, str]] | None = None

  def sentences(self) -> Iterator[MinedSentence]:
    """Yields every sentence of the first collection, then of the second."""
    translations: dict[str, list[str]] = {}
    for first_id, other in sorted(self.gold or ()):
      translations.setdefault(first_id, []).append(other)
    for number, side in enumerate((self.first, self.second)):
      for key, text in side.items():
        yield MinedSentence(
          id=key,
          language=self.languages[number],
          text=text,
          translations=tuple(translations.get(key, ())) if not number else (),
        )

  @classmethod
  def of(
    cls, sentences: Iterable[MinedSentence], languages: tuple[str, str]
  ) -> 'MinedSentences':
    """The collections of sentences; the inverse of `sentences`."""
    sides: dict[str, dict[str, str]] = {code: {} for code in languages}
    gold: set[tuple[str, str]] = set()
    for sentence in sentences:
      sides[sentence.language][sentence.id] = sentence.text
      gold |= {(sentence.id, other) for other in sentence.translations}
    first, second = (sides[code] for code in languages)
    return cls(
      languages=languages,
      first=first,
      second=second,
      gold=frozenset(gold) or None,
    )

  def write_pairs(self, predictions: Iterable[tuple[str, str]]) -> str:
    """Mined pairs, `id<TAB>id` a line, sorted: BUCC's form of predictions.

    Raises:
      CorpusError: an id that no sentence has.
    """
    pairs = sorted(set(predictions))
    for pair in pairs:
      if pair[0] not in self.first or pair[1] not in self.second:
        raise errors.CorpusError(
          'A mined pair has an id that no sentence has',
          got=' '.join(pair),
          expected='(id of the first, id of the second)',
        )
    return example_base.join_lines('\t'.join(pair) for pair in pairs)

  def write_nearest(self, predictions: Sequence[int]) -> str:
    """The line of each second sentence's translation: Tatoeba's form.

    Lines of the first language are counted from 0. XTREME's labels go this
    way: English is the second language, and its sentences are sorted.

    Raises:
      CorpusError: not one prediction for each second sentence, or one past
        the end of the first collection.
    """
    example_base.check_number(len(self.second), len(predictions), 'sentences')
    for line in predictions:
      if not 0 <= line < len(self.first):
        raise errors.CorpusError(
          'A retrieved sentence does not exist',
          got=line,
          expected=f'a line from 0 to {len(self.first) - 1}',
        )
    return example_base.join_lines(str(int(line)) for line in predictions)
