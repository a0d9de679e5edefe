"""Mining of hard negatives: documents that are similar to a query.

A document that is about as similar to the query as its positive may be relevant
as well. Therefore, documents whose cosine exceeds a given fraction of the
positive's cosine are excluded (Moreira et al. 2024, "NV-Retriever", section
3.2, TopK-PercPos).
"""

import dataclasses
import json
from typing import Any

import numpy as np

from xlflax.data.supervised.readers import query_document_reader
from xlflax.similarity import cosine, neighbors
from xlflax.storage import paths
from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mining:
  """Criteria for selecting a query's negatives.

  Attributes:
    num_negatives: Number of negatives per query. Queries with fewer negatives
      are excluded.
    max_score_ratio: Maximum cosine between a query and a negative, as a
      fraction of the cosine between the query and its positive.
    range_max: Number of nearest documents among which negatives are selected,
      including the `range_min` documents that are skipped.
    range_min: Number of nearest documents to skip because they may be relevant.
  """

  num_negatives: validation.PositiveInt = 1
  max_score_ratio: validation.PositiveFraction = 0.95
  range_max: validation.PositiveInt = 100
  range_min: validation.NonNegativeInt = 0


@validation.validate_call
def select_negatives(
  queries: np.ndarray,
  documents: np.ndarray,
  positive_pairs: np.ndarray,
  *,
  mining: Mining = Mining(),
) -> list[np.ndarray]:
  """Returns each query's negatives, most similar first.

  Args:
    queries: Query vectors of shape [N, D].
    documents: Document vectors of shape [M, D].
    positive_pairs: Int array of shape [P, 2] with the indices of a query and a
      positive document. The first positive of a query determines the maximum
      cosine of its negatives.
    mining: Criteria for selecting negatives.

  Returns:
    N arrays of at most `mining.num_negatives` rows of `documents`.
  """
  queries = cosine.normalize_rows(queries)
  documents = cosine.normalize_rows(documents)
  nearest = neighbors.find_nearest(queries, documents, k=mining.range_max)
  positives: dict[int, list[int]] = {}
  for query, document in positive_pairs.tolist():
    positives.setdefault(query, []).append(document)

  negatives = []
  for query, (scores, candidates) in enumerate(
    zip(nearest.scores, nearest.indices, strict=True)
  ):
    first_positive = documents[positives[query][0]]
    max_score = mining.max_score_ratio * float(queries[query] @ first_positive)
    is_negative = scores <= max_score
    is_negative &= ~np.isin(candidates, positives[query])
    is_negative[: mining.range_min] = False
    negatives.append(candidates[is_negative][: mining.num_negatives])
  return negatives


@validation.validate_call
def mine_hard_negatives(
  run: Any,
  *,
  pairs: validation.FilePath,
  output: validation.FilePath,
  language: str,
  mining: Mining = Mining(),
  batch_size: validation.PositiveInt = 64,
) -> tuple[int, int]:
  """Mines hard negatives and writes queries with their documents to a file.

  Args:
    run: Loaded run (`xlflax.runs.loaded_run.Run`), which encodes the texts with
      its prompts.
    pairs: JSON-lines file with queries and documents in `search` format.
    output: JSON-lines file to write, also in `search` format.
    language: Language code of the texts.
    mining: Criteria for selecting negatives from all documents of `pairs`.
    batch_size: Number of texts to encode at a time.

  Returns:
    The number of lines, and the number of pairs with too few negatives.

  Raises:
    CorpusError: If `pairs` is malformed, or if no query has enough negatives.
  """
  examples = query_document_reader.read_query_documents(
    pairs, language
  ).examples
  texts = [example.text for example in examples]

  # Number the distinct queries and documents.
  query_rows: dict[str, int] = {}
  document_rows: dict[str, int] = {}
  positive_pairs = np.array(
    [
      (
        query_rows.setdefault(query, len(query_rows)),
        document_rows.setdefault(document, len(document_rows)),
      )
      for query, document in zip(texts[::2], texts[1::2], strict=True)
    ]
  )
  queries, documents = list(query_rows), list(document_rows)

  languages = language if language in run.vocabulary.spec.languages else None
  query_vectors, document_vectors = (
    run.encode(
      distinct_texts,
      languages=languages,
      prompt_name=prompt_name,
      batch_size=batch_size,
    )
    for distinct_texts, prompt_name in (
      (queries, query_document_reader.QUERY),
      (documents, query_document_reader.DOCUMENT),
    )
  )
  negatives = select_negatives(
    query_vectors, document_vectors, positive_pairs, mining=mining
  )

  lines = [
    json.dumps(
      {
        'query': queries[query],
        'positive': documents[document],
        'negatives': [documents[row] for row in negatives[query].tolist()],
      },
      ensure_ascii=False,
    )
    for query, document in positive_pairs.tolist()
    if len(negatives[query]) == mining.num_negatives
  ]
  if not lines:
    raise errors.CorpusError(
      'None of the queries has enough negatives. The required number of '
      f'negatives is {mining.num_negatives}. The cosine similarity of a '
      f'negative to the query must be at most {mining.max_score_ratio} times '
      'that of the positive document. The number of documents in the file is '
      f'{len(documents)}',
      where=str(pairs),
      fix='Pass a smaller --num_negatives, or a larger --range_max or '
      '--max_score_ratio.',
    )
  paths.write_atomically(paths.to_path(output), '\n'.join(lines) + '\n')
  return len(lines), len(positive_pairs) - len(lines)
