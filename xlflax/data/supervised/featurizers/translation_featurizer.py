"""Rows with the row of a translation beside them, for plugged-in features.

Source: Luo et al. (2021), VECO, section 3.3: the text in one language attends
to its English or translated counterpart.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.supervised.sources import code_switched_source, example_source
from xlflax.utils import class_registry, errors

# The keys that a counterpart has.
TEXT = (
  batch_keys.TOKEN_IDS,
  batch_keys.SEGMENT_IDS,
  batch_keys.POSITIONS,
  batch_keys.LANGUAGE_IDS,
  batch_keys.SIDE_IDS,
)


@class_registry.register('paired_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedRows(featurizer.RowMaker):
  """The rows of another maker, each with `paired_*` keys of its counterpart.

  The counterpart of an example has the same id: of an English one a
  translation, of a translated one the original. An example in a language that
  `counterparts` has no other part for is its own counterpart. Where either
  gives several rows (windows of a context, parts of a long sentence), a row is
  read beside the one at the same share of the way.

  Before: `rows` gives token_ids `<s> un homme </s>` for id 7 in 'fr', and
  `<s> a man </s>` for id 7 in 'en'; after: token_ids `<s> un homme </s>`,
  paired_token_ids `<s> a man </s>`.

  Attributes:
    rows: the maker of either side's rows; gives the labels, too.
    counterparts: examples by the language of the text that is paired with
      them: part 'fr' holds the counterparts of French examples.
  """

  rows: featurizer.RowMaker
  counterparts: example_source.ExampleSource

  def __post_init__(self):
    if self.rows.leaves_rows_out:
      raise errors.ConfigError(
        'Rows that are left out have no place beside a translation',
        got=f'{type(self.rows).__name__} without the windows of no answer',
        expected='all windows',
        where='PairedRows.rows',
        fix="set QuestionRows.no_answer = 'first_position'",
      )

  def input_settings(self):
    return self.rows.input_settings()

  def fields(self, length, spec):
    row_fields = self.rows.fields(length, spec)
    return row_fields | {
      batch_keys.PAIRED + key: row_fields[key] for key in TEXT
    }

  def make(self, examples, vocabulary, *, length):
    sequences = self.rows.make(examples, vocabulary, length=length)
    return self.beside(examples, sequences, vocabulary, length=length)

  def texts(self, examples, vocabulary, *, length):
    sequences = self.rows.texts(examples, vocabulary, length=length)
    return self.beside(examples, sequences, vocabulary, length=length)

  def beside(
    self, examples, made: list[list[featurizer.Row]], vocabulary, *, length: int
  ) -> list[list[featurizer.Row]]:
    """Rows of examples, each with its counterpart's.

    Args:
      examples: N of them.
      made: the rows of each.
      vocabulary: as for `make`.
      length: tokens of a counterpart's row, at most.
    """
    paired = self.rows.texts(
      self.counterparts_of(examples), vocabulary, length=length
    )
    return [
      _pair(sequences, other)
      for sequences, other in zip(made, paired, strict=True)
    ]

  def counterparts_of(self, examples) -> list[Any]:
    """The counterpart of each example."""
    examples_by_part: dict[str, Mapping[str, labeled_examples.Example]] = {}
    parts = self.counterparts.languages()
    counterparts = []
    for example in examples:
      part = example.language
      if part not in parts:
        counterparts.append(example)
        continue
      if part not in examples_by_part:
        examples_by_part[part] = code_switched_source.by_id(
          self.counterparts.load(part), part
        )
      counterparts.append(
        code_switched_source.find_translation(
          example,
          examples_by_part[part],
          f'counterparts of {part}',
          may_be_blind=True,
        )
      )
    return counterparts


def _pair(
  own: list[featurizer.Row], other: list[featurizer.Row]
) -> list[featurizer.Row]:
  """Rows with the other side's text; their own where the other has none.

  Of 3 rows beside 5 the first, third and fifth are taken.
  """
  other = other or own
  step = (len(other) - 1) / max(len(own) - 1, 1)
  return [
    row | {batch_keys.PAIRED + key: other[round(i * step)][key] for key in TEXT}
    for i, row in enumerate(own)
  ]


@class_registry.register('counterparts')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Counterparts(example_source.ExampleSource):
  """For each language the examples that its own are paired with.

  Attributes:
    english: the originals, in part 'en'.
    translations: the same examples in other languages.
    partner: whose translations the originals are paired with; None: they are
      paired with themselves.
  """

  english: example_source.ExampleSource
  translations: example_source.ExampleSource
  partner: str | None = None

  def languages(self) -> tuple[str, ...]:
    translated_parts = tuple(
      part
      for part in self.translations.languages()
      if part != code_switched_source.ENGLISH
    )
    return (code_switched_source.ENGLISH, *translated_parts)

  def load(self, part: str) -> list[labeled_examples.Example]:
    if part != code_switched_source.ENGLISH or self.partner is None:
      return self.english.load(code_switched_source.ENGLISH)
    return self.translations.load(self.partner)
