"""Questions whose answers are spans of a context."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  FeatureType,
  Role,
  feature_field,
)
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class Answer:
  """Answer to a question, which is a span of the context.

  Attributes:
    text: Text of the answer.
    start: Index in the context of the answer's first character. -1 if the
      context does not contain the text.
  """

  text: str
  start: int


UNANSWERABLE = Answer('', -1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question(example_base.Example):
  """Question with a context that contains the answer (SQuAD v1.1).

  Predictions map the ids of the questions to the texts of the answers.
  Prediction files contain this mapping as JSON.

  Attributes:
    language: Language code of the context.
    question_language: Language code of the question. If None, `language` is
      used. The two differ in G-XLT.
    question: Text of the question.
    context: Paragraph that contains the answer.
    answers: One or more accepted answers. Empty for a blind test set. An answer
      with an empty text means that the context contains no answer (SQuAD v2).
    title: Title of the article that contains the context, or '' if unknown.
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
    """Key for grouping questions: the article title or, if empty, the context.

    Bootstrap resampling draws all questions of an article or context together,
    because their scores are not independent.
    """
    return self.title or self.context

  @property
  def is_unanswerable(self) -> bool:
    """True if the question is marked as unanswerable from its context."""
    return bool(self.answers) and not any(
      answer.text for answer in self.answers
    )

  @classmethod
  def columns(cls) -> dict[str, FeatureType]:
    texts = ('id', 'language', 'question', 'question_language', 'context')
    return dict.fromkeys((*texts, 'title'), FeatureType.TEXT) | {
      'answers': FeatureType.TEXTS,
      'answer_starts': FeatureType.NUMBERS,
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
    """Formats the predicted answers as a JSON object that maps ids to texts."""
    ids = [example.id for example in examples]
    unmatched = set(ids) ^ set(predictions)
    if unmatched:
      unmatched_id = min(unmatched)
      items = 'answers' if unmatched_id in predictions else 'questions'
      raise errors.CorpusError(
        'Each question must have exactly one predicted answer. The number of '
        f'answers is {len(predictions)}, and the number of questions is '
        f'{len(ids)}. The id {unmatched_id!r} occurs only in the {items}'
      )
    ordered = {question_id: predictions[question_id] for question_id in ids}
    return json.dumps(ordered, ensure_ascii=False, indent=1) + '\n'

  @classmethod
  def read_predictions(
    cls, examples: Sequence['Question'], text: str
  ) -> dict[str, str]:
    """Parses a JSON object that maps question ids to predicted answer texts."""
    del examples
    return json.loads(text)
