"""Reader for questions and their contexts in the SQuAD format (JSON).

XQuAD, MLQA and TyDiQA-GoldP have the format of SQuAD v1.1 (Rajpurkar et al.,
2016). SQuAD v2 (Rajpurkar et al., 2018) also contains questions whose context
does not answer them.
"""

import collections
import dataclasses
import json
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import logs, validation

_LOG = logging.getLogger(__name__)
# Encoding, number of bytes per unit, and name of the unit.
_OFFSET_UNITS = (
  ('utf-8', 1, 'UTF-8 bytes'),
  ('utf-16-le', 2, 'UTF-16 code units'),
)
# Minimum number and fraction of wrong offsets for a warning.
_MIN_WRONG = 3
_MIN_WRONG_FRACTION = 0.1


class _Item(NamedTuple):
  """A question of the JSON file, with its location, title and context."""

  where: str
  title: str
  context: str
  question: dict


@file_formats.register_reader(
  'squad_v2', example=labeled_examples.Question, keep_unanswerable=True
)
@file_formats.register_reader('squad', example=labeled_examples.Question)
def read_squad(
  path: str | os.PathLike,
  language: str,
  *,
  question_language: str | None = None,
  keep_unanswerable: bool = False,
) -> file_reading.Reading:
  """Reads questions, contexts and answers in the SQuAD format.

  If all answers in a file are empty, as in the test sets that XTREME's script
  writes, the file is a blind test set, and `answers` is (). If the context does
  not contain an answer at its offset, the answer is listed as a problem. If the
  offset counts UTF-8 bytes or UTF-16 code units, it is converted to characters.
  Otherwise, the answer is moved to the text's nearest occurrence in the
  context, or its `start` is set to -1 if the context does not contain the text.
  A warning is logged if many offsets do not match. In a file with answers, a
  question without an answer (SQuAD v2) is listed as a problem and skipped, or
  it is kept with the answer `UNANSWERABLE`.

  Args:
    path: Path of the file.
    language: Language code of the contexts.
    question_language: Language code of the questions. If None, `language` is
      used.
    keep_unanswerable: Whether to keep unanswerable questions in a file with
      answers. Their gold answer is an empty text.

  Raises:
    CorpusError: If the file is not valid JSON (the error contains the file and
      the line), if a field is missing (the error contains the article and the
      paragraph), if there are no questions, or if most answers do not occur in
      their contexts.
  """
  if question_language == language:
    question_language = None
  problems: list[str] = []
  examples: list[labeled_examples.Question] = []
  id_counts: dict[str, int] = {}
  offset_units: list[str] = []
  for item in _read_items(path):
    original_id = _get_field(item.question, 'id', (str, int), path, item.where)
    question_id = _make_unique(str(original_id), id_counts)
    examples.append(
      labeled_examples.Question(
        id=question_id,
        language=language,
        question_language=question_language,
        question=_get_field(
          item.question, 'question', str, path, item.where
        ).strip(),
        context=item.context,
        title=item.title,
        answers=_read_answers(item, question_id, path, problems, offset_units),
      )
    )
  file_reading.check_any(examples, path)
  contexts = dict.fromkeys(example.context for example in examples)
  column_validation.check_text(language, contexts, path)
  num_repeated = sum(id_counts.values()) - len(id_counts)
  if num_repeated:
    problems.append(
      f'{path}: Renaming {num_repeated} questions with the id of an earlier '
      'question to <id>#2, <id>#3, …'
    )
  keep_unanswerable = validation.validate(
    keep_unanswerable, bool, name='keep_unanswerable'
  )
  if any(example.answers for example in examples):
    column_validation.check_answers(examples, path)
    _warn_of_offsets(examples, path, offset_units)
    if keep_unanswerable:
      examples = _mark_unanswerable(examples)
    else:
      examples = _skip_unanswerable(examples, path, problems)
  return file_reading.Reading(examples, tuple(problems))


def _mark_unanswerable(examples) -> list[labeled_examples.Question]:
  """Adds the answer `UNANSWERABLE` to each question without an answer."""
  return [
    example
    if example.answers
    else dataclasses.replace(example, answers=(labeled_examples.UNANSWERABLE,))
    for example in examples
  ]


def _skip_unanswerable(
  examples, path, problems: list[str]
) -> list[labeled_examples.Question]:
  """Skips and lists the questions without an answer."""
  problems += [
    f'{path}: Skipping question {example.id}, which has no answer'
    for example in examples
    if not example.answers
  ]
  return [example for example in examples if example.answers]


def _read_items(path) -> Iterator[_Item]:
  """Yields the questions of all articles and paragraphs."""
  data = _get_field(
    file_reading.read_json(path), 'data', list, path, 'top level'
  )
  for i, article in enumerate(data):
    article_path = f'data[{i}]'
    paragraphs = _get_field(article, 'paragraphs', list, path, article_path)
    for j, paragraph in enumerate(paragraphs):
      paragraph_path = f'{article_path}.paragraphs[{j}]'
      context = _get_field(paragraph, 'context', str, path, paragraph_path)
      questions = _get_field(paragraph, 'qas', list, path, paragraph_path)
      for k, question in enumerate(questions):
        yield _Item(
          where=f'{paragraph_path}.qas[{k}]',
          title=str(article.get('title') or ''),
          context=context,
          question=question,
        )


