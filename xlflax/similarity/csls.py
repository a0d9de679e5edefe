"""Word translation: nearest neighbours by cosine and by CSLS.

Source: Conneau et al. (2018, "Word translation without parallel data")
section 2.3: CSLS(x, y) = 2 cos(x, y) - r(x) - r(y), where r is the mean cosine
to the K nearest vectors of the other side, K = 10. It penalises hubs, which are
near to everything.
"""

import enum
from collections.abc import Collection, Sequence

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks, csls_pass, neighbours
from xlflax.similarity import cosine as similarity
from xlflax.similarity.products import BLOCKS, Blocks


class Score(enum.Enum):
  """The measure of how near two vectors are."""

  COSINE = 'cosine'
  CSLS = 'csls'


@validation.validate_call
def nearest(
  queries: np.ndarray,
  keys: np.ndarray,
  *,
  top: int = 1,
  score: Score | str = Score.CSLS,
  k: int = 10,
  all_queries: np.ndarray | None = None,
  blocks: Blocks = BLOCKS,
) -> neighbours.Neighbours:
  """Finds the best translations of queries among keys.

  Args:
    queries: [N, D].
    keys: [M, D].
    top: how many translations, best first.
    score: COSINE or CSLS.
    k: K of CSLS.
    all_queries: [S, D], the whole vocabulary of the queries, in which the
      keys' own neighbours are searched (CSLS); None: the queries.
    blocks: sizes that bound the memory.

  Returns:
    Scores [N, top] and indices of keys [N, top].

  Raises:
    AnalysisError: no or not finite vectors, different sizes, k or top < 1.
  """
  score = validation.validate(score, Score, name='score')
  queries, keys = _unit(queries), _unit(keys)
  if score is Score.COSINE:
    return neighbours.nearest(queries, keys, k=top, blocks=blocks)
  if all_queries is None and csls_pass.is_worth_it(len(queries), blocks):
    found, of_queries = csls_pass.search(
      queries, keys, top=top, k=k, blocks=blocks
    )
  else:
    of_queries, of_keys = _means(queries, keys, all_queries, k, blocks)
    # Halved scores have the same order, and need no copy of the vectors.
    found = neighbours.nearest(
      queries, keys, k=top, penalties=of_keys / 2, blocks=blocks
    )
  return neighbours.Neighbours(
    2 * found.scores - of_queries[:, None], found.indices
  )


def _means(
  queries, keys, all_queries, k: int, blocks: Blocks
) -> tuple[np.ndarray, np.ndarray]:
  """r of the queries, and r of the keys among all queries."""
  if all_queries is None:  # one pass for both
    ahead, back = neighbours.nearest_both(queries, keys, k=k, blocks=blocks)
  else:
    ahead, back = (
      neighbours.nearest(*sides, k=k, blocks=blocks)
      for sides in ((queries, keys), (keys, _unit(all_queries)))
    )
  return ahead.scores.mean(1), back.scores.mean(1)


@validation.validate_call
def precision_at(
  found: np.ndarray, gold: Sequence[Collection[int]], *, k: int
) -> float:
  """Computes the share of queries with a right translation among the first k.

  Args:
    found: indices [N, top], best first, k <= top.
    gold: for each query the indices of its right translations.
    k: how many of the found count.

  Raises:
    AnalysisError: no query, or fewer than k found for each.
  """
  found = checks.shaped(found, 'found', 'queries, top')
  if not len(found) or len(found) != len(gold) or found.shape[1] < k:
    raise errors.AnalysisError(
      'The precision of what was found is not defined',
      got=f'{found.shape[-1]} found for each of {len(found)} queries, '
      f'{len(gold)} with translations',
      expected=f'at least {k} found for each, and at least one query',
    )
  right = [
    not set(row[:k].tolist()).isdisjoint(wanted)
    for row, wanted in zip(found, gold, strict=True)
  ]
  return float(np.mean(right))


def _unit(vectors: np.ndarray) -> np.ndarray:
  vectors = checks.vectors(vectors, 'a side')
  return similarity.unit_rows(np.asarray(vectors, np.float32))
