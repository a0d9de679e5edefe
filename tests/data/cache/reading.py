"""Helpers that return the content of a cached task as one array."""

import numpy as np


def tokens(side) -> np.ndarray:
  """All token ids of a side, with the eos of each text."""
  return side.slices(np.zeros(1, np.int64), np.array([side.num_tokens]))[0]


def lengths(side) -> np.ndarray:
  """Tokens of each text without eos."""
  return np.concatenate(list(side.lengths()))
