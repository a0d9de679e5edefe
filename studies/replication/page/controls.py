"""Negative controls: equal systems under other seeds must not differ."""

import random
from collections.abc import Sequence

from studies.replication import claims as claims_lib
from studies.replication.claims import Claim, Order, Scores, Verdict
from xlflax.evaluation.metrics import paired_comparison

DRAWS = 20
_FEWEST = 4  # seeds: two of each half


def equal_systems(
  values: Sequence[float], *, draws: int = DRAWS, seed: int = 0
) -> int:
  """How often one condition comes out as other than itself.

  Its seeds are parted in two halves at random, which are compared as if they
  were two systems: one in twenty verdicts is wrong by the rule's own design.

  Args:
    values: of one condition, a seed each; four or more.
    draws: how often.
    seed: of the draws.
  """
  draw = random.Random(seed)
  half = len(values) // 2
  resolved = 0
  for _ in range(draws):
    order = draw.sample(list(values), 2 * half)
    compared = paired_comparison.compare_paired(order[:half], order[half:])
    verdict = claims_lib.judge_interval(compared, Order.BELOW)
    resolved += verdict is not Verdict.NOT_RESOLVED
  return resolved


def sentence(claims: Sequence[Claim], scores: Scores) -> str:
  """What all conditions against themselves come to; '' where none can be.

  Args:
    claims: whose conditions and measures are drawn.
    scores: of the runs.
  """
  sides = {
    side
    for claim in claims
    for side in zip((claim.first, claim.second), claim.measures, strict=True)
  }
  found = []
  for name, measure in sorted(sides):
    own = scores.get(name, {})
    values = [own[s][measure] for s in sorted(own) if measure in own[s]]
    if len(values) >= _FEWEST:
      found.append(equal_systems(values))
  if not found:
    return ''
  return (
    'Where the seeds of one condition are parted in two halves, '
    f'{DRAWS} times at random, and compared by the same rule, '
    f'{sum(found):,} of {len(found) * DRAWS:,} comparisons are resolved; one '
    'in twenty is by design.'
  )
