"""Choices among the answers to a question: one example for each choice."""

import dataclasses
import json
from collections.abc import Sequence

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)

RIGHT, WRONG = 'right', 'wrong'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(example_base.Example):
  """One of the choices of a question.

  A question's choices follow each other. Predictions are the number of the
  chosen one for each question, from 0; their file has `{"label": 1}` a line,
  XTREME-R's form.

  Attributes:
    question: the question's id.
    text: what is asked about: the premise, the passage.
    paired_text: the question and this choice.
    label: 'right', 'wrong', or None.
  """

  KIND = 'multiple_choice'
  ENDING = 'jsonl'

  question: str
  text: str
  paired_text: str
  label: str | None = feature_field(Role.GOLD, default=None)

  @property
  def cluster(self) -> str:
    """The passage."""
    return self.text

  @classmethod
  def write_predictions(
    cls, examples: Sequence['Choice'], predictions: Sequence[int]
  ) -> str:
    """See the class; predictions are a choice's number for each question."""
    example_base.check_number(
      len(by_question(examples)), len(predictions), 'answers'
    )
    return example_base.join_lines(
      json.dumps({'label': int(n)}) for n in predictions
    )

  @classmethod
  def read_predictions(
    cls, examples: Sequence['Choice'], text: str
  ) -> list[int]:
    """The number of the chosen answer, for each question."""
    del examples
    return [json.loads(line)['label'] for line in text.splitlines()]


def take_first_questions(
  examples: Sequence[example_base.Example], most: int | None
) -> list:
  """At most so many of a part's examples; of choices, whole questions."""
  if most and most < len(examples) and isinstance(examples[most], Choice):
    questions = [getattr(example, 'question', '') for example in examples]
    while most and questions[most] == questions[most - 1]:
      most -= 1
  return list(examples[:most])


def by_question(examples: Sequence[Choice]) -> dict[str, list[int]]:
  """Question -> places of its choices among the examples."""
  indices_by_question: dict[str, list[int]] = {}
  for index, example in enumerate(examples):
    indices_by_question.setdefault(example.question, []).append(index)
  return indices_by_question
