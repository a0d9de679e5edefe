"""Subsets of examples as bit masks, with access to the i-th example."""

import numpy as np

_WORD_BITS = 64


class Selection:
  """Subset of the integers from 0 to n - 1, such as the indices of examples.

  Attributes:
    size: Number of elements in the subset.
  """

  def __init__(self, bits: np.ndarray | None, size: int):
    """Creates a subset.

    Args:
      bits: Bit mask of the subset, uint8 [bytes], with eight elements per byte
        and padded to words of 64 bits. If None, all elements are in the subset.
      size: Number of elements in the subset.
    """
    self.size = size
    self._words = None if bits is None else bits.reshape(-1, _WORD_BITS // 8)
    if self._words is not None:
      # Number of elements up to the end of each word.
      self._ends = np.cumsum(np.bitwise_count(self._words).sum(-1, np.int64))

  def positions(self, index: np.ndarray) -> np.ndarray:
    """Returns the i-th smallest element of the subset for each index i.

    For example, the elements with ranks 0 and 2 in the subset {2, 5, 6} are 2
    and 6.

    Args:
      index: Zero-based ranks of the elements to return, int64 [n]. The smallest
        element of the subset has rank 0.

    Returns:
      Elements, int64 [n].
    """
    if self._words is None:
      return index
    word = np.searchsorted(self._ends, index, 'right')
    start = np.where(word > 0, self._ends[word - 1], 0)
    bits = np.unpackbits(self._words[word], axis=-1)  # [n, 64]
    has_rank = np.cumsum(bits, -1, dtype=np.int64) > (index - start)[:, None]
    return word * _WORD_BITS + np.argmax(has_rank, -1)


class Builder:
  """Builder that creates a `Selection` from masks of consecutive elements.

  Attributes:
    num_elements: Number of elements added so far, selected or not.
  """

  def __init__(self) -> None:
    self.num_elements = 0
    self._size = 0
    self._packed: list[np.ndarray] = []
    self._pending = np.zeros(0, bool)

  def add(self, keep: np.ndarray) -> None:
    """Appends elements, and records which of them are in the subset.

    Args:
      keep: Whether each element is in the subset, bool [n].
    """
    self.num_elements += keep.size
    self._size += int(np.count_nonzero(keep))
    mask = np.concatenate([self._pending, keep])
    num_packed = mask.size - mask.size % _WORD_BITS
    self._packed.append(np.packbits(mask[:num_packed]))
    self._pending = mask[num_packed:]

  def build(self) -> Selection:
    """Returns the subset that is selected by the masks added so far."""
    if self._size == self.num_elements:
      return Selection(None, self._size)
    num_words = -(-self._pending.size // _WORD_BITS)
    padded = np.zeros(num_words * _WORD_BITS, bool)
    padded[: self._pending.size] = self._pending
    return Selection(
      np.concatenate([*self._packed, np.packbits(padded)]), self._size
    )
