"""Exact CSLS search that computes most similarities only once.

CSLS(x, y) = 2 cos(x, y) - r(x) - r(y) orders the keys y of a query x by cos(x,
y) - r(y) / 2, where r(y) is only known after all queries have been processed.
However, the k greatest cosines of y so far bound r(y) from below, and hence the
key's score from above. For each query, the pass keeps the keys with the
greatest upper bounds. If the exact scores of the best of these keys exceed the
upper bound of every discarded key, they are the best of all keys. All other
queries are searched again: the first queries, whose bounds are loose, and the
queries that remain undecided.
"""

from typing import NamedTuple

import numpy as np

from xlflax.similarity import block_matmul, neighbors, top_k
from xlflax.similarity.block_matmul import Blocks
from xlflax.similarity.neighbors import Neighbors
from xlflax.similarity.top_k import TopK

# The first 1/16 of the queries have loose bounds and are always searched again.
_LOOSE_FRACTION = 16
_MIN_BLOCKS = 3  # Up to this number of query blocks, two passes are as fast.


class SearchResult(NamedTuple):
  """Keys with the highest CSLS scores for each of N queries.

  Attributes:
    neighbors: Best keys y of each query x, ranked by cos(x, y) - r(y) / 2,
      where r(y) is the mean similarity of y to its neighbors.
    query_means: Mean similarity r of each query to its neighbors, float32 of
      shape [N].
  """

  neighbors: Neighbors
  query_means: np.ndarray


def is_single_pass_faster(queries: int, blocks: Blocks) -> bool:
  """Returns whether single-pass CSLS search is faster than two passes."""
  return queries > _MIN_BLOCKS * blocks.queries


def search_keys(
  queries: np.ndarray, keys: np.ndarray, *, top: int, k: int, blocks: Blocks
) -> SearchResult:
  """Finds the keys with the highest CSLS score for each query.

  Args:
    queries: Unit vectors of shape [N, D].
    keys: Unit vectors of shape [M, D].
    top: Number of keys to return per query.
    k: Number of neighbors K in the definition of CSLS.
    blocks: Block sizes, which bound the memory that the search needs.

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, the
      dimensions differ, or k is less than 1.
  """
  neighbors.check_arguments(queries, keys, k)
  best_of_both = (
    TopK(len(queries), min(k, len(keys))),
    TopK(len(keys), min(k, len(queries))),
  )
  top = min(top, len(keys))
  candidates = _BoundedKeys(len(queries), len(keys), top, k, blocks)
  for i, j, block in block_matmul.iterate_inner_products(queries, keys, blocks):
    limits = top_k.compute_limits(best_of_both, i, j, block)
    mask = top_k.exceeds_limits(block, *limits)
    if not j:
      candidates.start_row(i, best_of_both[1])
    candidates.update_mask(block, mask, i, j)
    for entries in top_k.iterate_hits(block, mask):
      candidates.merge(entries, i, j)
      top_k.merge_hits(best_of_both, entries, i, j, limits)
    if j + block.shape[1] == len(keys):
      candidates.end_row(i, len(block))
  query_means, key_means = (side.scores.mean(1) for side in best_of_both)
  best, decided = candidates.best(key_means / 2, top)
  undecided = np.flatnonzero(~decided)
  if undecided.size:
    repeated = neighbors.find_nearest(
      queries[undecided], keys, k=top, penalties=key_means / 2, blocks=blocks
    )
    best.scores[undecided], best.indices[undecided] = repeated
  return SearchResult(best, query_means)


class _BoundedKeys:
  """For each query, the keys with the greatest upper bounds of their scores."""

  def __init__(self, queries: int, keys: int, top: int, k: int, blocks: Blocks):
    # A key has no bound before k queries have been processed.
    first = max(k, queries // _LOOSE_FRACTION)
    self._start = -(-first // blocks.queries) * blocks.queries
    self._best = TopK(queries, min(max(32, 4 * top), keys))
    self._bounds = np.full(queries, np.inf, np.float32)
    self._halves = np.zeros(keys, np.float32)
    self._limits = np.zeros(0, np.float32)

  def start_row(self, i: int, key_means: TopK) -> None:
    """Updates the lower bound on each key's mean similarity to its neighbors.

    This method is called before each row of blocks is processed.
    """
    if i >= self._start:
      # The margin ensures that a bound is never too low because of rounding.
      self._halves = key_means.scores.mean(1) / 2 - np.float32(1e-6)

  def update_mask(
    self, block: np.ndarray, mask: np.ndarray, i: int, j: int
  ) -> None:
    """Marks a block's entries that may be among the best keys of their query.

    These are the entries with the greatest upper bounds on their scores.
    """
    if i < self._start:
      return
    halves = self._halves[None, j : j + block.shape[1]]
    if j:
      self._limits = self._best.lowest_scores(i, len(block))
    else:
      self._limits = top_k.compute_lower_limits(block - halves, self._best.size)
    for part in top_k.iterate_stripes(block):
      mask[part] |= block[part] - halves > self._limits[part, None]

  def merge(self, hits: top_k.Hits, i: int, j: int) -> None:
    """Merges the entries of one block into the candidate keys of each query.

    The candidates are the keys with the greatest upper bounds on their scores.
    """
    if i < self._start:
      return
    bounds = hits.scores - self._halves[j + hits.columns]
    chosen = bounds > self._limits[hits.rows]
    self._best.merge(
      top_k.Hits(hits.rows[chosen], hits.columns[chosen], bounds[chosen]), i, j
    )

  def end_row(self, i: int, count: int) -> None:
    """Converts the stored upper bounds of a block of queries to cosines."""
    if i < self._start:
      return
    rows = slice(i, i + count)
    if self._best.size < len(self._halves):
      self._bounds[rows] = self._best.scores[rows, -1]
    else:
      self._bounds[rows] = -np.inf
    self._best.scores[rows] += self._halves[self._best.indices[rows]]

  def best(self, halves: np.ndarray, top: int) -> tuple[Neighbors, np.ndarray]:
    """Returns each query's best keys, and whether they are proven optimal.

    Args:
      halves: Half the mean similarity of each key to its neighbors, r / 2, of
        shape [M].
      top: Number of keys to return per query.
    """
    scores = self._best.scores - halves[self._best.indices]
    order = np.lexsort((self._best.indices, -scores), axis=1)[:, :top]
    scores = np.take_along_axis(scores, order, 1)
    return (
      Neighbors(scores, np.take_along_axis(self._best.indices, order, 1)),
      scores[:, -1] > self._bounds,
    )
