"""Queries, documents, and which documents are relevant to which query.

Folders of BEIR, MIRACL, LAReQA and Mewsli-X are brought to one form.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import example_source
from xlflax.storage import bucket_staging
from xlflax.utils import class_registry, errors

QUERIES, DOCUMENTS = 'queries', 'documents'
RELEVANCE, CANDIDATES = 'relevance.tsv', 'candidates.tsv'
ALL = 'all'  # a part whose queries are of many languages
_KIND = 'file of rankings'
# Last column of a header: BEIR's, and other spellings.
_HEADERS = ('score', 'relevance', 'rel', 'label', 'relevance_score')


@dataclasses.dataclass(frozen=True)
class Text:
  """A query or a document.

  Attributes:
    text: what is read.
    language: code of its language.
  """

  text: str
  language: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedDocuments:
  """What is ranked.

  Attributes:
    queries: id -> query.
    documents: id -> document.
    relevance: id of a query -> ids of documents, and how relevant they are.
    candidates: id of a query -> the documents that are ranked for it; None:
      all documents.
  """

  queries: Mapping[str, Text]
  documents: Mapping[str, Text]
  relevance: Mapping[str, Mapping[str, float]]
  candidates: Mapping[str, tuple[str, ...]] | None = None


@class_registry.register('ranked_folder')
@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedFolder:
  """A folder with a folder for each language, or for each other part.

  `sw/queries.tsv` and `sw/documents.tsv` have `id<TAB>text` a line; with
  `.jsonl` an object a line: `_id` or `docid`, `text`, perhaps `title` and
  `language` (LAReQA's documents are of many languages). `sw/relevance.tsv` has
  lines of TREC (`query 0 document relevance`) or BEIR (`query document
  relevance` with a header). `sw/candidates.tsv`, if there is one, has `query
  document` lines: only these documents are ranked again.

  Attributes:
    directory: the folder.
    parts: those to take; None: all there are.
  """

  directory: str
  parts: tuple[str, ...] | None = None

  @classmethod
  def from_options(
    cls, corpus: str, languages: tuple[str, ...] | None = None
  ) -> 'RankedFolder':
    """Creates the source from the options of `xlflax evaluate`."""
    return cls(directory=corpus, parts=languages)

  def languages(self) -> tuple[str, ...]:
    """The parts there are."""
    root = bucket_staging.stage_input(self.directory)
    available = sorted(file.parent.name for file in root.glob(f'*/{RELEVANCE}'))
    missing = set(self.parts or ()) - set(available)
    if missing or not available:
      raise errors.CorpusError(
        'A folder of rankings lacks a part',
        got=', '.join(sorted(missing)) or 'no part',
        expected=f'<part>/{RELEVANCE}'
        if not available
        else ', '.join(available),
        where=str(root),
      )
    return tuple(available) if self.parts is None else tuple(self.parts)

  def load(self, part: str) -> RankedDocuments:
    """Queries and documents of a part.

    Raises:
      CorpusError: a file lacks or is malformed (file:line), or names a query
        or a document that is not there.
    """
    folder = bucket_staging.stage_input(self.directory) / part
    queries, documents = (
      _read_texts(folder, name, part) for name in (QUERIES, DOCUMENTS)
    )
    relevance: dict[str, dict[str, float]] = {}
    for query, document, value in _read_relevance(folder / RELEVANCE):
      relevance.setdefault(query, {})[document] = value
    candidates = _read_candidates(folder / CANDIDATES)
    _check(folder, queries, documents, relevance, candidates)
    return RankedDocuments(
      queries=queries,
      documents=documents,
      relevance=relevance,
      candidates=candidates,
    )

  def fingerprint(self) -> str:
    """Hash of parts and their files."""
    return example_source.fingerprint_of(
      self.languages(), lambda part: [self.load(part)]
    )


def _read_texts(folder: pathlib.Path, name: str, part: str) -> dict[str, Text]:
  """Id -> text, from a file of TSV or of JSON lines."""
  path = folder / f'{name}.jsonl'
  texts_by_id: dict[str, Text] = {}
  if path.is_file():
    for number, value in file_reading.read_json_lines(path):
      key = str(value.get('_id', value.get('docid', value.get('id', ''))))
      title, text = value.get('title') or '', value.get('text') or ''
      if isinstance(title, int | float):
        title = str(title)
      for field, content in (('title', title), ('text', text)):
        if not isinstance(content, str):
          raise file_reading.malformed_line_error(
            _KIND, path, number, f'{field}: {content!r:.60}', expected='text'
          )
      title_and_text = ' '.join(filter(None, (title, text)))
      _add(
        texts_by_id,
        key,
        title_and_text,
        value.get('language', part),
        path,
        number,
      )
    return texts_by_id
  path = folder / f'{name}.tsv'
  for number, line in file_reading.read_lines(path):
    key, _, text = line.partition('\t')
    _add(texts_by_id, key.strip(), text.strip(), part, path, number)
  return texts_by_id


def _add(found, key: str, text: str, language: str, path, number: int) -> None:
  if not key or not text or key in found:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'the id {key!r} with {file_reading.shorten_quoted(text)}',
      expected='an id that no other line has, and text',
    )
  found[key] = Text(text, language)


def _read_relevance(path):
  for number, line in file_reading.read_lines(path):
    fields = corpus_lines.split_tokens(line)
    if not fields or (number == 1 and fields[-1].lower() in _HEADERS):
      continue
    if len(fields) == 4:  # TREC: query, iteration, document, relevance
      fields = [fields[0], *fields[2:]]
    try:
      query, document, value = fields
      relevance = float(value)
    except ValueError:
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        file_reading.shorten_quoted(line),
        expected='query, document and a number; or query, 0, document, number',
      ) from None
    yield query, document, relevance


def _read_candidates(path) -> dict[str, tuple[str, ...]] | None:
  if not path.is_file():
    return None
  candidates: dict[str, list[str]] = {}
  for number, line in file_reading.read_lines(path):
    fields = corpus_lines.split_tokens(line)
    if not fields:
      continue
    if len(fields) not in (2, 3):
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        f'{len(fields)} columns: {file_reading.shorten_quoted(line)}',
        expected='query and document, perhaps with a score',
      )
    query, document = fields[:2]
    candidates.setdefault(query, []).append(document)
  return {
    query: tuple(document_ids) for query, document_ids in candidates.items()
  }


def _check(folder, queries, documents, relevance, candidates) -> None:
  """Raises a CorpusError for an id that no text has."""
  for names in (relevance, candidates or {}):
    for query, document_ids in names.items():
      odd = [name for name in document_ids if name not in documents]
      if query not in queries or odd:
        raise errors.CorpusError(
          'A ranking names a text that is not there',
          got=odd[0] if odd else query,
          expected='an id of the queries, and of the documents',
          where=str(folder),
        )
