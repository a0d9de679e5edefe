"""Detection of parallel text in which one side is shifted by a few lines.

A sentence and its translation have similar lengths. Neighboring sentences do
not. In 3,159 windows of 50 pairs of NTREX, Tatoeba, Bible verses and the Tanaka
corpus, the median correlation of the lengths of translations is 0.9, and 8
windows are below 0.3. The lengths of lines that are 4 to 20 lines apart have a
correlation above 0.54 in 1 % of the windows, and of at most 0.5 in these 8.
"""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.utils import plurals

_WINDOW = 50
# Maximum shift in lines. A larger shift than the second number is reported only
# if it is found in two windows, because one of many shifts may fit by chance.
_MAX_LINES = 20
_MAX_LINES_IN_ONE_WINDOW = 3
# A window is shifted if the correlation of the lengths is below the maximum for
# its pairs and above the minimum for pairs of shifted lines.
_MAX_CORRELATION = 0.3
_MIN_SHIFTED_CORRELATION = 0.6
# Minimum standard deviation of the logarithms of the lengths. They hardly vary
# in text that is sorted by length, whose windows correlate by chance.
_MIN_STANDARD_DEVIATION = 0.15


class Shift(NamedTuple):
  """Number of lines by which translations are shifted from their sources.

  The shift is measured in a window of consecutive sentence pairs.

  Attributes:
    start: Index of the first pair of the window.
    lines: Offset of the translations from their sources, in lines. It is
      negative if the translations come first.
  """

  start: int
  lines: int

  def __str__(self):
    count = abs(self.lines)
    return (
      f'{plurals.format_count(count, "line")} '
      f'{"below" if self.lines > 0 else "above"}'
    )


def find_shift(pairs: Sequence[tuple[str, str]]) -> Shift | None:
  """Finds the first window of pairs in which the lines seem to be shifted.

  Args:
    pairs: Sources and targets in the order of the file. They are compared in
      windows of 50 consecutive pairs. The result is None if there are fewer
      than 50 pairs. Shifts by 4 to 20 lines are found only if two windows are
      shifted by the same number of lines.
  """
  lengths = np.log1p([[len(text) for text in pair] for pair in pairs])
  starts: dict[int, list[int]] = collections.defaultdict(list)
  for start in range(0, len(pairs) - _WINDOW + 1, _WINDOW):
    source, target = lengths[start : start + _WINDOW].T
    if (
      min(source.std(), target.std()) < _MIN_STANDARD_DEVIATION
      or _correlation(source, target) >= _MAX_CORRELATION
    ):
      continue
    correlations = {
      sign * count: _correlation(first[:-count], second[count:])
      for count in range(1, _MAX_LINES + 1)
      for sign, first, second in ((1, source, target), (-1, target, source))
    }
    lines = max(correlations, key=lambda lines: correlations[lines])
    if correlations[lines] > _MIN_SHIFTED_CORRELATION:
      starts[lines].append(start)
      if abs(lines) <= _MAX_LINES_IN_ONE_WINDOW or len(starts[lines]) == 2:
        return Shift(starts[lines][0], lines)
  return None


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
  """Returns Pearson's correlation, or 0 if all values of a side are equal."""
  if not (first.std() and second.std()):
    return 0.0
  return float(np.corrcoef(first, second)[0, 1])
