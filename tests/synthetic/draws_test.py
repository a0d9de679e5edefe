"""Random draws that no version of anything changes."""

import collections

from xlflax.synthetic.draws import Draws


def test_is_pinned():
  draws = Draws(7, 'pinned')
  assert [draws.below(1000) for _ in range(6)] == [98, 264, 386, 35, 756, 203]
  assert Draws(7, 'pinned').bits() != Draws(8, 'pinned').bits()


def test_shuffle_and_sample():
  items = list(range(20))
  Draws(1).shuffle(items)
  assert items != sorted(items) and sorted(items) == list(range(20))
  sample = Draws(1).sample(range(20), 5)
  assert len(set(sample)) == 5 and set(sample) <= set(range(20))


def test_frequencies():
  draws = Draws('frequencies')
  counts = collections.Counter(
    draws.weighted({'a': 3.0, 'b': 1.0, 'c': 0.0}) for _ in range(4000)
  )
  assert abs(counts['a'] - 3000) < 120 and counts['c'] == 0
  counts = collections.Counter(draws.below(5) for _ in range(5000))
  assert set(counts) == set(range(5)) and min(counts.values()) > 880
  assert abs(sum(draws.chance(0.2) for _ in range(5000)) - 1000) < 120
  assert not draws.chance(0.0) and draws.chance(1.0)
