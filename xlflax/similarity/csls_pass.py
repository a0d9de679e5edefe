"""Exact CSLS among many vectors in little more than one pass.

CSLS(x, y) = 2 cos(x, y) - r(x) - r(y) orders the keys y of a query x as
cos(x, y) - r(y) / 2, where r(y) is known once all queries have been seen. But
the k greatest cosines of y so far bound r(y) from below, so the key's score
from above. The pass keeps for each query the keys with the greatest bounds;
where the best of them by their true scores are above every bound that was not
kept, they are the best of all. The other queries are searched again: the first
ones, whose bounds are loose, and those that remain undecided.
"""

from typing import NamedTuple

import numpy as np

from xlflax.similarity import blockwise_top_k, neighbours, products
from xlflax.similarity.blockwise_top_k import TopK
from xlflax.similarity.neighbours import Neighbours
from xlflax.similarity.products import Blocks

_LOOSE = 16  # one of so many queries is searched again at once
_LEAST = 3  # blocks of queries, below which two passes cost no more


class Scored(NamedTuple):
  """The best keys of N queries by CSLS, with K = k.

  Attributes:
    found: the top keys of each query, by cos(x, y) - r(y) / 2.
    of_queries: float32 [N], r of each query.
  """

  found: Neighbours
  of_queries: np.ndarray


def is_worth_it(queries: int, blocks: Blocks) -> bool:
  """Returns whether one pass with bounds costs less than two."""
  return queries > _LEAST * blocks.queries


def search(
  queries: np.ndarray, keys: np.ndarray, *, top: int, k: int, blocks: Blocks
) -> Scored:
  """Finds the best keys of every query; raises as `neighbours.nearest`.

  Args:
    queries: unit vectors [N, D].
    keys: unit vectors [M, D].
    top: how many keys.
    k: K of CSLS.
    blocks: sizes that bound the memory.
  """
  neighbours.check(queries, keys, k)
  both = (
    TopK(len(queries), min(k, len(keys))),
    TopK(len(keys), min(k, len(queries))),
  )
  top = min(top, len(keys))
  kept = _Kept(len(queries), len(keys), top, k, blocks)
  for i, j, block in products.inner_blocks(queries, keys, blocks):
    limits = blockwise_top_k.limits_of_both(both, i, j, block)
    wanted = blockwise_top_k.above(block, *limits)
    if not j:
      kept.begin(i, both[1])
    kept.mark(block, wanted, i, j)
    for entries in blockwise_top_k.hits(block, wanted):
      kept.take(entries, i, j)
      blockwise_top_k.take_both(both, entries, i, j, limits)
    if j + block.shape[1] == len(keys):
      kept.end(i, len(block))
  of_queries, of_keys = (side.scores.mean(1) for side in both)
  found, decided = kept.best(of_keys / 2, top)
  rest = np.flatnonzero(~decided)
  if rest.size:
    again = neighbours.nearest(
      queries[rest], keys, k=top, penalties=of_keys / 2, blocks=blocks
    )
    found.scores[rest], found.indices[rest] = again
  return Scored(found, of_queries)


class _Kept:
  """For each query, the keys with the greatest bounds of their scores."""

  def __init__(self, queries: int, keys: int, top: int, k: int, blocks: Blocks):
    # Nothing is known of a key before k queries.
    first = max(k, queries // _LOOSE)
    self._start = -(-first // blocks.queries) * blocks.queries
    self._best = TopK(queries, min(max(32, 4 * top), keys))
    self._bounds = np.full(queries, np.inf, np.float32)
    self._halves = np.zeros(keys, np.float32)
    self._limits = np.zeros(0, np.float32)

  def begin(self, i: int, of_keys: TopK) -> None:
    """Begins a row of blocks, with the bounds of keys so far."""
    if i >= self._start:
      # Rounding must not make a bound too low.
      self._halves = of_keys.scores.mean(1) / 2 - np.float32(1e-6)

  def mark(self, block: np.ndarray, wanted: np.ndarray, i: int, j: int) -> None:
    """Marks in `wanted` the entries that may be among the greatest bounds."""
    if i < self._start:
      return
    halves = self._halves[None, j : j + block.shape[1]]
    if j:
      self._limits = self._best.known(i, len(block))
    else:
      self._limits = blockwise_top_k.lower_limits(
        block - halves, self._best.size
      )
    for part in blockwise_top_k.stripes(block):
      wanted[part] |= block[part] - halves > self._limits[part, None]

  def take(self, found: blockwise_top_k.Hits, i: int, j: int) -> None:
    """Merges entries of a block."""
    if i < self._start:
      return
    bounds = found.scores - self._halves[j + found.columns]
    chosen = bounds > self._limits[found.rows]
    self._best.take(
      blockwise_top_k.Hits(
        found.rows[chosen], found.columns[chosen], bounds[chosen]
      ),
      i,
      j,
    )

  def end(self, i: int, count: int) -> None:
    """Ends a row of blocks: bounds become cosines again."""
    if i < self._start:
      return
    rows = slice(i, i + count)
    if self._best.size < len(self._halves):
      self._bounds[rows] = self._best.scores[rows, -1]
    else:
      self._bounds[rows] = -np.inf
    self._best.scores[rows] += self._halves[self._best.indices[rows]]

  def best(self, halves: np.ndarray, top: int) -> tuple[Neighbours, np.ndarray]:
    """Returns the best by true scores, and the queries that they decide.

    Args:
      halves: half of r of each key [M].
      top: how many.
    """
    scores = self._best.scores - halves[self._best.indices]
    order = np.lexsort((self._best.indices, -scores), axis=1)[:, :top]
    scores = np.take_along_axis(scores, order, 1)
    return (
      Neighbours(scores, np.take_along_axis(self._best.indices, order, 1)),
      scores[:, -1] > self._bounds,
    )
