"""Sentence retrieval after an orthogonal map of each layer.

Source: ECS (Wu et al., 2020) section 5.1.3 and figure 6: the map is learned on
parallel sentences (10,000 there), Tatoeba is retrieved by cosine.
"""

from typing import NamedTuple

import numpy as np

from xlflax import errors
from xlflax.evaluation.tasks import retrieval
from xlflax.similarity import procrustes


class Sides(NamedTuple):
  """States of translated sentences, by two models or one.

  Attributes:
    first: [layers, N, D].
    second: [layers, N, E]; sentence i translates sentence i of `first`.
  """

  first: np.ndarray
  second: np.ndarray


def score_layers(
  train: Sides, test: Sides, *, max_rounds: int = 50
) -> retrieval.PairScores:
  """Accuracy@1 of every layer, with the map learned on other sentences.

  The first side is normalised and mapped into the space of the second, which
  is normalised, both as their training sentences are.

  Args:
    train: what maps are learned from.
    test: what is retrieved.
    max_rounds: of the iterative normalisation.

  Raises:
    AnalysisError: sides of different layers, sizes or numbers of sentences,
      or states that are not finite.
  """
  depths = [len(side) for sides in (train, test) for side in sides]
  if len(set(depths)) != 1:
    raise errors.AnalysisError(
      'Layers can not be mapped to one another',
      got=f'{depths} layers',
      expected='as many of both sides, for training and test',
    )
  first, second = [], []
  for source, target, asked, wanted in zip(*train, *test, strict=True):
    alignment = procrustes.align(source, target, max_rounds=max_rounds)
    first.append(alignment.map_source(asked))
    second.append(alignment.map_target(wanted))
  return retrieval.score_layers(np.array(first), np.array(second))
