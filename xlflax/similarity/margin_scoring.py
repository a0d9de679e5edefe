"""Margin-based bitext mining between two sets of sentence embeddings.

Source: Artetxe and Schwenk (2019, "Margin-based parallel corpus mining with
multilingual sentence embeddings") section 3. The score of a pair compares its
cosine with the mean cosine of each sentence to its k nearest neighbors, with k
= 4. A pair is a candidate if it is the best pair of its sentences.
"""

import enum
from typing import NamedTuple

import numpy as np

from xlflax.similarity import cosine, neighbors, vector_checks
from xlflax.similarity.block_matmul import BLOCKS, Blocks
from xlflax.utils import errors, validation


class Margin(enum.Enum):
  """Formula for the margin score of a sentence pair.

  In the formulas, c is the cosine of the pair, and m is the mean cosine of its
  sentences to their nearest neighbors.
  """

  ABSOLUTE = 'absolute'  # c
  DISTANCE = 'distance'  # c - m
  RATIO = 'ratio'  # c / m


class Direction(enum.Enum):
  """Retrieval direction that determines the candidate pairs."""

  FORWARD = 'forward'  # One pair per sentence of the first set.
  BACKWARD = 'backward'  # One pair per sentence of the second set.
  INTERSECTION = 'intersection'  # Pairs of both directions.
  # Pairs of either direction, selected greedily such that each sentence occurs
  # once.
  MAX = 'max'


class Candidates(NamedTuple):
  """Candidate translation pairs in descending order of their margin scores.

  C denotes the number of pairs.

  Attributes:
    first: Row indices in the first set, int64 of shape [C].
    second: Row indices in the second set, int64 of shape [C].
    scores: Margin scores, float64 of shape [C].
  """

  first: np.ndarray
  second: np.ndarray
  scores: np.ndarray


@validation.validate_call
def find_candidates(
  first: np.ndarray,
  second: np.ndarray,
  *,
  k: int = 4,
  margin: Margin | str = Margin.RATIO,
  direction: Direction | str = Direction.MAX,
  blocks: Blocks = BLOCKS,
) -> Candidates:
  """Finds candidate translation pairs and computes their margin scores.

  Args:
    first: Sentence embeddings of shape [N, D].
    second: Sentence embeddings of shape [M, D].
    k: Number of nearest neighbors of each sentence. Margin scores compare a
      pair with these neighbors, and the best pair of a sentence is searched
      among them.
    margin: Formula for the margin score: ABSOLUTE, DISTANCE or RATIO. The ratio
      is 0 if the neighbors' mean similarity is not positive.
    direction: Retrieval direction whose best pairs become candidates: FORWARD,
      BACKWARD, INTERSECTION or MAX.
    blocks: Block sizes, which bound the memory that the search needs.

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, the
      dimensions differ, or k is less than 1.
  """
  margin = validation.validate(margin, Margin, name='margin')
  direction = validation.validate(direction, Direction, name='direction')
  forward, backward = neighbors.find_nearest_both_ways(
    *(
      cosine.normalize_rows(vector_checks.check_vectors(side, 'a language'))
      for side in (first, second)
    ),
    k=k,
    blocks=blocks,
  )
  means = [
    result.scores.mean(1, dtype=np.float64) for result in (forward, backward)
  ]
  forward_pairs = _best(forward, means[0], means[1], margin)
  backward_pairs = _swapped(_best(backward, means[1], means[0], margin))
  if direction is Direction.FORWARD:
    selected = forward_pairs
  elif direction is Direction.BACKWARD:
    selected = backward_pairs
  elif direction is Direction.INTERSECTION:
    is_mutual = (
      backward_pairs.first[forward_pairs.second] == forward_pairs.first
    )
    selected = Candidates(*(column[is_mutual] for column in forward_pairs))
  else:
    selected = _each_once(
      _sorted(
        Candidates(
          *map(np.concatenate, zip(forward_pairs, backward_pairs, strict=True))
        )
      ),
      len(first),
      len(second),
    )
  return _sorted(selected)


