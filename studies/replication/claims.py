"""What a claim, a condition and a verdict are."""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from studies.replication import crossed
from xlflax.evaluation.metrics import bootstrap, paired_comparison

NO_PAPER = 'no paper'  # where a claim stands that is the project's own
FEWEST_SEEDS = 3  # below these a claim counts as not run


class Order(enum.Enum):
  """What a paper says of two conditions, `first` and `second`."""

  BELOW = 'below'  # the first scores lower
  SAME = 'same'  # they differ by less than a margin
  NOT_ABOVE = 'not_above'  # the first is not higher by a margin or more


class Verdict(enum.Enum):
  """Outcome of the experiment on a claim."""

  REPRODUCED = 'reproduced'
  NOT_RESOLVED = 'not_resolved'
  CONTRADICTED = 'contradicted'
  NOT_RUN = 'not_run'
  # The interval of the claim itself is on the claimed side.
  NO_CONTROL = 'no_control'
  NOT_ABOVE_CONTROLS = 'not_above_controls'

  @property
  def label(self) -> str:
    """Description of the verdict for tables and output."""
    return _VERDICT_LABELS[self]


_VERDICT_LABELS = {
  Verdict.REPRODUCED: 'reproduced',
  Verdict.NOT_RESOLVED: 'not resolved',
  Verdict.CONTRADICTED: 'contradicted',
  Verdict.NOT_RUN: 'not run',
  Verdict.NO_CONTROL: 'same order, no control',
  Verdict.NOT_ABOVE_CONTROLS: 'same order, not distinguished from a control',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """A sentence of a paper as an order of two measured conditions.

  Attributes:
    name: unique, `paper.what`.
    paper: such as 'ECS'.
    where: section or table, or NO_PAPER.
    says: the claim.
    published: the paper's numbers, of `first` and then of `second`.
    first: condition that is expected to score lower (or as the other).
    second: the other condition.
    measure: name of the measure, or 'first|second' where they differ.
    order: see `Order`.
    margin: of SAME and NOT_ABOVE, in the measure's unit.
    beside: the claim whose twin this row is: its second condition beside one
      that has as many tokens, shuffled pairs or another thing that might
      explain the order as well; '' for a claim of its own.
  """

  name: str
  paper: str
  section: str
  statement: str
  published: str
  first: str
  second: str
  measure: str
  order: Order = Order.BELOW
  margin: float = 0.0
  control_for: str = ''

  @property
  def is_from_paper(self) -> bool:
    """Whether it is one of the claims that a paper makes."""
    return not self.control_for and self.section != NO_PAPER

  @property
  def measures(self) -> tuple[str, str]:
    """The measure of the first and of the second condition."""
    first, _, second = self.measure.partition('|')
    return first, second or first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
  """What was measured of a claim.

  Attributes:
    claim: the claim.
    verdict: by `judge`.
    seeds: that both conditions have.
    found: means, difference and interval; None if it was not run.
    languages: language -> difference, where there are several.
    errors: of the difference, where there are several languages.
  """

  claim: Claim
  verdict: Verdict
  seeds: tuple[int, ...]
  comparison: bootstrap.Significance | None
  languages: Mapping[str, float] = dataclasses.field(default_factory=dict)
  errors: crossed.Errors | None = None


# Condition -> seed -> measure -> value.
Scores = Mapping[str, Mapping[int, Mapping[str, float]]]


def judge_interval(
  comparison: bootstrap.Significance, order: Order, margin: float = 0.0
) -> Verdict:
  """The page's rule, on the 95 % interval of second - first.

  * BELOW: reproduced if the interval lies above 0, contradicted if it lies
    below.
  * SAME: reproduced if it lies within -margin .. margin, contradicted if it
    lies outside of that.
  * NOT_ABOVE: reproduced if it lies above -margin, contradicted if below.
  """
  if order is Order.SAME:
    good = comparison.low > -margin and comparison.high < margin
    bad = comparison.low > margin or comparison.high < -margin
  else:
    border = 0.0 if order is Order.BELOW else -margin
    good, bad = comparison.low > border, comparison.high < border
  if good:
    return Verdict.REPRODUCED
  return Verdict.CONTRADICTED if bad else Verdict.NOT_RESOLVED


def apply_controls(one: Finding, twins: Sequence[Finding]) -> Verdict:
  """The verdict on a claim, given what its twins say.

  An order is the claim's only where its second condition is also above those
  that have everything but what the claim is about.
  """
  if one.verdict is not Verdict.REPRODUCED:
    return one.verdict
  verdicts = {twin.verdict for twin in twins if twin.comparison is not None}
  if not verdicts:
    return Verdict.NO_CONTROL
  good = verdicts == {Verdict.REPRODUCED}
  return Verdict.REPRODUCED if good else Verdict.NOT_ABOVE_CONTROLS


def seeds_to_resolve(one: Finding) -> int | None:
  """How many seeds would resolve a difference of this size, four times in five.

  By the spread that was seen, of normal differences; None where no difference
  was seen, or languages differ too much for any number of seeds.
  """
  found, count = one.comparison, len(one.seeds)
  if found is None or not found.difference:
    return None
  aim = found.difference / (special.ndtri(0.975) + special.ndtri(0.8))
  if one.errors is None:
    half = (found.high - found.low) / 2
    error = half / special.stdtrit(count - 1, 0.975)
    left = aim**2
  else:
    error, left = one.errors.seeds**0.5, aim**2 - one.errors.languages
  if left <= 0:
    return None
  return max(math.ceil(count * error**2 / left), FEWEST_SEEDS)


def evaluate_claim(claim: Claim, scores: Scores) -> Finding:
  """Compares the conditions of a claim by the seeds that both have."""
  first, second = scores.get(claim.first, {}), scores.get(claim.second, {})
  one, other = claim.measures
  seeds = tuple(
    seed
    for seed in sorted(first.keys() & second.keys())
    if one in first[seed] and other in second[seed]
  )
  if len(seeds) < FEWEST_SEEDS:
    return Finding(
      claim=claim, verdict=Verdict.NOT_RUN, seeds=seeds, comparison=None
    )
  codes = crossed.languages(one, *(first[seed] for seed in seeds))
  names = [f':{code}' for code in codes] or ['']
  before, after = (
    np.array([[run[seed][f'{measure}{n}'] for n in names] for seed in seeds])
    for run, measure in ((first, one), (second, other))
  )
  if len(codes) > 1:
    found = crossed.compare(before, after)
    errors = crossed.errors(before, after)
  else:
    found = paired_comparison.compare_paired(
      *np.concatenate([before, after], 1).T.tolist()
    )
    errors = None
  changes = (after - before).mean(axis=0).tolist()
  return Finding(
    claim=claim,
    verdict=judge_interval(found, claim.order, claim.margin),
    seeds=seeds,
    comparison=found,
    languages=dict(zip(codes, changes, strict=False)),
    errors=errors,
  )


def compared_conditions(claims: Sequence[Claim]) -> tuple[str, ...]:
  """The conditions that claims compare, each once."""
  return tuple(
    dict.fromkeys(
      name for claim in claims for name in (claim.first, claim.second)
    )
  )
