"""Examples as dicts of plain columns, which SeqIO tasks carry, and back.

Every column is text, a list of text or a list of numbers; what is None is ''
or an empty list.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlflax import errors
from xlflax.data.labelled import examples as examples_lib

TEXT, TEXTS, NUMBERS = 'text', 'texts', 'numbers'
MINED = 'mining'
_BOTH = {'id': TEXT, 'language': TEXT}
COLUMNS: Mapping[str, Mapping[str, str]] = {
  'classification': _BOTH
  | {'text': TEXT, 'paired_text': TEXT, 'paired_language': TEXT, 'label': TEXT},
  'tagging': _BOTH | {'words': TEXTS, 'tags': TEXTS},
  'parsing': _BOTH
  | {'words': TEXTS, 'tags': TEXTS, 'heads': NUMBERS, 'relations': TEXTS},
  'question_answering': _BOTH
  | {
    'question': TEXT,
    'question_language': TEXT,
    'context': TEXT,
    'title': TEXT,
    'answers': TEXTS,
    'answer_starts': NUMBERS,
  },
  'word_alignment': _BOTH
  | {
    'target_language': TEXT,
    'source_words': TEXTS,
    'target_words': TEXTS,
    'sure': TEXTS,
    'possible': TEXTS,
  },
  # One row for each sentence of the two collections.
  MINED: _BOTH | {'text': TEXT, 'translations': TEXTS},
}
# Columns that a task of one's own may leave out.
_OPTIONAL = frozenset(
  (
    'id',
    'language',
    'paired_text',
    'paired_language',
    'question_language',
    'title',
    'target_language',
    'possible',
  )
)
_CLASSES = {
  kind.KIND: kind
  for kind in (
    examples_lib.ClassifiedText,
    examples_lib.TaggedSentence,
    examples_lib.ParsedSentence,
    examples_lib.Question,
    examples_lib.AlignedSentence,
  )
}


def check_kind(kind: str) -> None:
  """Raises a ConfigError for a kind of examples that there is not."""
  if kind not in COLUMNS:
    raise errors.ConfigError(
      'There is no such kind of examples',
      got=kind,
      expected='one of ' + ', '.join(COLUMNS),
    )


def to_row(example: examples_lib.Example) -> dict[str, Any]:
  """The columns of an example.

  Before: `TaggedSentence(id='0', language='fr', words=('Paris',),
  tags=('B-LOC',))`; after: `{'id': '0', 'language': 'fr', 'words': ['Paris'],
  'tags': ['B-LOC']}`.
  """
  values = {
    field.name: getattr(example, field.name)
    for field in dataclasses.fields(example)
  }
  if isinstance(example, examples_lib.Question):
    values['answer_starts'] = [a.start for a in example.answers]
    values['answers'] = [a.text for a in example.answers]
  if isinstance(example, examples_lib.AlignedSentence):
    for name in ('sure', 'possible'):
      values[name] = [f'{i}-{j}' for i, j in sorted(values[name])]
  return {
    name: (values[name] or '') if form == TEXT else list(values[name] or ())
    for name, form in COLUMNS[example.KIND].items()
  }


def from_row(
  kind: str,
  row: Mapping[str, Any],
  *,
  number: int,
  languages: tuple[str, ...],
  where: str,
) -> examples_lib.Example:
  """The example of a row; the inverse of `to_row`.

  Args:
    kind: of the examples.
    row: columns, text as `str` or `bytes`.
    number: of the row; the id of one that has none.
    languages: of the task; the second for the paired text, question or target.
    where: the task, for messages.

  Raises:
    CorpusError: the row lacks a column, or columns do not fit each other.
  """
  row = _checked(kind, row, where)
  second = languages[1] if len(languages) > 1 else None
  row['id'] = row.get('id') or str(number)
  row['language'] = row.get('language') or languages[0]
  if kind == 'classification':
    row['paired_language'] = row.get('paired_language') or second
    for name in ('paired_text', 'paired_language', 'label'):
      row[name] = row.get(name) or None
  elif kind == 'question_answering':
    row['question_language'] = row.get('question_language') or second
    row['answers'] = tuple(
      map(examples_lib.Answer, row['answers'], row.pop('answer_starts'))
    )
  elif kind == 'word_alignment':
    row['target_language'] = row.get('target_language') or second
    row['sure'] = _links(row['sure'])
    row['possible'] = row['sure'] | _links(row.get('possible', ()))
  else:
    for name in ('tags', 'heads', 'relations'):
      if name in row and (name != 'tags' or kind == 'tagging'):
        row[name] = row[name] or None
  return _CLASSES[kind](**row)


def _checked(kind: str, row: Mapping[str, Any], where: str) -> dict[str, Any]:
  missing = set(COLUMNS[kind]) - set(row) - _OPTIONAL
  if missing:
    raise errors.CorpusError(
      f'The examples of a {kind} task lack a feature',
      got=', '.join(sorted(row)),
      expected=', '.join(sorted(missing)),
      where=where,
      fix='let a preprocessor of the task rename its features',
    )
  values = {}
  for name, form in COLUMNS[kind].items():
    if name in row:
      values[name] = _plain(row[name], form)
  sizes = {
    name: len(values[name])
    for name in ('words', 'tags', 'heads', 'relations')
    if values.get(name)
  }
  if len(set(sizes.values())) > 1:
    raise errors.CorpusError(
      'The words of an example and their labels differ in number',
      got=', '.join(f'{size} {name}' for name, size in sizes.items()),
      where=f'{where}, example {values.get("id", "")}',
    )
  return values


def _plain(value: Any, form: str) -> Any:
  if form == TEXT:
    return value.decode() if isinstance(value, bytes) else str(value)
  if form == NUMBERS:
    return tuple(int(item) for item in value)
  return tuple(
    item.decode() if isinstance(item, bytes) else str(item) for item in value
  )


def _links(texts) -> frozenset[tuple[int, int]]:
  pairs = (text.split('-') for text in texts)
  return frozenset((int(i), int(j)) for i, j in pairs)
