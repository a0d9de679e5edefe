"""Reader for queries and documents, used for contrastive fine-tuning."""

import os
from collections.abc import Mapping
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading

QUERY, DOCUMENT = 'query', 'document'
_KIND = 'line of a query and its documents'
_EXPECTED = 'a query, a document that answers it, and hard negatives'
_COLUMN_NAMES = frozenset(
  (
    'anchor',
    'document',
    'negative',
    'negatives',
    'passage',
    'positive',
    'query',
  )
)


@file_formats.register_reader('search', example=labeled_examples.ClassifiedText)
def read_query_documents(
  path: str | os.PathLike,
  language: str,
  *,
  texts: int = 2,
  prompts: Mapping[str, str] | None = None,
) -> file_reading.Reading:
  """Reads one query and its documents per line, from TSV or JSON lines.

  For example, `Who?<TAB>It was she.<TAB>It rains.`, or `{"query": "Who?",
  "positive": "It was she.", "negatives": ["It rains."]}`, with `texts` 3 gives
  one example each for the query and the two documents, in this order.

  Args:
    path: Path of the file. It is read as JSON lines if its name contains
      `.jsonl`, and otherwise as TSV.
    language: Language code of the texts.
    texts: Number of texts to read per line: one query and its documents.
      Additional negatives are ignored.
    prompts: Texts that are prepended to each query (key `query`) and to each
      document (key `document`).

  Raises:
    CorpusError: If a query has fewer than `texts` texts (the error contains the
      file and the line), or if the file is empty.
  """
  prefixes = {QUERY: '', DOCUMENT: ''} | dict(prompts or {})
  examples: list[labeled_examples.Example] = []
  for number, fields in _read_rows(path):
    if len(fields) < texts or not all(text.strip() for text in fields[:texts]):
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        f'{len(fields)} texts: '
        + file_reading.shorten_quoted(' | '.join(fields)),
        expected=f'{texts} texts that are not empty: {_EXPECTED}',
      )
    for index, text in enumerate(fields[:texts]):
      label = DOCUMENT if index else QUERY
      examples.append(
        labeled_examples.ClassifiedText(
          id=f'{number}.{index}',
          language=language,
          text=prefixes[label] + text,
          label=label,
        )
      )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _read_rows(path):
  """Yields the number, counted from 1, and the texts of each line."""
  if '.jsonl' not in os.path.basename(path):
    for number, line in file_reading.read_lines(path):
      if line.strip():
        fields = line.split('\t')
        if number == 1:
          file_reading.check_no_header(fields, _COLUMN_NAMES, path)
        yield number, fields
    return
  for number, value in file_reading.read_json_lines(path):
    negatives = _first_value(value, 'negatives', 'negative', default=[])
    negatives = negatives if isinstance(negatives, list) else [negatives]
    texts = [
      _first_value(value, 'query', 'anchor', default=''),
      _first_value(value, 'positive', default=''),
      *negatives,
    ]
    for text in texts:
      if not isinstance(text, str):
        raise file_reading.malformed_line_error(
          _KIND, path, number, repr(text)[:60], expected=f'texts: {_EXPECTED}'
        )
    yield number, texts


def _first_value(value: Mapping[str, Any], *names: str, default: Any) -> Any:
  """Returns the first of several keys' values that is not null."""
  values = (value[name] for name in names if value.get(name) is not None)
  return next(values, default)
