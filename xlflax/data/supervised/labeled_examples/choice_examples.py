"""Multiple-choice questions, with one example for each answer choice."""

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
  """One answer choice of a multiple-choice question.

  The choices of a question are consecutive examples. A prediction is the
  zero-based index of the choice selected for a question. The prediction file
  has one line per question, such as `{"label": 1}`, as in XTREME-R.

  Attributes:
    question: Id of the question, which all of its choices have in common.
    text: Text that the question is about, such as a premise or a passage.
    paired_text: Text of the question, followed by the text of the choice.
    label: 'right' or 'wrong'. None if the label is not available.
  """

  KIND = 'multiple_choice'
  ENDING = 'jsonl'

  question: str
  text: str
  paired_text: str
  label: str | None = feature_field(Role.GOLD, default=None)

  @property
  def cluster(self) -> str:
    """Key for grouping questions: the passage that they have in common."""
    return self.text

  @classmethod
  def write_predictions(
    cls, examples: Sequence['Choice'], predictions: Sequence[int]
  ) -> str:
    """Formats the index of each question's selected choice as a JSON line."""
    example_base.check_number(
      len(by_question(examples)), len(predictions), 'answers'
    )
    return example_base.join_lines(
      json.dumps({'label': int(index)}) for index in predictions
    )

  @classmethod
  def read_predictions(
    cls, examples: Sequence['Choice'], text: str
  ) -> list[int]:
    """Parses predictions: the index of the selected choice per question."""
    del examples
    return [json.loads(line)['label'] for line in text.splitlines()]


def take_first_questions(
  examples: Sequence[example_base.Example], max_examples: int | None
) -> list:
  """Returns at most `max_examples` examples, without an incomplete question.

  Args:
    examples: Examples of one language split.
    max_examples: Maximum number of examples. If None, all are returned.
  """
  count = max_examples
  if count and count < len(examples) and isinstance(examples[count], Choice):
    questions = [getattr(example, 'question', '') for example in examples]
    while count and questions[count] == questions[count - 1]:
      count -= 1
  return list(examples[:count])


def by_question(examples: Sequence[Choice]) -> dict[str, list[int]]:
  """Groups the indices of the examples (choices) by question id."""
  indices_by_question: dict[str, list[int]] = {}
  for index, example in enumerate(examples):
    indices_by_question.setdefault(example.question, []).append(index)
  return indices_by_question
