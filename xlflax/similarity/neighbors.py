"""Exact k-nearest-neighbor search in bounded memory.

The similarity matrix is computed block by block. One comparison selects the
entries of a block that belong to the current top k, so little sorting is
required.
"""

from typing import NamedTuple

import numpy as np

from xlflax.similarity import block_matmul, top_k, vector_checks
from xlflax.similarity.block_matmul import BLOCKS, Blocks
from xlflax.similarity.top_k import TopK
from xlflax.utils import errors


class Neighbors(NamedTuple):
  """Nearest keys of N queries, nearest first.

  Attributes:
    scores: Scores of the keys, float32 of shape [N, k].
    indices: Indices of the keys, int64 of shape [N, k].
  """

  scores: np.ndarray
  indices: np.ndarray


def find_nearest(
  queries: np.ndarray,
  keys: np.ndarray,
  *,
  k: int,
  penalties: np.ndarray | None = None,
  blocks: Blocks = BLOCKS,
) -> Neighbors:
  """Finds each query's k nearest keys by inner product minus a penalty per key.

  Ties are resolved in favor of the lowest index, so a model that maps all
  inputs to the same vector gets no credit.

  Args:
    queries: Query vectors of shape [N, D]. With unit vectors, the scores are
      cosines.
    keys: Key vectors of shape [M, D].
    k: Number of neighbors to return. If there are fewer than k keys, M
      neighbors are returned.
    penalties: Values of shape [M] that are subtracted from the scores of the
      keys. If None, nothing is subtracted.
    blocks: Block sizes, which bound the memory that the search needs.

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, the
      dimensions differ, or k is less than 1.
  """
  check_arguments(queries, keys, k)
  best = TopK(len(queries), min(k, len(keys)))
  for i, j, block in block_matmul.iterate_inner_products(queries, keys, blocks):
    if penalties is not None:
      block = block - penalties[None, j : j + block.shape[1]].astype(np.float32)
    limits = (
      best.lowest_scores(i, len(block))
      if j
      else top_k.compute_lower_limits(block, best.size)
    )
    mask = top_k.exceeds_limits(block, limits)
    for hits in top_k.iterate_hits(block, mask):
      best.merge(hits, i, j)
  return _to_neighbors(best)


def find_nearest_both_ways(
  first: np.ndarray, second: np.ndarray, *, k: int, blocks: Blocks = BLOCKS
) -> tuple[Neighbors, Neighbors]:
  """Finds nearest neighbors in both directions in a single pass.

  Args:
    first: Vectors of shape [N, D].
    second: Vectors of shape [M, D].
    k: Number of neighbors to return per vector.
    blocks: Block sizes, which bound the memory that the search needs.

  Returns:
    Neighbors of `first`, of shape [N, min(k, M)], and of `second`, of shape [M,
    min(k, N)].

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, the
      dimensions differ, or k is less than 1.
  """
  check_arguments(first, second, k)
  best = (
    TopK(len(first), min(k, len(second))),
    TopK(len(second), min(k, len(first))),
  )
  for i, j, block in block_matmul.iterate_inner_products(first, second, blocks):
    limits = top_k.compute_limits(best, i, j, block)
    mask = top_k.exceeds_limits(block, *limits)
    for hits in top_k.iterate_hits(block, mask):
      top_k.merge_hits(best, hits, i, j, limits)
  return _to_neighbors(best[0]), _to_neighbors(best[1])


def check_arguments(queries: np.ndarray, keys: np.ndarray, k: int) -> None:
  """Raises AnalysisError if the vectors are not valid or k is less than 1."""
  vector_checks.check_same_dimension(
    vector_checks.check_vectors(queries, 'the queries'),
    vector_checks.check_vectors(keys, 'the keys'),
  )
  if k < 1:
    raise errors.AnalysisError(
      'The number of neighbors `k` must be at least 1', got=k
    )


def _to_neighbors(best: TopK) -> Neighbors:
  return Neighbors(best.scores, best.indices)
