"""Random draws that are the same on every machine and Python version."""

from collections.abc import MutableSequence, Sequence
from typing import TypeVar

from xlflax.data.sampling import hashing

_Item = TypeVar('_Item')
_MASK = (1 << 64) - 1


class Draws:
  """A sequence of random numbers fixed by a key.

  SplitMix64 over a counter (Steele, Lea and Flood 2014), in plain integers;
  nothing here depends on `random` or `numpy.random`.
  """

  def __init__(self, *parts: int | str):
    """Starts the sequence of a key made from numbers and names."""
    self._state = hashing.make_key(*parts)

  def bits(self) -> int:
    """The next 64 random bits."""
    self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
    value = self._state
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)

  def below(self, count: int) -> int:
    """A number of 0 .. count - 1 (its bias is below count / 2^64)."""
    return (self.bits() * count) >> 64

  def chance(self, probability: float) -> bool:
    """True with the given probability."""
    return self.bits() < probability * (1 << 64)

  def choice(self, items: Sequence[_Item]) -> _Item:
    """One of the items, each alike."""
    return items[self.below(len(items))]

  def weighted(self, weights: dict[_Item, float]) -> _Item:
    """One of the keys, in proportion to its weight."""
    left = self.bits() / (1 << 64) * sum(weights.values())
    for item, weight in weights.items():
      left -= weight
      if left < 0:
        return item
    return next(item for item in reversed(weights) if weights[item] > 0)

  def shuffle(self, items: MutableSequence) -> None:
    """Permutes in place (Fisher and Yates)."""
    for last in range(len(items) - 1, 0, -1):
      other = self.below(last + 1)
      items[last], items[other] = items[other], items[last]

  def sample(self, items: Sequence[_Item], count: int) -> list[_Item]:
    """`count` different items in random order."""
    pool = list(items)
    self.shuffle(pool)
    return pool[:count]
