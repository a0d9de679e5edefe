"""How many links of a word alignment are right.

Source: Och and Ney (2003, "A systematic comparison of various statistical
alignment models") section 6: with found links A, sure links S and possible
links P that include S, precision = |A & P| / |A|, recall = |A & S| / |S| and
the alignment error rate AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).
"""

import dataclasses
from collections.abc import Set

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkCounts:
  """Numbers of links, summed over sentences; of one aligner or of many.

  Attributes:
    found: |A|; an int, or an array with an entry for each aligner.
    found_sure: |A & S|.
    found_possible: |A & P|.
    sure: |S|.
  """

  found: np.ndarray | int
  found_sure: np.ndarray | int
  found_possible: np.ndarray | int
  sure: int

  def __add__(self, other: 'LinkCounts') -> 'LinkCounts':
    return LinkCounts(**{
        field.name: getattr(self, field.name) + getattr(other, field.name)
        for field in dataclasses.fields(self)})

  @property
  def precision(self) -> np.ndarray:
    """NaN where no link was found."""
    return _ratio(self.found_possible, self.found)

  @property
  def recall(self) -> np.ndarray:
    """NaN if no link is sure."""
    return _ratio(self.found_sure, self.sure)

  @property
  def error_rate(self) -> np.ndarray:
    """0 is perfect, 1 is all wrong; NaN if there is no link at all."""
    return 1 - _ratio(np.add(self.found_sure, self.found_possible),
                      np.add(self.found, self.sure))


def count(links: Set[tuple[int, int]], sure: Set[tuple[int, int]],
          possible: Set[tuple[int, int]]) -> LinkCounts:
  """The counts of one sentence; sure links are possible in any case."""
  return LinkCounts(
      found=len(links), found_sure=len(links & sure),
      found_possible=len(links & (possible | sure)), sure=len(sure))


def count_matrices(links: np.ndarray, sure: Set[tuple[int, int]],
                   possible: Set[tuple[int, int]]) -> LinkCounts:
  """As `count`, for many aligners at once.

  Args:
    links: bool [..., M, N]. Gold links outside of it can not be found, but
      count as gold.
    sure: S of the sentence.
    possible: P of the sentence.

  Returns:
    Counts with arrays [...].
  """
  def hits(gold: Set[tuple[int, int]]) -> np.ndarray:
    inside = [(i, j) for i, j in gold
              if i < links.shape[-2] and j < links.shape[-1]]
    places = np.array(inside, np.int64).reshape(-1, 2)
    return links[..., places[:, 0], places[:, 1]].sum(-1)

  return LinkCounts(found=links.sum((-1, -2)), found_sure=hits(sure),
                    found_possible=hits(possible | sure), sure=len(sure))


def _ratio(part, whole) -> np.ndarray:
  whole = np.asarray(whole, np.float64)
  return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)
