"""Helpers that return the content of a cached task as one array."""

import numpy as np


def tokens(side) -> np.ndarray:
  """Returns all token IDs of a side, including the EOS of each text."""
  return side.slices(np.zeros(1, np.int64), np.array([side.num_tokens]))[0]


def lengths(side) -> np.ndarray:
  """Returns the number of tokens of each text without EOS."""
  return np.concatenate(list(side.lengths()))
