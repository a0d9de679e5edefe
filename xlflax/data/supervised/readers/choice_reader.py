"""Readers for multiple-choice questions in the formats of public benchmarks.

The supported benchmarks are XCOPA, Belebele, XStoryCloze and XWinograd.
Sources: Ponti et al. (2020), "XCOPA"; Bandarkar et al. (2024), "The Belebele
Benchmark"; Lin et al. (2022), "Few-shot Learning with Multilingual Generative
Language Models"; Tikhonov and Ryabinin (2021), "It's All in the Heads".
"""

import csv
import os
from collections.abc import Sequence
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.utils import validation

_QUESTIONS = {'cause': 'What was the cause?', 'effect': 'What was the effect?'}
_BELEBELE_ANSWERS = ('mc_answer1', 'mc_answer2', 'mc_answer3', 'mc_answer4')
_NUM_STORY_FIELDS = 8


@file_formats.register_reader('xcopa', example=labeled_examples.Choice)
def read_xcopa(
  path: str | os.PathLike, language: str, *, blind_if_all_zero: bool = False
) -> file_reading.Reading:
  """Reads JSON lines with a premise and two choices, in the XCOPA format.

  For example, `{"premise": "P", "question": "cause", "choice1": "A", "choice2":
  "B", "label": 1}` gives two choices for the text P: 'What was the cause? A'
  (wrong) and 'What was the cause? B' (right).

  Args:
    path: Path of the file.
    language: Language code of the text.
    blind_if_all_zero: Whether to treat a file as a blind test set if it has
      several questions and all their labels are 0, as in the test sets that
      XTREME-R's script writes. If False, such labels are gold labels.

  Raises:
    CorpusError: If an object lacks a key (the error contains the file and the
      line), or if the file is empty.
  """
  blind_if_all_zero = validation.validate(
    blind_if_all_zero, bool, name='blind_if_all_zero'
  )
  examples: list[labeled_examples.Example] = []
  values = list(file_reading.read_json_lines(path))
  is_blind = (
    blind_if_all_zero
    and len(values) > 1
    and all(value.get('label') == 0 for _, value in values)
  )
  seen_ids: set[str] = set()
  for number, value in values:
    question = _get_text(value, 'question', path, number)
    examples += _make_choices(
      _get_id(value, number - 1, seen_ids, path, number),
      language,
      _get_text(value, 'premise', path, number),
      [_get_text(value, name, path, number) for name in ('choice1', 'choice2')],
      None
      if is_blind
      else _parse_answer(value.get('label'), path, number, 0, 1),
      question=_QUESTIONS.get(question, question),
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


@file_formats.register_reader('belebele', example=labeled_examples.Choice)
def read_belebele(
  path: str | os.PathLike, language: str
) -> file_reading.Reading:
  """Reads JSON lines with a passage, a question and four choices (Belebele).

  Raises:
    CorpusError: If an object lacks a key (the error contains the file and the
      line), or if the file is empty.
  """
  examples: list[labeled_examples.Example] = []
  for number, value in file_reading.read_json_lines(path):
    right = _parse_answer(value.get('correct_answer_num'), path, number, 1, 4)
    examples += _make_choices(
      str(number - 1),
      language,
      _get_text(value, 'flores_passage', path, number),
      [_get_text(value, name, path, number) for name in _BELEBELE_ANSWERS],
      right,
      question=_get_text(value, 'question', path, number),
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


@file_formats.register_reader(
  'belebele_training', example=labeled_examples.Choice
)
def read_belebele_training(
  path: str | os.PathLike, language: str, *, split: str | None = None
) -> file_reading.Reading:
  """Reads Belebele's training set, a TSV file written by Belebele's script.

  Args:
    path: Path of the file.
    language: Language code of the text, such as 'en' for the published table.
    split: Split to read, 'train' or 'dev'. If None, both are read.

  Raises:
    CorpusError: If there are no rows, if a row lacks the text of a column, or
      if the right answer is not a number from 1 to 4. An error in a row
      contains the file and the line.
  """
  examples: list[labeled_examples.Example] = []
  for number, row in file_reading.read_csv(path):
    if split is not None and row.get('split') != split:
      continue
    # pandas writes integers as floats if a value of the column is missing.
    answer = _get_text(row, 'correct_answer_num', path, number)
    right = _parse_answer(answer.removesuffix('.0'), path, number, 1, 4)
    examples += _make_choices(
      str(len(examples) // 4),
      language,
      _get_text(row, 'passage', path, number),
      [
        _get_text(row, f'answer{choice}', path, number)
        for choice in range(1, 5)
      ],
      right,
      question=_get_text(row, 'question', path, number),
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


@file_formats.register_reader('xstory_cloze', example=labeled_examples.Choice)
def read_xstory_cloze(
  path: str | os.PathLike, language: str
) -> file_reading.Reading:
  """Reads quoted TSV rows with a story and two endings, as in XStoryCloze.

  For example, `id<TAB>A.<TAB>B.<TAB>C.<TAB>D.<TAB>E.<TAB>F.<TAB>1` gives two
  choices for the text 'A. B. C. D.': 'E.' (right) and 'F.' (wrong). Rows with a
  different number of fields are skipped and listed as problems.

  Raises:
    CorpusError: If the number of the correct ending is not 1 or 2 (the error
      contains the file and the line), or if there are no rows.
  """
  examples: list[labeled_examples.Example] = []
  problems = []
  for number, line in file_reading.read_lines(path):
    # A quoted field cannot contain a line break. A quotation mark that is not
    # closed therefore affects only its own line.
    row = next(csv.reader([line], delimiter='\t', skipinitialspace=True), [])
    if number == 1:
      _check_story_header(row, path)
      continue
    if not row:
      continue
    if len(row) != _NUM_STORY_FIELDS:
      problems.append(f'{path}:{number}: Skipping a row with {len(row)} fields')
      continue
    story_id, *texts, answer = map(str.strip, row)
    right = _parse_answer(answer, path, number, 1, 2)
    examples += _make_choices(
      story_id, language, ' '.join(texts[:4]), texts[4:], right
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples, tuple(problems))


def _check_story_header(row: Sequence[str], path) -> None:
  """Raises a CorpusError if the first row is a story instead of a header."""
  if len(row) == _NUM_STORY_FIELDS and row[-1].strip() in ('1', '2'):
    raise file_reading.malformed_line_error(
      f'The header must contain the names of {_NUM_STORY_FIELDS} columns',
      path,
      1,
      got=file_reading.shorten_quoted(' | '.join(row)),
    )


@file_formats.register_reader('xwinograd', example=labeled_examples.Choice)
def read_xwinograd(
  path: str | os.PathLike, language: str
) -> file_reading.Reading:
  """Reads JSON lines that each contain a sentence with a gap and two options.

  The gap is written as `_`, and the options are noun phrases.

  For example, `{"sentence": "A or B? _ won.", "option1": "A", "option2": "B",
  "answer": "2"}` gives the texts 'A or B? A' (wrong) and 'A or B? B' (right).
  Both have the choice 'won.', which is the text after the gap.

  Raises:
    CorpusError: If an object lacks a key, a sentence lacks `_`, or an answer is
      not 1 or 2 (the error contains the file and the line), or if the file is
      empty.
  """
  examples: list[labeled_examples.Example] = []
  for number, value in file_reading.read_json_lines(path):
    before, gap, after = _get_text(value, 'sentence', path, number).partition(
      '_'
    )
    if not gap:
      raise file_reading.malformed_line_error(
        'The sentence must contain the character _, which marks the gap',
        path,
        number,
        got=file_reading.shorten_quoted(before),
      )
    nouns = [_get_text(value, f'option{i}', path, number) for i in (1, 2)]
    right = _parse_answer(value.get('answer'), path, number, 1, 2)
    texts = [before + noun for noun in nouns]
    choices = [after.strip()] * 2
    examples += _make_choices(str(number - 1), language, texts, choices, right)
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _parse_answer(
  answer: Any, path, number: int, first: int, last: int
) -> int | None:
  """Returns the index of the correct choice, or None if it is not given.

  Args:
    answer: Number of the correct choice, as read from the file.
    path: Path of the file, for error messages.
    number: Line number, for error messages.
    first: Number that the file uses for the first choice.
    last: Number that the file uses for the last choice.
  """
  if answer in (None, '', -1, '-1'):
    return None
  if str(answer) not in map(str, range(first, last + 1)):
    raise file_reading.malformed_line_error(
      f'The answer must be the number of a choice, from {first} to {last}',
      path,
      number,
      got=repr(answer),
    )
  return int(answer) - first


def _make_choices(
  question_id: str,
  language: str,
  text: str | Sequence[str],
  choices: Sequence[str],
  right: int | None,
  *,
  question: str = '',
) -> list[labeled_examples.Choice]:
  """Returns one example for each choice of a question.

  Args:
    question_id: Id of the question.
    language: Language code of the text.
    text: Text that the question is about, or one such text for each choice.
    choices: Texts of the choices.
    right: Index of the correct choice. None if the file does not specify it.
    question: Text of the question, which is prepended to each choice.
  """
  labels = (choice_examples.WRONG, choice_examples.RIGHT)
  texts = [text] * len(choices) if isinstance(text, str) else text
  return [
    labeled_examples.Choice(
      id=f'{question_id}#{index}',
      question=question_id,
      language=language,
      text=texts[index],
      paired_text=f'{question} {choice}'.lstrip(),
      label=None if right is None else labels[index == right],
    )
    for index, choice in enumerate(choices)
  ]


def _get_id(
  value: dict, default: int, seen_ids: set[str], path, number: int
) -> str:
  """Returns a question's id, and checks that no earlier question has this id.

  Args:
    value: JSON object of the question.
    default: Id to use if the object has no key `idx` or the value is null.
    seen_ids: Ids of the earlier questions. The function adds the question's id.
    path: Path of the file, for error messages.
    number: Line number, for error messages.
  """
  index = value.get('idx')
  index = default if index is None else index
  question_id = str(index)
  if not isinstance(index, int | str) or question_id in seen_ids:
    raise file_reading.malformed_line_error(
      'The value of `idx` must be an integer or a string that occurs only '
      'once in the file',
      path,
      number,
      got=repr(index)[:60],
    )
  seen_ids.add(question_id)
  return question_id


def _get_text(value: dict, key: str, path, number: int) -> str:
  """Returns the text of a key and checks that it is not empty."""
  text = value.get(key)
  if not isinstance(text, str) or not text.strip():
    raise file_reading.malformed_line_error(
      f'The JSON object must have a key {key!r} that contains text. The keys '
      f'of the object are {", ".join(value)}',
      path,
      number,
    )
  return text.strip()
