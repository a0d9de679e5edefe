"""What contrastive fine-tuning for search reads: queries and documents."""

import os
from collections.abc import Mapping
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading

QUERY, DOCUMENT = 'query', 'document'
_EXPECTED = 'a query, a document that answers it, and hard negatives'


@file_formats.register_reader('search', example=labeled_examples.ClassifiedText)
def read_query_documents(
  path: str | os.PathLike,
  language: str,
  *,
  texts: int = 2,
  prompts: Mapping[str, str] | None = None,
) -> file_reading.Reading:
  """Reads a query with its documents a line, from TSV or JSON lines.

  Before: `Who?<TAB>It was she.<TAB>It rains.`, or `{"query": "Who?",
  "positive": "It was she.", "negatives": ["It rains."]}`, with `texts` 3;
  after: the query and two documents, one example each, in this order.

  Args:
    path: of the file; JSON lines where its name has `.jsonl`.
    language: of the texts.
    texts: of each query, itself included; further negatives are not read.
    prompts: what stands before a `query` and a `document`.

  Raises:
    CorpusError: file:line of a query with fewer texts; an empty file.
  """
  before = {QUERY: '', DOCUMENT: ''} | dict(prompts or {})
  examples: list[labeled_examples.Example] = []
  for number, line in _rows(path):
    if len(line) < texts or not all(text.strip() for text in line[:texts]):
      raise file_reading.malformed_line_error(
        'line of a query and its documents',
        path,
        number,
        f'{len(line)} texts: {file_reading.shorten_quoted(" | ".join(line))}',
        expected=f'{texts} texts that are not empty: {_EXPECTED}',
      )
    for index, text in enumerate(line[:texts]):
      label = DOCUMENT if index else QUERY
      examples.append(
        labeled_examples.ClassifiedText(
          id=f'{number}.{index}',
          language=language,
          text=before[label] + text,
          label=label,
        )
      )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _rows(path):
  """Yields (number from 1, texts) of a file's lines."""
  if '.jsonl' not in os.path.basename(path):
    for number, line in file_reading.read_lines(path):
      if line.strip():
        yield number, line.split('\t')
    return
  for number, value in file_reading.read_json_lines(path):
    negatives: Any = value.get('negatives', value.get('negative')) or []
    negatives = negatives if isinstance(negatives, list) else [negatives]
    texts = [
      value.get('query', value.get('anchor')) or '',
      value.get('positive') or '',
      *negatives,
    ]
    for text in texts:
      if not isinstance(text, str):
        raise file_reading.malformed_line_error(
          'line of a query and its documents',
          path,
          number,
          repr(text)[:60],
          expected=f'texts: {_EXPECTED}',
        )
    yield number, texts
