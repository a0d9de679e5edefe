"""Which examples are kept, in one bit each, and the place of the n-th kept."""

import numpy as np

_BITS = 64


class Selection:
  """A subset of 0 .. n - 1.

  Attributes:
    size: its elements.
  """

  def __init__(self, bits: np.ndarray | None, size: int):
    """Makes a subset.

    Args:
      bits: uint8 [bytes], eight elements a byte, whole words of 64; None: all.
      size: number of elements that are in it.
    """
    self.size = size
    self._words = None if bits is None else bits.reshape(-1, _BITS // 8)
    if self._words is not None:
      self._after = np.cumsum(np.bitwise_count(self._words).sum(-1, np.int64))

  def places(self, index: np.ndarray) -> np.ndarray:
    """The elements number `index`, int64 [n], of the subset in order.

    Of the subset 2, 5, 6 the elements number 0 and 2 are 2 and 6.
    """
    if self._words is None:
      return index
    word = np.searchsorted(self._after, index, 'right')
    before = np.where(word > 0, self._after[word - 1], 0)
    bits = np.unpackbits(self._words[word], axis=-1)  # [n, 64]
    reached = np.cumsum(bits, -1, dtype=np.int64) > (index - before)[:, None]
    return word * _BITS + np.argmax(reached, -1)


class Builder:
  """Makes a `Selection` of masks that come one after the other.

  Attributes:
    num_seen: elements so far, kept or not.
  """

  def __init__(self) -> None:
    self.num_seen = 0
    self._size = 0
    self._packed: list[np.ndarray] = []
    self._rest = np.zeros(0, bool)

  def add(self, keep: np.ndarray) -> None:
    """Adds whether each of the next elements is kept, bool [n]."""
    self.num_seen += keep.size
    self._size += int(np.count_nonzero(keep))
    joined = np.concatenate([self._rest, keep])
    num_packed = joined.size - joined.size % _BITS
    self._packed.append(np.packbits(joined[:num_packed]))
    self._rest = joined[num_packed:]

  def build(self) -> Selection:
    """The subset of all elements so far."""
    if self._size == self.num_seen:
      return Selection(None, self._size)
    last = np.zeros(-(-self._rest.size // _BITS) * _BITS, bool)
    last[: self._rest.size] = self._rest
    return Selection(
      np.concatenate([*self._packed, np.packbits(last)]), self._size
    )
