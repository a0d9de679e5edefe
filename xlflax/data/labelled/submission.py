"""Predictions in the files that XTREME's leaderboard takes.

One folder for each task, one file for each language, `xnli/test-fr.tsv`. The
functions give a file's text, for `EvalResult.files` or `write`.

Hu et al. 2020; README and `evaluate.py` of github.com/google-research/xtreme.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from xlflax import errors, paths
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled import xtreme

_ANSWERS = 'question_answering'


def file_name(task: str, language: str) -> str:
  """The file of a task's predictions in a language: 'xnli/test-fr.tsv'.

  Raises:
    ConfigError: XTREME has no such task, or not this language in it.
  """
  known = xtreme.task(task)
  language = language.removesuffix('-en')
  if language not in known.languages:
    raise errors.ConfigError(
      f"XTREME's task {task} has no such language",
      got=language,
      expected='one of ' + ', '.join(known.languages),
    )
  ending = 'json' if known.kind == _ANSWERS else 'tsv'
  return f'{task}/test-{language}.{ending}'


def labels(
  examples: Sequence[examples_lib.Example], predictions: Sequence[str]
) -> str:
  """One class a line, in the order of the examples.

  Raises:
    CorpusError: not one prediction for each example.
  """
  _check_number(len(examples), len(predictions), 'classes')
  return _lines(predictions)


def tags(
  examples: Sequence[examples_lib.TaggedSentence],
  predictions: Sequence[Sequence[str]],
) -> str:
  """One tag a line for each word, an empty line between sentences.

  Raises:
    CorpusError: not one prediction for each sentence, or for each word.
  """
  _check_number(len(examples), len(predictions), 'sentences')
  for example, predicted in zip(examples, predictions, strict=True):
    _check_number(
      len(example.words), len(predicted), f'tags of sentence {example.id}'
    )
  return '\n'.join(map(_lines, predictions))


def answers(
  examples: Sequence[examples_lib.Question], predictions: Mapping[str, str]
) -> str:
  """A JSON object from the questions' ids to the answers' text.

  Raises:
    CorpusError: a question without an answer, or an answer without a question.
  """
  ids = [example.id for example in examples]
  odd = set(ids) ^ set(predictions)
  if odd:
    raise errors.CorpusError(
      'The questions and the predicted answers differ',
      got=f'{len(predictions)} answers to {len(ids)} questions, such as '
      f'{min(odd)} on one side only',
      expected='one answer a question',
    )
  return (
    json.dumps(
      {name: predictions[name] for name in ids}, ensure_ascii=False, indent=1
    )
    + '\n'
  )


def pairs(
  mined: examples_lib.MinedSentences, predictions: Iterable[tuple[str, str]]
) -> str:
  """Mined pairs, `id<TAB>id` a line, sorted (BUCC).

  Raises:
    CorpusError: an id that no sentence has.
  """
  found = sorted(set(predictions))
  for pair in found:
    if pair[0] not in mined.first or pair[1] not in mined.second:
      raise errors.CorpusError(
        'A mined pair has an id that no sentence has',
        got=' '.join(pair),
        expected='(id of the first, id of the second)',
      )
  return _lines('\t'.join(pair) for pair in found)


def nearest(
  mined: examples_lib.MinedSentences, predictions: Sequence[int]
) -> str:
  """For each sentence of the first language, its translation's line (Tatoeba).

  Lines of the second language are counted from 0.

  Raises:
    CorpusError: not one prediction for each sentence, or one past the end.
  """
  _check_number(len(mined.first), len(predictions), 'sentences')
  for place in predictions:
    if not 0 <= place < len(mined.second):
      raise errors.CorpusError(
        'A retrieved sentence does not exist',
        got=place,
        expected=f'a line from 0 to {len(mined.second) - 1}',
      )
  return _lines(str(int(place)) for place in predictions)


def write(directory: str, contents: Mapping[str, str]) -> tuple[str, ...]:
  """Writes files (name from `file_name` -> text) and tells what lacks.

  Args:
    directory: of the submission; what is there of other names stays.
    contents: texts by file name.

  Returns:
    The files that a complete submission needs and the folder lacks.
  """
  root = paths.of(directory)
  for name, text in contents.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8')
  needed = [
    file_name(task, language)
    for task, known in xtreme.TASKS.items()
    for language in known.languages
  ]
  return tuple(name for name in needed if not (root / name).is_file())


def is_blind(examples: Iterable[examples_lib.Example]) -> bool:
  """Whether no example has what an evaluation would compare with."""
  return not any(_gold(example) for example in examples)


def _gold(example: examples_lib.Example):
  for name in ('label', 'tags', 'heads', 'answers', 'sure'):
    if name == 'tags' and isinstance(example, examples_lib.ParsedSentence):
      continue
    if hasattr(example, name):
      return getattr(example, name)
  return None


def _check_number(expected: int, got: int, what: str) -> None:
  if expected != got:
    raise errors.CorpusError(
      'The predictions do not fit the test set',
      got=f'{got} {what}',
      expected=str(expected),
    )


def _lines(items: Iterable[str]) -> str:
  return ''.join(f'{item}\n' for item in items)
