"""Mined sentence pairs: precision, recall, F1, and the best threshold.

Source: Zweigenbaum et al. (2017), the BUCC shared task. The threshold is
chosen on the development set, half way between two consecutive scores, so
that F1 is highest there.
"""

import dataclasses
import math
from collections.abc import Collection, Hashable, Mapping

import numpy as np

from xlflax.evaluation.metrics import corpus_statistics, metric_checks

Pair = tuple[Hashable, Hashable]


@dataclasses.dataclass(frozen=True, eq=False)
class MiningScores:
  """Scores of mined pairs, fractions.

  Attributes:
    precision: share of the mined pairs that are gold.
    recall: share of the gold pairs that were mined.
    f1: their harmonic mean.
  """

  precision: float
  recall: float
  f1: float


@dataclasses.dataclass(frozen=True)
class Threshold:
  """The threshold with the highest F1.

  Attributes:
    value: pairs that score at least this are mined.
    precision: of these pairs.
    recall: of these pairs.
    f1: of these pairs.
  """

  value: float
  precision: float
  recall: float
  f1: float


def mining_scores(
  mined: Collection[Pair], gold: Collection[Pair]
) -> MiningScores:
  """Scores mined pairs of ids; a pair given twice counts once.

  Raises:
    CorpusError: there are no gold pairs.
  """
  metric_checks.not_empty(gold, what='gold pairs')
  mined_set, right = set(mined), set(gold)
  return MiningScores(
    *_scores(len(mined_set & right), len(mined_set), len(right))
  )


def of_sentences(
  sentences: Collection[Hashable],
  mined: Collection[Pair],
  gold: Collection[Pair],
) -> corpus_statistics.Statistics:
  """(correct, mined, gold) pairs of each sentence of the first side."""
  mined_set, right = set(mined), set(gold)
  rows = {first: [0, 0, 0] for first in sentences}
  for column, pairs in enumerate((mined_set & right, mined_set, right)):
    for first, _ in pairs:
      rows[first][column] += 1
  return corpus_statistics.Statistics(
    np.array(list(rows.values())), corpus_statistics.Aggregate.F1
  )


def best_threshold(
  candidates: Mapping[Pair, float], gold: Collection[Pair]
) -> Threshold:
  """The threshold between two scores at which the mined pairs' F1 is highest.

  Candidates of one score are mined together or not at all. The threshold is
  half way to the next lower score, or the lowest score itself, if all
  candidates are best mined. Of several that are as good the highest is taken.

  Args:
    candidates: pair of ids -> score, the higher the likelier.
    gold: the right pairs of the development set.

  Returns:
    If no candidate is right: an infinite threshold, and scores of 0.

  Raises:
    CorpusError: there are no gold pairs.
  """
  metric_checks.not_empty(gold, what='gold pairs')
  right = set(gold)
  ranked = sorted(candidates.items(), key=lambda item: -item[1])
  scores = [score for _, score in ranked]
  chosen = Threshold(math.inf, 0.0, 0.0, 0.0)
  correct = 0
  for mined, (pair, score) in enumerate(ranked, 1):
    correct += pair in right
    lower = scores[mined] if mined < len(scores) else score
    if mined < len(scores) and lower == score:
      continue
    found = _scores(correct, mined, len(right))
    if found[2] > chosen.f1:
      chosen = Threshold(_between(lower, score), *found)
  return chosen


def _between(lower: float, upper: float) -> float:
  """Their middle; the upper one where floating point has none in between."""
  middle = (lower + upper) / 2
  return middle if lower < middle else upper


def _scores(correct: int, mined: int, gold: int) -> tuple[float, float, float]:
  if not correct:
    return 0.0, 0.0, 0.0
  return correct / mined, correct / gold, 2 * correct / (mined + gold)
