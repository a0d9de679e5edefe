"""From scores of arcs to the best dependency tree."""

import numpy as np
from ufal import chu_liu_edmonds

_LOWEST = -1e6  # stands for arcs that cannot be


def decode(scores: np.ndarray) -> np.ndarray:
  """The best tree in which one word depends on the root.

  Chu-Liu/Edmonds' maximum spanning arborescence (Chu and Liu, 1965; Edmonds,
  1967). Arcs from the root are made so much worse, all by the same, that the
  best tree has one of them (Stanojević and Cohen, 2021, section 4).

  Before: `[[., ., .], [1, ., 5], [3, 2, .]]`; after: [2, 0], of 5 + 3.

  Args:
    scores: [W + 1, W + 1]; place (i, j) scores word j as the head of word i,
      0 is the root. The diagonal and row 0 are ignored; very low and infinite
      numbers count as -1e6.

  Returns:
    int [W], the head of each word.
  """
  count = len(scores) - 1
  matrix = np.maximum(np.asarray(scores, np.float64), _LOWEST)
  np.fill_diagonal(matrix, np.nan)
  matrix[0] = np.nan
  if count == 1:
    return np.zeros(1, np.int64)
  used = matrix[1:]
  spread = np.nanmax(used) - np.nanmin(used)
  matrix[1:, 0] -= 1 + count * spread
  heads, _ = chu_liu_edmonds.chu_liu_edmonds(matrix)
  return np.array(heads[1:], np.int64)