def _read_answers(
  item: _Item,
  question_id: str,
  path,
  problems: list[str],
  offset_units: list[str],
) -> tuple[labeled_examples.Answer, ...]:
  """Returns a question's answers.

  Problems are added to `problems`. For each answer that the context does not
  contain at its offset, the unit of the offset or '' is added to
  `offset_units`.
  """
  answers = []
  if item.question.get('answers') is None:
    return ()  # A blind file may have no list of answers.
  raw_answers = _get_field(item.question, 'answers', list, path, item.where)
  for number, answer in enumerate(raw_answers):
    where = f'{item.where}.answers[{number}]'
    text = _get_field(answer, 'text', str, path, where)
    start = _get_field(answer, 'answer_start', int, path, where)
    if not text.strip():
      continue
    if start < 0 or not item.context.startswith(text, start):
      unit, nearest_start = _convert_offset(item.context, text, start)
      offset_units.append(unit)
      context_text = item.context[max(start, 0) :][: len(text)]
      problems.append(
        f'{path}: question {question_id}: The context contains '
        f'{file_reading.shorten_quoted(context_text, 30)} at offset {start} '
        f'instead of the answer {file_reading.shorten_quoted(text, 30)}. '
        + (
          f'The offset counts {unit}. Using the character offset '
          f'{nearest_start}'
          if unit
          else f'Using the occurrence at offset {nearest_start}'
          if nearest_start >= 0
          else 'The answer does not occur in the context'
        )
      )
      start = nearest_start
    answers.append(labeled_examples.Answer(text, start))
  return tuple(answers)


def _convert_offset(context: str, text: str, start: int) -> tuple[str, int]:
  """Finds the answer that an offset in characters does not locate.

  Returns:
    The unit in which the offset locates the text, such as 'UTF-8 bytes', and
    the offset in characters. If there is no such unit, the result is '' and the
    offset of the nearest occurrence.
  """
  for encoding, size, unit in _OFFSET_UNITS:
    encoded = context.encode(encoding, 'surrogatepass')
    offset = start * size
    if start >= 0 and encoded.startswith(
      text.encode(encoding, 'surrogatepass'), offset
    ):
      return unit, len(encoded[:offset].decode(encoding, 'surrogatepass'))
  return '', _find_nearest(context, text, start)


def _warn_of_offsets(
  examples: Sequence[labeled_examples.Question],
  path: str | os.PathLike,
  offset_units: Sequence[str],
) -> None:
  """Logs a warning if many answers are not at their offsets."""
  num_answers = sum(len(example.answers) for example in examples)
  num_wrong = len(offset_units)
  if num_wrong < max(_MIN_WRONG, _MIN_WRONG_FRACTION * num_answers):
    return
  unit, count = collections.Counter(offset_units).most_common(1)[0]
  _LOG.warning(
    '%s: %d of %d answers do not occur at the offset `answer_start` of the '
    'context. %s',
    path,
    num_wrong,
    num_answers,
    f'{count} offsets count {unit} and are converted to characters. '
    'Write offsets in characters to the file.'
    if unit
    else 'The nearest occurrence of the text is used, which may be another one '
    'than the annotated answer. Check whether the contexts were changed after '
    'the offsets were computed.',
    extra=logs.ONCE,
  )


def _find_nearest(context: str, text: str, start: int) -> int:
  """Returns the offset at which a text occurs nearest to `start`.

  Returns -1 if the context does not contain the text.
  """
  offsets = []
  offset = context.find(text)
  while offset >= 0:
    offsets.append(offset)
    offset = context.find(text, offset + 1)
  return min(offsets, key=lambda offset: abs(offset - start), default=-1)


def _make_unique(question_id: str, counts: dict[str, int]) -> str:
  """Appends a number to the id of a question if an earlier question has it.

  Args:
    question_id: Id of the question.
    counts: Number of questions read so far with each id. This function updates
      the numbers.
  """
  counts[question_id] = counts.get(question_id, 0) + 1
  if counts[question_id] == 1:
    return question_id
  return f'{question_id}#{counts[question_id]}'


def _get_field(
  value: Any, key: str, types: type | tuple[type, ...], path, where: str
) -> Any:
  """Returns a field of a JSON object and checks its type."""
  field = value.get(key) if isinstance(value, dict) else None
  if not isinstance(field, types):
    contents = (
      ', '.join(value)
      if isinstance(value, dict)
      else file_reading.shorten_quoted(json.dumps(value, ensure_ascii=False))
    )
    type_names = [
      t.__name__ for t in (types if isinstance(types, tuple) else (types,))
    ]
    raise file_reading.malformed_line_error(
      f'The JSON object must have a field {key!r} of the type '
      f'{" or ".join(type_names)}',
      path,
      where,
      got=contents,
    )
  return field
