"""Negative controls: equal systems under other seeds must not differ."""

import collections
import random
from collections.abc import Sequence

from xlflax.evaluation.metrics import paired
from xlflax.replication import claims as claims_lib
from xlflax.replication import results as results_lib
from xlflax.replication.claims import Order, Verdict
from xlflax.replication.conditions import Condition

DRAWS = 20
MORE_SEEDS = 5
_MEASURE = 'transfer'
# One condition of each family, which is run under more seeds.
_CONDITIONS = (
  'ecs/default',
  'ecs/no_anchors',
  'ecs/extra_anchors',
  'metaxlm/none',
  'ppa/no_moco',
  'veco/mlm_tlm',
)


def more_seeds(
  conditions: Sequence[Condition], seeds: int
) -> list[tuple[Condition, int]]:
  """The further runs that the resampling of seeds needs.

  Args:
    conditions: what is run, each after the one that it begins from.
    seeds: how many seeds every condition has.
  """
  known = {one.name: one for one in conditions}
  wanted = set()
  for name in _CONDITIONS:
    while name in known:
      wanted.add(name)
      name = known[name].begins_from or ''
  return [
    (one, seed)
    for seed in range(seeds, seeds + MORE_SEEDS)
    for one in conditions
    if one.name in wanted
  ]


def equal_systems(
  values: Sequence[float], *, draws: int = DRAWS, seed: int = 0
) -> collections.Counter[Verdict]:
  """Verdicts on one condition against itself.

  Its seeds are parted in two halves at random, which are compared as if they
  were two systems: one in twenty verdicts is wrong by the rule's own design.

  Args:
    values: of one condition, a seed each; four or more.
    draws: how often.
    seed: of the draws.
  """
  draw = random.Random(seed)
  half = len(values) // 2
  found: collections.Counter[Verdict] = collections.Counter()
  for _ in range(draws):
    order = draw.sample(list(values), 2 * half)
    compared = paired.compare_paired(order[:half], order[half:])
    found[claims_lib.judge(compared, Order.BELOW)] += 1
  return found


def section(found: Sequence[results_lib.Result]) -> str:
  """The section of the page; '' where no condition has enough seeds."""
  values: dict[str, list[float]] = {}
  for one in found:
    if _MEASURE in one.measures:
      values.setdefault(one.condition, []).append(one.measures[_MEASURE])
  rows = [_row(name, own) for name, own in values.items() if len(own) >= 4]
  if not rows:
    return ''
  return '\n'.join(
    [
      '## Negative controls',
      '',
      'Variants that are broken on purpose stand in the tables above as '
      '*control*. Below, the seeds of one condition are parted in two '
      f'halves, {DRAWS} times at random, and compared by the same rule: all '
      'should come out as not resolved, but for one in twenty.',
      '',
      '| condition | seeds | not resolved | higher | lower |',
      '| --- ' * 5 + '|',
      *rows,
      '',
    ]
  )


def _row(name: str, values: Sequence[float]) -> str:
  found = equal_systems(values)
  return (
    f'| {name} | {len(values)} | {found[Verdict.NOT_RESOLVED]} '
    f'| {found[Verdict.REPRODUCED]} | {found[Verdict.CONTRADICTED]} |'
  )
