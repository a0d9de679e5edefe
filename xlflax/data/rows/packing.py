"""Next-fit packing: several short examples in one row."""

import numpy as np


def next_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
  """Where rows begin when examples fill them in order.

  An example that does not fit in the open row closes it:
  `next_fit([3, 2, 4, 1], 5)` is `[0, 2, 4]`: rows (3, 2) and (4, 1).

  Args:
    lengths: tokens of each example, at most `capacity`, int [examples].
    capacity: tokens in a row.

  Returns:
    int64 [rows + 1]: row r holds examples bounds[r] .. bounds[r + 1] - 1.
  """
  ends = np.concatenate([[0], np.cumsum(lengths)])
  # after[i]: the first example that no longer fits in a row begun by i.
  after = (np.searchsorted(ends, ends[:-1] + capacity, 'right') - 1).tolist()
  bounds, example = [0], 0
  while example < len(after):
    example = after[example]
    bounds.append(example)
  return np.asarray(bounds, np.int64)
