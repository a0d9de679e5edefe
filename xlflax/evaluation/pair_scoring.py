"""Scoring of text pairs with a single-output head."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.evaluation import eval_task, head_predictions
from xlflax.objectives.finetuning import sequence_regression

_BLOCK = 8192  # Number of pairs whose tokens are in memory at the same time.


@dataclasses.dataclass(frozen=True)
class PairScores:
  """Scores of text pairs.

  Attributes:
    scores: Score of each pair, float32 of shape [N].
    num_full: Number of sequences that have the maximum length and may therefore
      be truncated.
  """

  scores: np.ndarray
  num_full: int


def score_pairs(
  eval_model: eval_task.EvalModel,
  objective: sequence_regression.SequenceRegression,
  pairs: Sequence[labeled_examples.RatedPair],
  *,
  length: int | None,
  template: Mapping[str, Any],
) -> PairScores:
  """Computes the score of each text pair.

  Args:
    eval_model: Model with restored parameters.
    objective: Objective that trained the head.
    pairs: N pairs of texts. Their ratings are not read.
    length: Maximum number of tokens per sequence. The longer text of a pair is
      truncated. If None, the maximum length of the model.
    template: Arguments `separator` and `positions` of the featurizer that joins
      the texts.
  """
  maker = classification_featurizer.RegressionFeaturizer(**template)
  length = head_predictions.length_of(eval_model, length)
  scores = np.zeros(len(pairs), np.float32)
  num_full = 0
  for start in range(0, len(pairs), _BLOCK):
    block = pairs[start : start + _BLOCK]
    rows = [
      row for (row,) in maker.texts(block, eval_model.vocabulary, length=length)
    ]
    num_full += sum(len(row[batch_keys.TOKEN_IDS]) == length for row in rows)
    for index, output in head_predictions.predict_rows(
      eval_model, objective, rows, maker, max_length=length
    ):
      scores[start + index] = output[0]
  return PairScores(scores, num_full)
