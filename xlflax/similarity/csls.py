"""Nearest-neighbor search for word translation, by cosine or by CSLS.

Source: Conneau et al. (2018, "Word translation without parallel data") section
2.3: CSLS(x, y) = 2 cos(x, y) - r(x) - r(y), where r is the mean cosine to the K
nearest vectors of the other language, K = 10. CSLS penalizes hubs, which are
close to many vectors.
"""

import enum
from collections.abc import Collection, Sequence

import numpy as np

from xlflax.similarity import cosine, csls_search, neighbors, vector_checks
from xlflax.similarity.block_matmul import BLOCKS, Blocks
from xlflax.utils import errors, validation


class Score(enum.Enum):
  """Similarity measure between two vectors."""

  COSINE = 'cosine'
  CSLS = 'csls'


@validation.validate_call
def find_nearest(
  queries: np.ndarray,
  keys: np.ndarray,
  *,
  top: int = 1,
  score: Score | str = Score.CSLS,
  k: int = 10,
  all_queries: np.ndarray | None = None,
  blocks: Blocks = BLOCKS,
) -> neighbors.Neighbors:
  """Finds each query's most similar keys, such as translations of words.

  Args:
    queries: Query vectors of shape [N, D].
    keys: Key vectors of shape [M, D].
    top: Number of translations to return per query, best first.
    score: Similarity measure, COSINE or CSLS.
    k: Number of neighbors K in the definition of CSLS.
    all_queries: Vectors of the query language's full vocabulary, of shape
      [S, D], in which the neighbors of the keys are searched (CSLS only). If
      None, the queries are used.
    blocks: Block sizes, which bound the memory that the search needs.

  Returns:
    Scores of shape [N, top] and indices of keys of shape [N, top].

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, the
      dimensions differ, or k or top is less than 1.
  """
  score = validation.validate(score, Score, name='score')
  queries, keys = _unit(queries), _unit(keys)
  if score is Score.COSINE:
    return neighbors.find_nearest(queries, keys, k=top, blocks=blocks)
  if all_queries is None and csls_search.is_single_pass_faster(
    len(queries), blocks
  ):
    result, query_means = csls_search.search_keys(
      queries, keys, top=top, k=k, blocks=blocks
    )
  else:
    query_means, key_means = _means(queries, keys, all_queries, k, blocks)
    # Halved scores have the same order and require no copy of the vectors.
    result = neighbors.find_nearest(
      queries, keys, k=top, penalties=key_means / 2, blocks=blocks
    )
  return neighbors.Neighbors(
    2 * result.scores - query_means[:, None], result.indices
  )


def _means(
  queries, keys, all_queries, k: int, blocks: Blocks
) -> tuple[np.ndarray, np.ndarray]:
  """Returns each query's and each key's mean cosine to its neighbors."""
  if all_queries is None:  # One pass serves both directions.
    forward, backward = neighbors.find_nearest_both_ways(
      queries, keys, k=k, blocks=blocks
    )
  else:
    forward, backward = (
      neighbors.find_nearest(*sides, k=k, blocks=blocks)
      for sides in ((queries, keys), (keys, _unit(all_queries)))
    )
  return forward.scores.mean(1), backward.scores.mean(1)


@validation.validate_call
def precision_at_k(
  indices: np.ndarray, gold: Sequence[Collection[int]], *, k: int
) -> float:
  """Computes the fraction of queries with a correct translation in the top k.

  Args:
    indices: Indices of the translations, of shape [N, top], best first.
    gold: Indices of all correct translations of each query, one collection per
      query.
    k: Number of best translations to consider, at most `top`.

  Raises:
    AnalysisError: If `indices` is empty, if `indices` and `gold` differ in
      length, or if there are fewer than k translations per query.
  """
  indices = vector_checks.check_axes(indices, 'indices', 'queries, top')
  if not len(indices) or len(indices) != len(gold) or indices.shape[1] < k:
    raise errors.AnalysisError(
      f'The precision at k={k} requires an array `indices` of shape [queries, '
      f'top] with top >= {k}, and one collection of gold translations for each '
      f'query. `indices` has the shape {list(indices.shape)}, and the length '
      f'of `gold` is {len(gold)}'
    )
  is_correct = [
    not set(row[:k].tolist()).isdisjoint(correct)
    for row, correct in zip(indices, gold, strict=True)
  ]
  return float(np.mean(is_correct))


def _unit(vectors: np.ndarray) -> np.ndarray:
  vectors = vector_checks.check_vectors(vectors, 'a language')
  return cosine.normalize_rows(np.asarray(vectors, np.float32))
