"""Questions whose answers are spans of a text."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Form,
  Role,
  feature_field,
)
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class Answer:
  """A span of the context.

  Attributes:
    text: the span.
    start: its first character's place in the context; -1 where the context
      does not hold the text.
  """

  text: str
  start: int


UNANSWERABLE = Answer('', -1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question(example_base.Example):
  """A question and the text that holds its answer (SQuAD v1.1).

  Predictions are a mapping from the questions' ids to the answers' text. Their
  file is that mapping in JSON.

  Attributes:
    language: of the context.
    question_language: of the question; None: `language` (G-XLT differs).
    question: the question.
    context: the paragraph.
    answers: what counts as right, one or more; () for a blind test set. An
      answer of no text says that the context has none (SQuAD v2).
    title: of the article; '' where the file has none.
  """

  KIND = 'question_answering'
  ENDING = 'json'

  question: str
  context: str
  answers: tuple[Answer, ...] = feature_field(Role.GOLD, default=())
  question_language: str | None = feature_field(
    Role.SECOND_LANGUAGE, default=None
  )
  title: str = ''

  @property
  def cluster(self) -> str:
    """The article, or else the paragraph."""
    return self.title or self.context

  @property
  def is_unanswerable(self) -> bool:
    """Whether it is known that the context has no answer."""
    return bool(self.answers) and not any(
      answer.text for answer in self.answers
    )

  @classmethod
  def columns(cls) -> dict[str, Form]:
    texts = ('id', 'language', 'question', 'question_language', 'context')
    return dict.fromkeys((*texts, 'title'), Form.TEXT) | {
      'answers': Form.TEXTS,
      'answer_starts': Form.NUMBERS,
    }

  def values(self) -> dict[str, Any]:
    return super().values() | {
      'answers': [answer.text for answer in self.answers],
      'answer_starts': [answer.start for answer in self.answers],
    }

  @classmethod
  def of_values(cls, values: dict[str, Any]) -> 'Question':
    starts = values.pop('answer_starts')
    answers = tuple(map(Answer, values.pop('answers'), starts))
    return cls(answers=answers, **values)

  @classmethod
  def write_predictions(
    cls, examples: Sequence['Question'], predictions: Mapping[str, str]
  ) -> str:
    """See the class; predictions are an answer for each question's id."""
    ids = [example.id for example in examples]
    odd = set(ids) ^ set(predictions)
    if odd:
      raise errors.CorpusError(
        'The questions and the predicted answers differ',
        got=f'{len(predictions)} answers to {len(ids)} questions, such as '
        f'{min(odd)} on one side only',
        expected='one answer a question',
      )
    ordered = {name: predictions[name] for name in ids}
    return json.dumps(ordered, ensure_ascii=False, indent=1) + '\n'

  @classmethod
  def read_predictions(
    cls, examples: Sequence['Question'], text: str
  ) -> dict[str, str]:
    """Question id -> the answer's text."""
    del examples
    return json.loads(text)