@validation.validate_call
def margin_scores(
  first: np.ndarray,
  second: np.ndarray,
  *,
  k: int = 4,
  margin: Margin | str = Margin.RATIO,
  blocks: Blocks = BLOCKS,
) -> np.ndarray:
  """Returns the margin score of each pair of rows, float64 of shape [N].

  A row's neighbors are searched among all rows of the opposite set.

  Args:
    first: Sentence embeddings of shape [N, D].
    second: Sentence embeddings of shape [N, D].
    k: Number of nearest neighbors. A margin score compares the similarity of a
      pair with the mean similarity of both rows to their neighbors.
    margin: Formula for the margin score: ABSOLUTE, DISTANCE or RATIO. The ratio
      is 0 if the neighbors' mean similarity is not positive.
    blocks: Block sizes, which bound the memory that the search needs.

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, the shapes
      differ, or k is less than 1.
  """
  margin = validation.validate(margin, Margin, name='margin')
  sides = [
    cosine.normalize_rows(vector_checks.check_vectors(side, 'a language'))
    for side in (first, second)
  ]
  if len(first) != len(second):
    raise errors.AnalysisError(
      '`margin_scores` requires two sets with the same number of vectors, but '
      f'found {len(first)} and {len(second)} vectors'
    )
  means = [
    result.scores.mean(1, dtype=np.float64)
    for result in neighbors.find_nearest_both_ways(*sides, k=k, blocks=blocks)
  ]
  cosines = np.einsum('nd,nd->n', *sides).astype(np.float64)
  return _scored(cosines, (means[0] + means[1]) / 2, margin)


def _scored(
  cosines: np.ndarray, mean: np.ndarray, margin: Margin
) -> np.ndarray:
  """Computes margin scores from cosines and neighbor means of equal shape."""
  if margin is Margin.DISTANCE:
    return cosines - mean
  if margin is Margin.RATIO:
    return np.where(mean > 0, cosines / np.where(mean > 0, mean, 1), 0)
  return cosines


def _best(
  nearest: neighbors.Neighbors,
  query_means: np.ndarray,
  key_means: np.ndarray,
  margin: Margin,
) -> Candidates:
  """Returns each query's neighbor with the greatest margin score.

  Args:
    nearest: Nearest neighbors of each query, of shape [N, k].
    query_means: Each query's mean similarity to its neighbors, of shape [N].
    key_means: Each key's mean similarity to its neighbors, of shape [M].
    margin: Formula for the margin score.
  """
  mean = (query_means[:, None] + key_means[nearest.indices]) / 2  # [N, k]
  scores = _scored(nearest.scores.astype(np.float64), mean, margin)
  best_columns = np.argmax(scores, 1)
  rows = np.arange(len(scores))
  return Candidates(
    rows, nearest.indices[rows, best_columns], scores[rows, best_columns]
  )


def _swapped(pairs: Candidates) -> Candidates:
  return Candidates(pairs.second, pairs.first, pairs.scores)


def _sorted(pairs: Candidates) -> Candidates:
  """Sorts pairs by descending score, then by ascending rows."""
  order = np.lexsort((pairs.second, pairs.first, -pairs.scores))
  return Candidates(*(column[order] for column in pairs))


def _each_once(
  pairs: Candidates, num_first: int, num_second: int
) -> Candidates:
  """Selects pairs greedily, best first, with at most one per sentence."""
  is_free = [np.ones(num_first, bool), np.ones(num_second, bool)]
  selected = []
  for position, (i, j) in enumerate(
    zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
  ):
    if is_free[0][i] and is_free[1][j]:
      is_free[0][i] = is_free[1][j] = False
      selected.append(position)
  return Candidates(*(column[selected] for column in pairs))
