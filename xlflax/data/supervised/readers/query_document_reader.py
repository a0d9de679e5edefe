"""Readers for queries and documents, for dense retrieval and rerankers."""

import math
import os
from collections.abc import Mapping
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading

QUERY, DOCUMENT = 'query', 'document'
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
    CorpusError: If the file is empty, if a line has fewer than `texts` texts
      (including the query), or if one of these texts is blank. An error in a
      line contains the file and the line.
  """
  prefixes = {QUERY: '', DOCUMENT: ''} | dict(prompts or {})
  examples: list[labeled_examples.Example] = []
  for number, fields, _ in _read_rows(path, texts):
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


@file_formats.register_reader('reranking', example=labeled_examples.RatedPair)
def read_reranking_groups(
  path: str | os.PathLike,
  language: str,
  *,
  documents: int = 2,
  scores: bool = False,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads pairs of a query and each of its documents, for training rerankers.

  The files are in `search` format. For example, `{"query": "Who?",
  "positive": "It was she.", "negatives": ["It rains."]}` with `documents` 2
  gives a pair of the query and the positive document with the score 1, and a
  pair of the query and the negative document with the score 0, in this order.

  Args:
    path: Path of the file. It is read as JSON lines if its name contains
      `.jsonl`, and otherwise as TSV.
    language: Language code of the queries.
    documents: Number of documents to read per line: the positive document and
      its negatives. Additional negatives are ignored.
    scores: Whether to read the scores of a teacher model from the file. Each
      JSON line must then contain the key `scores`, a list with one number for
      the positive document and for each negative. If False, the score is 1 for
      the positive document and 0 for negatives.
    paired_language: Language code of the documents. If None, `language` is
      used.

  Raises:
    CorpusError: If a query has fewer than `documents` documents or scores (the
      error contains the file and the line), or if the file is empty.
  """
  pairs: list[labeled_examples.Example] = []
  for number, (query, *texts), teacher_scores in _read_rows(
    path, documents + 1
  ):
    targets = [1.0] + [0.0] * (documents - 1)
    if scores:
      targets = _check_scores(teacher_scores, documents, path, number)
    for index, (text, score) in enumerate(
      zip(texts[:documents], targets, strict=True)
    ):
      pairs.append(
        labeled_examples.RatedPair(
          id=f'{number}.{index}',
          language=language,
          text=query,
          paired_text=text,
          paired_language=paired_language,
          score=score,
        )
      )
  file_reading.check_any(pairs, path)
  return file_reading.Reading(pairs)


def _check_scores(
  teacher_scores: Any, documents: int, path, number: int
) -> list[float]:
  """Returns the teacher's scores for the first documents of a line."""
  values = teacher_scores if isinstance(teacher_scores, list) else []
  is_valid = len(values) >= documents and all(
    type(value) in (int, float) and math.isfinite(value) for value in values
  )
  if not is_valid:
    raise file_reading.malformed_line_error(
      f'The key `scores` must contain a list of {documents} numbers: '
      "the teacher's scores for the positive document and the negatives",
      path,
      number,
      got=repr(teacher_scores)[:60],
    )
  return [float(value) for value in values[:documents]]


def _read_rows(path, num_texts: int):
  """Yields the number, the texts and the teacher's scores of each line.

  Args:
    path: Path of the file.
    num_texts: Minimum number of texts per line. The first `num_texts` texts
      must not be empty.

  Yields:
    The one-based line number, the texts of the line, and the value of the key
    `scores`, or None.
  """
  rows = _read_json_rows if '.jsonl' in os.path.basename(path) else _read_tsv
  for number, fields, scores in rows(path):
    if len(fields) < num_texts or not all(
      text.strip() for text in fields[:num_texts]
    ):
      problem = (
        f'the line contains only {len(fields)}'
        if len(fields) < num_texts
        else 'at least one of them is empty'
      )
      raise file_reading.malformed_line_error(
        f'Each line must contain {_EXPECTED}. The first {num_texts} texts are '
        f'required and must not be empty, but {problem}',
        path,
        number,
        got=file_reading.shorten_quoted(' | '.join(fields)),
      )
    yield number, fields, scores


def _read_tsv(path):
  """Yields (line number, texts, None) for each line of a TSV file."""
  for number, line in file_reading.read_lines(path):
    if line.strip():
      fields = line.split('\t')
      if number == 1:
        file_reading.check_no_header(fields, _COLUMN_NAMES, path)
      yield number, fields, None


def _read_json_rows(path):
  """Yields the number, the texts and the scores of each JSON line."""
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
          f'The following values must be strings: {_EXPECTED}',
          path,
          number,
          got=repr(text)[:60],
        )
    yield number, texts, value.get('scores')


def _first_value(value: Mapping[str, Any], *names: str, default: Any) -> Any:
  """Returns the value of the first key whose value is not null."""
  values = (value[name] for name in names if value.get(name) is not None)
  return next(values, default)
