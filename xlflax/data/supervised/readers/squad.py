"""Questions with answers in a text, from JSON in the format of SQuAD v1.1.

XQuAD, MLQA and TyDiQA-GoldP come in it. Rajpurkar et al. 2016. SQuAD v2
marks questions that the text does not answer. Rajpurkar et al. 2018.
"""

import dataclasses
import enum
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import validation

_KIND = 'file of questions'


class Unanswerable(enum.Enum):
  """What becomes of a question without an answer among others with one."""

  LEFT_OUT = 'left_out'
  KEPT = 'kept'  # its right answer is no text


class _Asked(NamedTuple):
  where: str
  title: str
  context: str
  asked: dict


@file_formats.register_reader(
  'squad_v2', example=labeled_examples.Question, unanswerable='kept'
)
@file_formats.register_reader('squad', example=labeled_examples.Question)
def read_squad(
  path: str | os.PathLike,
  language: str,
  *,
  question_language: str | None = None,
  unanswerable: Unanswerable | str = Unanswerable.LEFT_OUT,
) -> file_reading.Reading:
  """Reads questions.

  A file in which no question has an answer, or only empty ones (as XTREME's
  script leaves its test sets), is blind: `answers` is (). An answer that its
  context does not hold at its offset is listed among the problems; it is moved
  to the nearest place where the context has it, else its `start` is -1. In a
  file with answers, a question without any (SQuAD v2) is listed and left out,
  or kept with the answer `UNANSWERABLE`.

  Args:
    path: of the file.
    language: code of the contexts.
    question_language: code of the questions, where it is another.
    unanswerable: see `Unanswerable`.

  Raises:
    CorpusError: file:line if it is not JSON; what lacks, and in which article
      and paragraph; a file without questions; one most of whose answers are
      in no context.
  """
  if question_language == language:
    question_language = None
  problems: list[str] = []
  examples: list[labeled_examples.Question] = []
  id_counts: dict[str, int] = {}
  for item in _questions(path):
    name = _unique(
      str(_get(item.asked, 'id', (str, int), path, item.where)), id_counts
    )
    examples.append(
      labeled_examples.Question(
        id=name,
        language=language,
        question_language=question_language,
        question=_get(item.asked, 'question', str, path, item.where).strip(),
        context=item.context,
        title=item.title,
        answers=_answers(item, name, path, problems),
      )
    )
  file_reading.check_any(examples, path)
  repeated = sum(id_counts.values()) - len(id_counts)
  if repeated:
    problems.append(
      f'{path}: {repeated} questions have the id of an earlier '
      'one and are called <id>#2 and so on'
    )
  policy = validation.validate(unanswerable, Unanswerable, name='unanswerable')
  if any(example.answers for example in examples):
    column_validation.check_answers(examples, path)
    examples = _without_answers(examples, policy, path, problems)
  return file_reading.Reading(examples, tuple(problems))


def _without_answers(
  examples, unanswerable: Unanswerable, path, problems: list[str]
) -> list[labeled_examples.Question]:
  """The examples; those without an answer are marked, or listed and left."""
  if unanswerable is Unanswerable.KEPT:
    return [
      example
      if example.answers
      else dataclasses.replace(
        example, answers=(labeled_examples.UNANSWERABLE,)
      )
      for example in examples
    ]
  problems += [
    f'{path}: question {example.id} has no answer and is left out'
    for example in examples
    if not example.answers
  ]
  return [example for example in examples if example.answers]


def _questions(path) -> Iterator[_Asked]:
  data = _get(file_reading.read_json(path), 'data', list, path, 'the top')
  for i, article in enumerate(data):
    where = f'data[{i}]'
    paragraphs = _get(article, 'paragraphs', list, path, where)
    for j, paragraph in enumerate(paragraphs):
      inner = f'{where}.paragraphs[{j}]'
      context = _get(paragraph, 'context', str, path, inner)
      for k, question in enumerate(_get(paragraph, 'qas', list, path, inner)):
        yield _Asked(
          f'{inner}.qas[{k}]', str(article.get('title', '')), context, question
        )


def _answers(
  item: _Asked, name: str, path, problems: list[str]
) -> tuple[labeled_examples.Answer, ...]:
  answers = []
  listed = item.asked.get('answers')  # A blind file may lack it.
  for number, answer in enumerate(listed if isinstance(listed, list) else ()):
    where = f'{item.where}.answers[{number}]'
    text = _get(answer, 'text', str, path, where)
    start = _get(answer, 'answer_start', int, path, where)
    if not text.strip():
      continue
    if start < 0 or not item.context.startswith(text, start):
      nearest_start = _nearest(item.context, text, start)
      problems.append(
        f'{path}: question {name}: the context has '
        f'{file_reading.shorten_quoted(item.context[max(start, 0) :][: len(text)], 30)} at '
        f'{start}, not the answer {file_reading.shorten_quoted(text, 30)}; '
        + (
          f'it has it at {nearest_start}'
          if nearest_start >= 0
          else 'it has it nowhere'
        )
      )
      start = nearest_start
    answers.append(labeled_examples.Answer(text, start))
  return tuple(answers)


def _nearest(context: str, text: str, start: int) -> int:
  """Where the text begins in the context, nearest to `start`; -1: nowhere."""
  places = []
  offset = context.find(text)
  while offset >= 0:
    places.append(offset)
    offset = context.find(text, offset + 1)
  return min(places, key=lambda place: abs(place - start), default=-1)


def _unique(name: str, seen: dict[str, int]) -> str:
  """The question's id, with a number behind it if an earlier one has it."""
  seen[name] = seen.get(name, 0) + 1
  return name if seen[name] == 1 else f'{name}#{seen[name]}'


def _get(value: Any, key: str, kind, path, where: str) -> Any:
  field = value.get(key) if isinstance(value, dict) else None
  if not isinstance(field, kind):
    keys = (
      ', '.join(value)
      if isinstance(value, dict)
      else file_reading.shorten_quoted(json.dumps(value, ensure_ascii=False))
    )
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      where,
      f'{keys} in {where}',
      expected=f'{key!r}, a {" or ".join(k.__name__ for k in kinds)}',
    )
  return field
