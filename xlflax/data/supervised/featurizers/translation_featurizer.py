"""Featurizer that adds a translation to each example, as in VECO.

Source: Luo et al. (2021), VECO, section 3.3. The text in one language attends
to its English or translated counterpart.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers.featurizer import Featurizer, Row
from xlflax.data.supervised.sources import code_switched_source, example_source
from xlflax.utils import class_registry, errors

# Batch keys of a counterpart.
TEXT = (
  batch_keys.TOKEN_IDS,
  batch_keys.SEGMENT_IDS,
  batch_keys.POSITIONS,
  batch_keys.LANGUAGE_IDS,
  batch_keys.SIDE_IDS,
)


@class_registry.register('translation_pair_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationPairFeaturizer(Featurizer):
  """Featurizer that adds each example's translation under `paired_*` keys.

  The counterpart of an English example is its translation, and the counterpart
  of a translated example is its English original. Both have the same id. If
  `translations` has no split for an example's language, the example is its own
  counterpart. If an example or its counterpart has several sequences (windows
  of a context, segments of a long sentence), sequences at the same relative
  position are paired.

  For example, if `featurizer` gives token_ids `<s> un homme </s>` for id 7 in
  'fr' and `<s> a man </s>` for id 7 in 'en', the sequence has token_ids `<s> un
  homme </s>` and paired_token_ids `<s> a man </s>`.

  Attributes:
    featurizer: Featurizer that converts the examples and their translations,
      and provides the labels.
    translations: Source of the translated examples. Its language split 'fr'
      contains the counterparts of French examples.
  """

  featurizer: Featurizer
  translations: example_source.ExampleSource

  def __post_init__(self):
    if self.featurizer.leaves_rows_out:
      raise errors.ConfigError(
        '`TranslationPairFeaturizer` requires a featurizer that keeps all '
        'windows of a context, but this featurizer drops windows without an '
        'answer',
        got=type(self.featurizer).__name__,
        where=errors.field_location(self, 'featurizer'),
        fix="Set QuestionAnsweringFeaturizer.no_answer to 'cls_token'.",
      )

  def input_settings(self):
    return self.featurizer.input_settings()

  def fields(self, length, spec):
    row_fields = self.featurizer.fields(length, spec)
    return row_fields | {
      batch_keys.PAIRED + key: row_fields[key] for key in TEXT
    }

  def make(self, examples, vocabulary, *, length):
    sequences = self.featurizer.make(examples, vocabulary, length=length)
    return self.add_counterparts(examples, sequences, vocabulary, length=length)

  def texts(self, examples, vocabulary, *, length):
    sequences = self.featurizer.texts(examples, vocabulary, length=length)
    return self.add_counterparts(examples, sequences, vocabulary, length=length)

  def add_counterparts(
    self, examples, sequences: list[list[Row]], vocabulary, *, length: int
  ) -> list[list[Row]]:
    """Adds the tokens of each example's translation to the example's sequences.

    Args:
      examples: N labeled examples.
      sequences: List of sequences for each example.
      vocabulary: Vocabulary that encodes the texts.
      length: Maximum number of tokens in the sequence of a translation.
    """
    paired_sequences = self.featurizer.texts(
      self.counterparts_of(examples), vocabulary, length=length
    )
    return [
      _pair_rows(rows, paired_rows)
      for rows, paired_rows in zip(sequences, paired_sequences, strict=True)
    ]

  def counterparts_of(self, examples) -> list[Any]:
    """For each example, returns the translation with the same id."""
    examples_by_part: dict[str, Mapping[str, labeled_examples.Example]] = {}
    parts = self.translations.languages()
    counterparts = []
    for example in examples:
      part = example.language
      if part not in parts:
        counterparts.append(example)
        continue
      if part not in examples_by_part:
        examples_by_part[part] = code_switched_source.by_id(
          self.translations.load(part), part
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


def _pair_rows(rows: list[Row], paired_rows: list[Row]) -> list[Row]:
  """Pairs each sequence with a translated one at the same relative position.

  For example, 3 sequences are paired with the first, third and fifth of 5
  sequences. If there are no paired sequences, each sequence is paired with
  itself.
  """
  paired_rows = paired_rows or rows
  step = (len(paired_rows) - 1) / max(len(rows) - 1, 1)
  return [
    row
    | {
      batch_keys.PAIRED + key: paired_rows[round(i * step)][key] for key in TEXT
    }
    for i, row in enumerate(rows)
  ]


@class_registry.register('translation_pairs')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationPairs(example_source.ExampleSource):
  """Source that provides the translation to pair with each example.

  Attributes:
    english: Source whose language split 'en' contains the English originals.
    translations: Source of the same examples translated into other languages.
    paired_with: Language of the translations that are paired with the English
      originals. If None, each original is paired with itself.
  """

  english: example_source.ExampleSource
  translations: example_source.ExampleSource
  paired_with: str | None = None

  def languages(self) -> tuple[str, ...]:
    translated_parts = tuple(
      part
      for part in self.translations.languages()
      if part != code_switched_source.ENGLISH
    )
    return (code_switched_source.ENGLISH, *translated_parts)

  def load(self, part: str) -> list[labeled_examples.Example]:
    if part != code_switched_source.ENGLISH or self.paired_with is None:
      return self.english.load(code_switched_source.ENGLISH)
    return self.translations.load(self.paired_with)

  def describe(self, part: str) -> str:
    if part != code_switched_source.ENGLISH or self.paired_with is None:
      return self.english.describe(code_switched_source.ENGLISH)
    return self.translations.describe(self.paired_with)
