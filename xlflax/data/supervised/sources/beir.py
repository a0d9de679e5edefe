"""Source of queries, documents and relevance judgments for retrieval tasks.

BEIR, MIRACL, LAReQA and Mewsli-X are stored in the folder format described by
`BeirDataset`.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import example_source
from xlflax.storage import bucket_staging
from xlflax.utils import class_registry, errors

QUERIES, DOCUMENTS = 'queries', 'documents'
RELEVANCE, CANDIDATES = 'relevance.tsv', 'candidates.tsv'
ALL = 'all'  # Part with queries in many languages.
_ID_FIELDS = ('_id', 'docid', 'id')
# Names in the header of a TSV file of texts, which must not have a header.
_COLUMN_NAMES = frozenset(
  (*_ID_FIELDS, 'query-id', 'corpus-id', 'qid', 'pid', 'query', 'text', 'title')
)
# Last column of the header of a relevance file, in BEIR and other datasets.
_HEADERS = ('score', 'relevance', 'rel', 'label', 'relevance_score')


@dataclasses.dataclass(frozen=True)
class Text:
  """Query or document of a retrieval data set.

  Attributes:
    text: Text of the query or document, including its title.
    language: Language code of the text.
  """

  text: str
  language: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedDocuments:
  """Queries, documents and relevance judgments of one language.

  Attributes:
    queries: Queries by query id.
    documents: Documents by document id.
    relevance: Relevance of each judged document, by query id and document id.
    candidates: Ids of the documents to rank, by query id. If None, all
      documents are ranked for each query.
  """

  queries: Mapping[str, Text]
  documents: Mapping[str, Text]
  relevance: Mapping[str, Mapping[str, float]]
  candidates: Mapping[str, tuple[str, ...]] | None = None


@class_registry.register('beir_dataset')
@dataclasses.dataclass(frozen=True, kw_only=True)
class BeirDataset:
  """Retrieval data set in a folder with one subfolder for each language.

  `sw/queries.tsv` and `sw/documents.tsv` have lines `id<TAB>text`. Files with
  the extension `.jsonl` have one object per line with the keys `_id` or
  `docid`, `text`, and optionally `title` and `language` (LAReQA's documents are
  in many languages). `sw/relevance.tsv` has lines in the format of TREC (`query
  0 document relevance`) or BEIR (`query document relevance`, with a header).
  For reranking, an optional file `sw/candidates.tsv` has lines `query
  document`. Only the listed documents are ranked for a query.

  Attributes:
    directory: Path of the data set's folder, which contains one subfolder for
      each language.
    splits: Names of the subfolders to read. If None, all subfolders are read.
  """

  directory: str
  splits: tuple[str, ...] | None = None

  @classmethod
  def from_options(
    cls, corpus: str, languages: tuple[str, ...] | None = None
  ) -> 'BeirDataset':
    """Creates a `BeirDataset` from the options of `xlflax evaluate`."""
    return cls(directory=corpus, splits=languages)

  def languages(self) -> tuple[str, ...]:
    """Returns the names of the data set's subfolders, usually language codes.

    Raises:
      CorpusError: If a subfolder does not exist.
    """
    root = bucket_staging.stage_input(self.directory)
    available = sorted(file.parent.name for file in root.glob(f'*/{RELEVANCE}'))
    missing = set(self.splits or ()) - set(available)
    if missing or not available:
      raise errors.CorpusError(
        'The folder of the retrieval data set does not contain all requested '
        'languages'
        if missing
        else 'The folder of the retrieval data set must contain at least one '
        f'subfolder with a file {RELEVANCE}',
        got=', '.join(sorted(missing)) or None,
        expected=', '.join(available) or None,
        where=str(root),
      )
    return tuple(available) if self.splits is None else tuple(self.splits)

  def load(self, part: str) -> RankedDocuments:
    """Reads the queries, documents and relevance judgments in a subfolder.

    Raises:
      CorpusError: If a file is missing or malformed (the error contains the
        file and the line), or if it contains the id of a query or document that
        does not exist.
    """
    folder = bucket_staging.stage_input(self.directory) / part
    queries, documents = (
      _read_texts(folder, name, part) for name in (QUERIES, DOCUMENTS)
    )
    relevance: dict[str, dict[str, float]] = {}
    for query, document, value in _read_relevance(folder / RELEVANCE):
      relevance.setdefault(query, {})[document] = value
    candidates = _read_candidates(folder / CANDIDATES)
    _check_ids(folder, queries, documents, relevance, candidates)
    return RankedDocuments(
      queries=queries,
      documents=documents,
      relevance=relevance,
      candidates=candidates,
    )

  def fingerprint(self) -> str:
    """Returns a hash of the names and contents of the data set's subfolders."""
    return example_source.fingerprint_of(
      self.languages(), lambda part: [self.load(part)]
    )


def read_run(
  path: pathlib.Path, data: RankedDocuments
) -> dict[str, tuple[str, ...]]:
  """Reads a ranking of documents in the format of TREC runs.

  A line contains the query, `Q0`, the document, the rank, the score and the
  name of the run. As in trec_eval, the documents of a query are sorted by
  descending score, and documents with equal scores by descending id.

  Args:
    path: Path of the file.
    data: Data set with the queries and documents whose ids occur in the file.

  Returns:
    Ids of the ranked documents by query id, the best document first.

  Raises:
    CorpusError: If the file is missing or malformed, or if it contains the id
      of a query or document that does not exist.
  """
  scores: dict[str, dict[str, float]] = {}
  for number, line in file_reading.read_lines(path):
    fields = corpus_lines.split_tokens(line)
    if not fields:
      continue
    try:
      query, _, document, _, score, _ = fields
      value = float(score)
      if math.isnan(value):
        raise ValueError('The score is not a number.')
    except ValueError:
      raise file_reading.malformed_line_error(
        'The line must consist of the six columns of a TREC run: query id, Q0, '
        'document id, rank, score and name of the run',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      ) from None
    scores.setdefault(query, {})[document] = value
  run = {query: sort_by_score(items) for query, items in scores.items()}
  _check_ids(path, data.queries, data.documents, run, None)
  return run


