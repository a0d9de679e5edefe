"""Hard negatives for search: documents near to a query that are not its own.

A document that is about as near as the query's own may answer it, too, so it is
no negative: one whose cosine is above a share of that of the query's own is
left out (Moreira et al. 2024, "NV-Retriever", section 3.2, TopK-PercPos).
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
  """Which documents are negatives of a query.

  Attributes:
    negatives: of each query; one that has fewer is left out.
    share: of the cosine of a query and its own document, which a negative's
      is at most.
    nearest: documents that are looked at.
    skip: so many of the nearest are no negatives.
  """

  negatives: validation.PositiveInt = 1
  share: validation.PositiveFraction = 0.95
  nearest: validation.PositiveInt = 100
  skip: validation.NonNegativeInt = 0


@validation.validate_call
def select_negatives(
  queries: np.ndarray,
  documents: np.ndarray,
  own: np.ndarray,
  *,
  mining: Mining = Mining(),
) -> list[np.ndarray]:
  """The negatives of each query, the nearest first.

  Args:
    queries: [N, D].
    documents: [M, D].
    own: int [P, 2], pairs (query, document) that belong together; the first
      document of a query has the cosine that counts.
    mining: which are chosen.

  Returns:
    N arrays of at most `mining.negatives` rows of `documents`.
  """
  queries, documents = (
    cosine.normalize_rows(queries),
    cosine.normalize_rows(documents),
  )
  found = neighbors.find_nearest(queries, documents, k=mining.nearest)
  belonging: dict[int, list[int]] = {}
  for query, document in own.tolist():
    belonging.setdefault(query, []).append(document)
  chosen = []
  for query, (scores, near) in enumerate(
    zip(found.scores, found.indices, strict=True)
  ):
    right = belonging[query]
    limit = mining.share * float(queries[query] @ documents[right[0]])
    fits = (scores <= limit) & ~np.isin(near, right)
    fits[: mining.skip] = False
    chosen.append(near[fits][: mining.negatives])
  return chosen


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
  """Writes JSON lines of queries, documents and negatives.

  Args:
    run: an `xlflax.runs.loaded_run.Run`, whose vectors and prompts count.
    pairs: queries and documents, as the format `search` reads them.
    output: what the format `search` reads.
    language: of the texts.
    mining: which negatives are chosen, among all documents of `pairs`.
    batch_size: texts that are encoded together.

  Returns:
    Lines written, and pairs that have too few negatives.

  Raises:
    CorpusError: `pairs` is malformed, or no query has enough negatives.
  """
  texts = [
    example.text
    for example in query_document_reader.read_query_documents(
      pairs, language
    ).examples
  ]
  places: list[dict[str, int]] = [{}, {}]
  positive_pairs = np.array(
    [
      [
        where.setdefault(text, len(where))
        for where, text in zip(places, pair, strict=True)
      ]
      for pair in zip(texts[::2], texts[1::2], strict=True)
    ]
  )
  languages = language if language in run.vocabulary.spec.languages else None
  vectors = [
    run.encode(
      list(where), languages=languages, prompt_name=name, batch_size=batch_size
    )
    for where, name in zip(
      places,
      (query_document_reader.QUERY, query_document_reader.DOCUMENT),
      strict=True,
    )
  ]
  chosen = select_negatives(
    vectors[0], vectors[1], positive_pairs, mining=mining
  )
  queries, documents = map(list, places)
  lines = [
    json.dumps(
      {
        'query': queries[query],
        'positive': documents[document],
        'negatives': [documents[row] for row in chosen[query].tolist()],
      },
      ensure_ascii=False,
    )
    for query, document in positive_pairs.tolist()
    if len(chosen[query]) == mining.negatives
  ]
  if not lines:
    raise errors.CorpusError(
      'No query has enough negatives',
      got=f'{len(documents)} documents',
      expected=f'{mining.negatives} below {mining.share} of its own cosine',
      where=str(pairs),
      fix='Pass a smaller --num_negatives, or a larger --range_max or '
      '--max_score_ratio.',
    )
  paths.write_atomically(paths.to_path(output), '\n'.join(lines) + '\n')
  return len(lines), len(positive_pairs) - len(lines)
