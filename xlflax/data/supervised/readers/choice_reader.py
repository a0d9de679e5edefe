"""Multiple choice: XCOPA, Belebele, XStoryCloze, XWinograd.

Ponti et al. 2020, "XCOPA"; Bandarkar et al. 2024, "The Belebele Benchmark";
Lin et al. 2022, "Few-shot Learning with Multilingual Generative Language
Models"; Tikhonov and Ryabinin 2021, "It's All in the Heads".
"""

import csv
import enum
import os
from collections.abc import Sequence
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.data.supervised.readers import file_reading

_ASKED = {'cause': 'What was the cause?', 'effect': 'What was the effect?'}


class Zeros(enum.Enum):
  """What a file says whose labels are all 0."""

  GOLD = 'gold'
  BLIND = 'blind'


_BELEBELE = tuple(f'mc_answer{number}' for number in range(1, 5))
_STORY = 8  # fields


@file_formats.register_reader('xcopa', example=labeled_examples.Choice)
def read_xcopa(
  path: str | os.PathLike, language: str, *, zeros: Zeros | str = 'gold'
) -> file_reading.Reading:
  """Reads a premise with two choices a line.

  Before: `{"premise": "P", "question": "cause", "choice1": "A", "choice2":
  "B", "label": 1}`; after: two choices of the text P, 'What was the cause? A'
  (wrong) and 'What was the cause? B' (right).

  Args:
    path: of the file.
    language: of the text.
    zeros: 'blind': a file of several questions whose labels are all 0 is a
      blind one, as XTREME-R's script leaves its test sets.

  Raises:
    CorpusError: file:line of an object that lacks a key; an empty file.
  """
  examples: list[labeled_examples.Example] = []
  values = list(file_reading.read_json_lines(path))
  blanked = (
    Zeros(zeros) is Zeros.BLIND
    and len(values) > 1
    and all(value.get('label') == 0 for _, value in values)
  )
  for number, value in values:
    kind = _get(value, 'question', path, number)
    examples += _choices(
      str(value.get('idx', number - 1)),
      language,
      _get(value, 'premise', path, number),
      [_get(value, name, path, number) for name in ('choice1', 'choice2')],
      None if blanked else _right(value.get('label'), path, number, 0, 1),
      asked=_ASKED.get(kind, kind),
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


@file_formats.register_reader('belebele', example=labeled_examples.Choice)
def read_belebele(
  path: str | os.PathLike, language: str
) -> file_reading.Reading:
  """Reads a passage, a question and four choices a line.

  Raises:
    CorpusError: file:line of an object that lacks a key; an empty file.
  """
  examples: list[labeled_examples.Example] = []
  for number, value in file_reading.read_json_lines(path):
    right = _right(value.get('correct_answer_num'), path, number, 1, 4)
    examples += _choices(
      str(number - 1),
      language,
      _get(value, 'flores_passage', path, number),
      [_get(value, name, path, number) for name in _BELEBELE],
      right,
      asked=_get(value, 'question', path, number),
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


@file_formats.register_reader(
  'belebele_training', example=labeled_examples.Choice
)
def read_belebele_training(
  path: str | os.PathLike, language: str, *, split: str | None = None
) -> file_reading.Reading:
  """Reads the table of `assemble_training_set.py`: TSV as pandas writes it.

  Args:
    path: of the file.
    language: of the text, English as published.
    split: 'train' or 'dev', whose rows are taken; None: both.

  Raises:
    CorpusError: file:line of a row without a column's text; no rows.
  """
  examples: list[labeled_examples.Example] = []
  for number, row in file_reading.read_csv(path):
    if split is not None and row.get('split') != split:
      continue
    right = _get(row, 'correct_answer_num', path, number)
    examples += _choices(
      str(len(examples) // 4),
      language,
      _get(row, 'passage', path, number),
      [_get(row, f'answer{choice}', path, number) for choice in range(1, 5)],
      int(float(right)) - 1,
      asked=_get(row, 'question', path, number),
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


@file_formats.register_reader('xstory_cloze', example=labeled_examples.Choice)
def read_xstory_cloze(
  path: str | os.PathLike, language: str
) -> file_reading.Reading:
  """Reads a story of four sentences and two endings a row, TSV with quotes.

  Before: `id<TAB>A.<TAB>B.<TAB>C.<TAB>D.<TAB>E.<TAB>F.<TAB>1`; after: two
  choices of the text 'A. B. C. D.', 'E.' (right) and 'F.' (wrong). Rows of
  another number of fields are problems.

  Raises:
    CorpusError: file:line of a right ending that is not 1 or 2; no rows.
  """
  lines = (f'{line}\n' for _, line in file_reading.read_lines(path))
  rows = csv.reader(lines, delimiter='\t', skipinitialspace=True)
  next(rows, None)  # the header
  examples: list[labeled_examples.Example] = []
  problems = []
  for row in filter(None, rows):
    if len(row) != _STORY:
      problems.append(f'{path}:{rows.line_num}: {len(row)} fields: left out')
      continue
    story, *texts, answer = map(str.strip, row)
    right = _right(answer, path, rows.line_num, 1, 2)
    examples += _choices(story, language, ' '.join(texts[:4]), texts[4:], right)
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples, tuple(problems))


@file_formats.register_reader('xwinograd', example=labeled_examples.Choice)
def read_xwinograd(
  path: str | os.PathLike, language: str
) -> file_reading.Reading:
  """Reads a sentence with `_` for a noun phrase, and two of them, a line.

  Before: `{"sentence": "A or B? _ won.", "option1": "A", "option2": "B",
  "answer": "2"}`; after: the texts 'A or B? A' (wrong) and 'A or B? B'
  (right), both with the choice 'won.': what follows tells.

  Raises:
    CorpusError: file:line of an object that lacks a key, of a sentence without
      `_`, of an answer that is not 1 or 2; an empty file.
  """
  examples: list[labeled_examples.Example] = []
  for number, value in file_reading.read_json_lines(path):
    before, gap, after = _get(value, 'sentence', path, number).partition('_')
    if not gap:
      raise file_reading.malformed_line_error(
        'line of multiple choice', path, number, 'no _'
      )
    nouns = [_get(value, f'option{i}', path, number) for i in (1, 2)]
    right = _right(value.get('answer'), path, number, 1, 2)
    texts, choices = [before + noun for noun in nouns], [after.strip()] * 2
    examples += _choices(str(number - 1), language, texts, choices, right)
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _right(answer: Any, path, number: int, first: int, last: int) -> int | None:
  """The right choice from 0, of numbers from `first`; None: it is not told."""
  if answer in (None, '', -1, '-1'):
    return None
  if str(answer) not in map(str, range(first, last + 1)):
    raise file_reading.malformed_line_error(
      'right choice', path, number, repr(answer), expected=f'{first} to {last}'
    )
  return int(answer) - first


def _choices(
  question: str,
  language: str,
  text: str | Sequence[str],
  choices: Sequence[str],
  right: int | None,
  *,
  asked: str = '',
) -> list[labeled_examples.Choice]:
  """The choices of a question about a text, or about a text for each."""
  labels = (choice_examples.WRONG, choice_examples.RIGHT)
  texts = [text] * len(choices) if isinstance(text, str) else text
  return [
    labeled_examples.Choice(
      id=f'{question}#{number}',
      question=question,
      language=language,
      text=texts[number],
      paired_text=f'{asked} {choice}'.lstrip(),
      label=None if right is None else labels[number == right],
    )
    for number, choice in enumerate(choices)
  ]


def _get(value: dict, key: str, path, number: int) -> str:
  text = value.get(key)
  if not isinstance(text, str) or not text.strip():
    raise file_reading.malformed_line_error(
      'line of multiple choice',
      path,
      number,
      'the keys ' + ', '.join(value),
      expected=f'text of the key {key}',
    )
  return text.strip()
