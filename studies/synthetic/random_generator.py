"""Random number generator with the same results on all machines.

The results do not depend on the Python version either.
"""

from collections.abc import MutableSequence, Sequence
from typing import TypeVar

from xlflax.data.sampling import hashing

_Item = TypeVar('_Item')
_MASK = (1 << 64) - 1


class RandomGenerator:
  """A random number generator whose sequence is determined by a key.

  The generator applies SplitMix64 (Steele, Lea and Flood 2014) to a counter,
  using Python integers. It does not depend on `random` or `numpy.random`.

  Args:
    *key: Numbers and names that determine the sequence.
  """

  def __init__(self, *key: int | str):
    self._state = hashing.make_key(*key)

  def next_bits(self) -> int:
    """Returns the next 64 random bits."""
    self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
    value = self._state
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)

  def integer(self, count: int) -> int:
    """Returns a random integer in [0, count) with a bias below count / 2^64."""
    return (self.next_bits() * count) >> 64

  def bernoulli(self, probability: float) -> bool:
    """Returns True with the given probability, and False otherwise."""
    return self.next_bits() < probability * (1 << 64)

  def choice(self, items: Sequence[_Item]) -> _Item:
    """Returns a random item, with equal probabilities."""
    return items[self.integer(len(items))]

  def weighted_choice(self, weights: dict[_Item, float]) -> _Item:
    """Samples a key of `weights` with probability proportional to its value."""
    threshold = self.next_bits() / (1 << 64) * sum(weights.values())
    for item, weight in weights.items():
      threshold -= weight
      if threshold < 0:
        return item
    # Rounding errors can leave a nonnegative threshold after the last item.
    return next(item for item in reversed(weights) if weights[item] > 0)

  def shuffle(self, items: MutableSequence) -> None:
    """Shuffles the items in place with the Fisher-Yates algorithm."""
    for last in range(len(items) - 1, 0, -1):
      other = self.integer(last + 1)
      items[last], items[other] = items[other], items[last]

  def sample(self, items: Sequence[_Item], count: int) -> list[_Item]:
    """Returns `count` distinct random items."""
    pool = list(items)
    self.shuffle(pool)
    return pool[:count]
