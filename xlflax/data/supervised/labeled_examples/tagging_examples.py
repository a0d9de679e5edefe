"""Sentences in which each word has a label."""

import dataclasses
from collections.abc import Sequence

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedSentence(example_base.Example):
  """Sentence whose words are labeled with parts of speech or IOB2 entities.

  Predictions are the labels of each sentence. Prediction files have one label
  per line and an empty line between sentences.

  Attributes:
    words: W words of the sentence.
    tags: W labels, one for each word. None if they are not available.
  """

  KIND = 'tagging'

  words: tuple[str, ...] = feature_field(Role.PER_WORD)
  tags: tuple[str, ...] | None = feature_field(
    Role.GOLD | Role.LABELS | Role.PER_WORD, default=None
  )

  @property
  def has_words(self) -> bool:
    return bool(self.words)

  @classmethod
  def write_predictions(
    cls,
    examples: Sequence['TaggedSentence'],
    predictions: Sequence[Sequence[str]],
  ) -> str:
    """Formats word labels, one per line, with empty lines between sentences."""
    example_base.check_number(len(examples), len(predictions), 'sentences')
    for example, predicted in zip(examples, predictions, strict=True):
      example_base.check_number(
        len(example.words), len(predicted), f'tags of sentence {example.id}'
      )
    return '\n'.join(map(example_base.join_lines, predictions))

  @classmethod
  def read_predictions(
    cls, examples: Sequence['TaggedSentence'], text: str
  ) -> list[list[str]]:
    """Parses predicted word labels from a text with one label per line.

    Empty lines separate the sentences.
    """
    remaining_lines = iter(text.removesuffix('\n').split('\n'))
    predictions = []
    for example in examples:
      predictions.append([next(remaining_lines) for _ in example.words])
      next(remaining_lines, None)  # Skip the empty line between sentences.
    return predictions
