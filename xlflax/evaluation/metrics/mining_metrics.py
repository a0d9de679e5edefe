"""Precision, recall, F1 and similarity threshold of mined sentence pairs.

Source: Zweigenbaum et al. (2017), the BUCC shared task. The threshold is chosen
on the development set to maximize F1, halfway between two consecutive scores.
"""

import dataclasses
import math
from collections.abc import Collection, Hashable, Mapping

import numpy as np

from xlflax.evaluation.metrics import example_statistics, metric_checks

Pair = tuple[Hashable, Hashable]


@dataclasses.dataclass(frozen=True, eq=False)
class MiningScores:
  """Precision, recall and F1 of mined sentence pairs, as fractions.

  Attributes:
    precision: Fraction of the mined pairs that are gold pairs.
    recall: Fraction of the gold pairs that are mined.
    f1: Harmonic mean of precision and recall.
  """

  precision: float
  recall: float
  f1: float


@dataclasses.dataclass(frozen=True)
class Threshold:
  """Similarity threshold with the highest F1.

  Attributes:
    value: Similarity threshold. Pairs with at least this score are mined.
    precision: Precision of the pairs mined at this threshold.
    recall: Recall of the pairs mined at this threshold.
    f1: F1 of the pairs mined at this threshold.
  """

  value: float
  precision: float
  recall: float
  f1: float


def mining_scores(
  mined: Collection[Pair], gold: Collection[Pair]
) -> MiningScores:
  """Scores mined pairs of sentence ids and counts repeated pairs once.

  Raises:
    CorpusError: If there are no gold pairs.
  """
  metric_checks.not_empty(gold, what='gold pairs')
  mined_set, gold_set = set(mined), set(gold)
  return MiningScores(
    *_scores(len(mined_set & gold_set), len(mined_set), len(gold_set))
  )


def of_sentences(
  sentences: Collection[Hashable],
  mined: Collection[Pair],
  gold: Collection[Pair],
) -> example_statistics.Statistics:
  """Counts correct, mined and gold pairs for each first-language sentence.

  Args:
    sentences: Ids of the first language's sentences.
    mined: Mined pairs of sentence ids.
    gold: Gold pairs of sentence ids.
  """
  mined_set, gold_set = set(mined), set(gold)
  rows = {sentence: [0, 0, 0] for sentence in sentences}
  for column, pairs in enumerate((mined_set & gold_set, mined_set, gold_set)):
    for sentence, _ in pairs:
      rows[sentence][column] += 1
  return example_statistics.Statistics(
    np.array(list(rows.values())), example_statistics.Aggregate.F1
  )


def best_threshold(
  candidates: Mapping[Pair, float], gold: Collection[Pair]
) -> Threshold:
  """Returns the similarity threshold with the highest F1.

  Candidates with equal scores are either all mined or all rejected. The
  threshold is halfway to the next lower score, or the lowest score if mining
  all candidates is best. Of several thresholds with the same F1, the highest is
  returned.

  Args:
    candidates: Similarity score of each candidate pair of sentence ids. Pairs
      with higher scores are more likely to be translations.
    gold: Gold sentence pairs of the development set.

  Returns:
    The threshold and its scores. If no candidate is correct, the threshold is
    infinite and the scores are 0.

  Raises:
    CorpusError: If there are no gold pairs.
  """
  metric_checks.not_empty(gold, what='gold pairs')
  gold_set = set(gold)
  ranked = sorted(candidates.items(), key=lambda item: -item[1])
  scores = [score for _, score in ranked]
  best = Threshold(math.inf, 0.0, 0.0, 0.0)
  num_correct = 0
  for num_mined, (pair, score) in enumerate(ranked, 1):
    num_correct += pair in gold_set
    next_score = scores[num_mined] if num_mined < len(scores) else score
    if num_mined < len(scores) and next_score == score:
      continue
    precision, recall, f1 = _scores(num_correct, num_mined, len(gold_set))
    if f1 > best.f1:
      best = Threshold(_midpoint(next_score, score), precision, recall, f1)
  return best


def _midpoint(lower: float, upper: float) -> float:
  """Returns the midpoint, or `upper` if no float lies between the bounds."""
  middle = (lower + upper) / 2
  return middle if lower < middle else upper


def _scores(correct: int, mined: int, gold: int) -> tuple[float, float, float]:
  """Computes precision, recall and F1 from numbers of sentence pairs."""
  if not correct:
    return 0.0, 0.0, 0.0
  return correct / mined, correct / gold, 2 * correct / (mined + gold)
