"""Candidate translations among two sets of sentence vectors.

Source: Artetxe and Schwenk (2019, "Margin-based parallel corpus mining with
multilingual sentence embeddings") section 3: a pair is scored by its cosine in
comparison with the mean cosine to the k nearest neighbours of either sentence,
k = 4 there; and a pair is a candidate if it is the best of its sentences.
"""

import enum
from typing import NamedTuple

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks, neighbours
from xlflax.similarity import cosine as similarity
from xlflax.similarity.products import BLOCKS, Blocks


class Margin(enum.Enum):
  """The score of a pair of cosine c whose neighbours' mean cosine is m."""

  ABSOLUTE = 'absolute'  # c
  DISTANCE = 'distance'  # c - m
  RATIO = 'ratio'  # c / m


class Direction(enum.Enum):
  """The side whose best pairs are candidates."""

  FORWARD = 'forward'  # one for each sentence of the first side
  BACKWARD = 'backward'  # one for each sentence of the second side
  INTERSECTION = 'intersection'  # those that are both
  MAX = 'max'  # either, best first, each sentence once


class Candidates(NamedTuple):
  """C pairs, best first.

  Attributes:
    first: int64 [C], rows of the first side.
    second: int64 [C], rows of the second side.
    scores: float64 [C].
  """

  first: np.ndarray
  second: np.ndarray
  scores: np.ndarray


@validation.validate_call
def candidates(
  first: np.ndarray,
  second: np.ndarray,
  *,
  k: int = 4,
  margin: Margin | str = Margin.RATIO,
  direction: Direction | str = Direction.MAX,
  blocks: Blocks = BLOCKS,
) -> Candidates:
  """Returns pairs that may be translations, with their scores.

  Args:
    first: [N, D].
    second: [M, D].
    k: neighbours that a pair is compared with, and among which the best pair
      of a sentence is searched.
    margin: how a pair is scored. A ratio to a mean that is not positive is 0.
    direction: the side whose best pairs are candidates.
    blocks: sizes that bound the memory.

  Raises:
    AnalysisError: no or not finite vectors, different sizes, k < 1.
  """
  margin = validation.validate(margin, Margin, name='margin')
  direction = validation.validate(direction, Direction, name='direction')
  forward, backward = neighbours.nearest_both(
    *(
      similarity.unit_rows(checks.vectors(side, 'a side'))
      for side in (first, second)
    ),
    k=k,
    blocks=blocks,
  )
  means = [
    found.scores.mean(1, dtype=np.float64) for found in (forward, backward)
  ]
  ahead = _best(forward, means[0], means[1], margin)
  behind = _swapped(_best(backward, means[1], means[0], margin))
  if direction is Direction.FORWARD:
    chosen = ahead
  elif direction is Direction.BACKWARD:
    chosen = behind
  elif direction is Direction.INTERSECTION:
    mutual = behind.first[ahead.second] == ahead.first
    chosen = Candidates(*(column[mutual] for column in ahead))
  else:
    chosen = _each_once(
      _sorted(
        Candidates(*map(np.concatenate, zip(ahead, behind, strict=True)))
      ),
      len(first),
      len(second),
    )
  return _sorted(chosen)


@validation.validate_call
def of_pairs(
  first: np.ndarray,
  second: np.ndarray,
  *,
  k: int = 4,
  margin: Margin | str = Margin.RATIO,
  blocks: Blocks = BLOCKS,
) -> np.ndarray:
  """Returns the score of each given pair, row i with row i: float64 [N].

  Neighbours are sought among all rows of the other side. The arguments and
  errors are those of `candidates`, for [N, D] and [N, D].
  """
  margin = validation.validate(margin, Margin, name='margin')
  sides = [
    similarity.unit_rows(checks.vectors(side, 'a side'))
    for side in (first, second)
  ]
  if len(first) != len(second):
    raise errors.AnalysisError(
      'Pairs have two sides of one length',
      got=f'{len(first)} and {len(second)} vectors',
      expected='as many on both sides',
      where='margin.of_pairs',
    )
  means = [
    found.scores.mean(1, dtype=np.float64)
    for found in neighbours.nearest_both(*sides, k=k, blocks=blocks)
  ]
  cosines = np.einsum('nd,nd->n', *sides).astype(np.float64)
  return _scored(cosines, (means[0] + means[1]) / 2, margin)


def _scored(
  cosines: np.ndarray, mean: np.ndarray, margin: Margin
) -> np.ndarray:
  """Compares cosines with the mean ones of neighbours, of one shape."""
  if margin is Margin.DISTANCE:
    return cosines - mean
  if margin is Margin.RATIO:
    return np.where(mean > 0, cosines / np.where(mean > 0, mean, 1), 0)
  return cosines


def _best(
  found: neighbours.Neighbours,
  queries: np.ndarray,
  keys: np.ndarray,
  margin: Margin,
) -> Candidates:
  """Returns the best-scored neighbour of each query.

  Args:
    found: neighbours [N, k].
    queries: mean similarity of each query [N] to its neighbours.
    keys: the same of each key [M].
    margin: how a pair is scored.
  """
  mean = (queries[:, None] + keys[found.indices]) / 2  # [N, k]
  scores = _scored(found.scores.astype(np.float64), mean, margin)
  place = np.argmax(scores, 1)
  rows = np.arange(len(scores))
  return Candidates(rows, found.indices[rows, place], scores[rows, place])


def _swapped(pairs: Candidates) -> Candidates:
  return Candidates(pairs.second, pairs.first, pairs.scores)


def _sorted(pairs: Candidates) -> Candidates:
  """Sorts pairs by score; of equal ones the lower row comes first."""
  order = np.lexsort((pairs.second, pairs.first, -pairs.scores))
  return Candidates(*(column[order] for column in pairs))


def _each_once(
  pairs: Candidates, size_first: int, size_second: int
) -> Candidates:
  """Takes pairs from the best on, each sentence once."""
  free = [np.ones(size_first, bool), np.ones(size_second, bool)]
  kept = []
  for place, (i, j) in enumerate(
    zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
  ):
    if free[0][i] and free[1][j]:
      free[0][i] = free[1][j] = False
      kept.append(place)
  return Candidates(*(column[kept] for column in pairs))