def sort_by_score(scores: Mapping[str, float]) -> tuple[str, ...]:
  """Returns document ids sorted as in trec_eval, the best document first.

  Documents with equal scores are sorted by descending id.

  Args:
    scores: Score by document id.
  """
  return tuple(
    sorted(scores, key=lambda name: (scores[name], name), reverse=True)
  )


def _read_texts(folder: pathlib.Path, name: str, part: str) -> dict[str, Text]:
  """Reads texts by id from a TSV or JSON lines file."""
  path = folder / f'{name}.jsonl'
  texts_by_id: dict[str, Text] = {}
  if path.is_file():
    for number, value in file_reading.read_json_lines(path):
      key, title, text, language = (
        _get_text(value, names, path, number)
        for names in (_ID_FIELDS, ('title',), ('text',), ('language',))
      )
      if not isinstance(value.get('language', ''), str | None):
        raise file_reading.malformed_line_error(
          'The value of the key `language` must be a language code',
          path,
          number,
          got=repr(value['language'])[:60],
        )
      title_and_text = ' '.join(filter(None, (title, text)))
      _add_text(
        texts_by_id, key, title_and_text, language or part, path, number
      )
    return texts_by_id
  path = folder / f'{name}.tsv'
  for number, line in file_reading.read_lines(path):
    key, *columns = line.split('\t')
    if number == 1:
      file_reading.check_no_header([key, *columns], _COLUMN_NAMES, path)
    if len(columns) != 1:
      raise file_reading.malformed_line_error(
        'The line must consist of an id, a tab and a text, but it has '
        f'{file_reading.format_column_count([key, *columns])}',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      )
    (text,) = columns
    _add_text(texts_by_id, key.strip(), text.strip(), part, path, number)
  return texts_by_id


def _get_text(
  value: Mapping[str, Any], names: tuple[str, ...], path, number: int
) -> str:
  """Returns the text or number of the first key that has a value, or ''."""
  name = next((name for name in names if value.get(name) is not None), None)
  if name is None:
    return ''
  content = value[name]
  if isinstance(content, bool) or not isinstance(content, str | int | float):
    raise file_reading.malformed_line_error(
      f'The value of the key {name!r} must be text or a number',
      path,
      number,
      got=repr(content)[:60],
    )
  return str(content)


def _add_text(
  texts: dict[str, Text], key: str, text: str, language: str, path, number: int
) -> None:
  """Adds a text, and checks that it has a unique id and is not empty."""
  if not key or not text or key in texts:
    raise file_reading.malformed_line_error(
      f'The id {key!r} must be unique and not empty, and its text must not be '
      'empty',
      path,
      number,
      got=file_reading.shorten_quoted(text),
    )
  texts[key] = Text(text, language)


def _read_relevance(path):
  """Yields the query id, document id and relevance of each line."""
  judgments: dict[tuple[str, str], float] = {}
  for number, line in file_reading.read_lines(path):
    fields = corpus_lines.split_tokens(line)
    if not fields or (number == 1 and fields[-1].lower() in _HEADERS):
      continue
    if len(fields) == 4:  # TREC format: query, iteration, document, relevance.
      fields = [fields[0], *fields[2:]]
    try:
      query, document, value = fields
      relevance = float(value)
      if not math.isfinite(relevance):
        raise ValueError('The relevance is not finite.')
    except ValueError:
      raise file_reading.malformed_line_error(
        'The line must have the columns query id, document id and relevance, '
        'or the four TREC columns (query id, 0, document id, relevance)',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      ) from None
    if judgments.setdefault((query, document), relevance) != relevance:
      raise file_reading.malformed_line_error(
        'A query-document pair must not have two different relevance values. '
        'An earlier line contains the same pair with the relevance '
        f'{judgments[query, document]:g}',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      )
    yield query, document, relevance


def _read_candidates(path) -> dict[str, tuple[str, ...]] | None:
  """Returns the ids of the documents to rank, by query id, or None."""
  if not path.is_file():
    return None
  candidates: dict[str, dict[str, None]] = {}
  for number, line in file_reading.read_lines(path):
    fields = corpus_lines.split_tokens(line)
    if not fields:
      continue
    if len(fields) not in (2, 3):
      raise file_reading.malformed_line_error(
        'The line must have the columns query id, document id and, '
        'optionally, score, but it has '
        f'{file_reading.format_column_count(fields)}',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      )
    query, document = fields[:2]
    documents = candidates.setdefault(query, {})
    if document in documents:
      raise file_reading.malformed_line_error(
        'A document must occur only once in the candidates of a query',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      )
    documents[document] = None
  return {
    query: tuple(document_ids) for query, document_ids in candidates.items()
  }


def _check_ids(folder, queries, documents, relevance, candidates) -> None:
  """Raises a CorpusError if an id is not the id of a query or a document."""
  for names in (relevance, candidates or {}):
    for query, document_ids in names.items():
      unknown = [name for name in document_ids if name not in documents]
      if query not in queries or unknown:
        raise errors.CorpusError(
          'A line contains the id of a query or document that does not exist',
          got=unknown[0] if unknown else query,
          where=str(folder),
        )
