"""Estimate of how often the replication study finds differences by chance."""

import random
from collections.abc import Sequence

from studies.replication.claims import (
  Claim,
  Order,
  Scores,
  Verdict,
  judge_interval,
)
from xlflax.evaluation.metrics import paired_comparison

NUM_DRAWS = 20
_MIN_SEEDS = 4  # Two seeds in each half.


def count_resolved_halves(
  values: Sequence[float], *, draws: int = NUM_DRAWS, seed: int = 0
) -> int:
  """Counts false positives in comparisons of a configuration with itself.

  The seeds of one training configuration (condition) are split into random
  halves, which are compared as if they were two conditions. A false positive is
  a comparison whose 95 % confidence interval excludes 0. One in twenty
  comparisons is expected to be a false positive.

  Args:
    values: Scores of one condition, one for each seed. At least four are
      required.
    draws: Number of random splits into two halves.
    seed: Random seed for the splits.
  """
  rng = random.Random(seed)
  half = len(values) // 2
  num_resolved = 0
  for _ in range(draws):
    order = rng.sample(list(values), 2 * half)
    significance = paired_comparison.compare_paired(order[:half], order[half:])
    verdict = judge_interval(significance, Order.BELOW)
    num_resolved += verdict is not Verdict.NOT_RESOLVED
  return num_resolved


def describe_false_positives(claims: Sequence[Claim], scores: Scores) -> str:
  """Returns a sentence that states how often differences are found by chance.

  Args:
    claims: Claims that specify the conditions and measures to check.
    scores: Nested map from condition to seed to measure to value.

  Returns:
    The sentence, or an empty string if no condition has enough seeds.
  """
  condition_measures = {
    pair
    for claim in claims
    for pair in zip((claim.first, claim.second), claim.measures, strict=True)
  }
  counts = []
  for name, measure in sorted(condition_measures):
    by_seed = scores.get(name, {})
    values = [
      by_seed[seed][measure]
      for seed in sorted(by_seed)
      if measure in by_seed[seed]
    ]
    if len(values) >= _MIN_SEEDS:
      counts.append(count_resolved_halves(values))
  if not counts:
    return ''
  return (
    'To check how often a difference is found by chance, the seeds of each '
    f'model variant were split into random halves {NUM_DRAWS} times, and the '
    'halves were compared as if they were two model variants. With 95 % '
    'confidence intervals, a difference is expected in one of twenty '
    'comparisons. A difference was found in '
    f'{sum(counts):,} of {len(counts) * NUM_DRAWS:,} comparisons of random '
    'halves.'
  )
