"""Parallel text with shifted or shuffled translations."""

import random

_EN = 'the committee met on tuesday and decided to sell the house'.split()
_DE = 'der ausschuss traf sich am dienstag und beschloss den verkauf'.split()


def shifted_pairs(
  *, lines: int, first: int = 0, size: int = 300
) -> list[tuple[str, str]]:
  """Returns pairs of texts with similar lengths.

  Args:
    lines: Number of lines by which translations are below their sources.
    first: Index of the first pair that is shifted.
    size: Number of pairs.
  """
  random_generator = random.Random(0)
  sources, targets = [], []
  for _ in range(size):
    num_words = random_generator.randint(5, 30)
    sources.append(' '.join(random_generator.choices(_EN, k=num_words)))
    targets.append(' '.join(random_generator.choices(_DE, k=num_words)))
  return [
    (source, targets[(i - lines if i >= first else i) % size])
    for i, source in enumerate(sources)
  ]


def shuffled_pairs(*, size: int = 300) -> list[tuple[str, str]]:
  """Returns pairs of texts whose targets were shuffled separately."""
  sources, targets = zip(*shifted_pairs(lines=0, size=size), strict=True)
  order = random.Random(1).sample(range(size), size)
  return [
    (source, targets[i]) for source, i in zip(sources, order, strict=True)
  ]
