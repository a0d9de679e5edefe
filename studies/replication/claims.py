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
  """What the experiment says of a claim."""

  REPRODUCED = 'reproduced'
  NOT_RESOLVED = 'not resolved at this budget'
  CONTRADICTED = 'contradicted'
  NOT_RUN = 'not run'
  # Of a claim whose own interval says `reproduced`.
  NO_TWIN = 'in this order; no twin was run'
  AS_ITS_TWIN = 'in this order, but not told from a twin'


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
  where: str
  says: str
  published: str
  first: str
  second: str
  measure: str
  order: Order = Order.BELOW
  margin: float = 0.0
  beside: str = ''

  @property
  def counts(self) -> bool:
    """Whether it is one of the claims that a paper makes."""
    return not self.beside and self.where != NO_PAPER

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
  found: bootstrap.Significance | None
  languages: Mapping[str, float] = dataclasses.field(default_factory=dict)
  errors: crossed.Errors | None = None


# Condition -> seed -> measure -> value.
Scores = Mapping[str, Mapping[int, Mapping[str, float]]]


def judge(
  found: bootstrap.Significance, order: Order, margin: float = 0.0
) -> Verdict:
  """The page's rule, on the 95 % interval of second - first.

  * BELOW: reproduced if the interval lies above 0, contradicted if it lies
    below.
  * SAME: reproduced if it lies within -margin .. margin, contradicted if it
    lies outside of that.
  * NOT_ABOVE: reproduced if it lies above -margin, contradicted if below.
  """
  if order is Order.SAME:
    good = found.low > -margin and found.high < margin
    bad = found.low > margin or found.high < -margin
  else:
    border = 0.0 if order is Order.BELOW else -margin
    good, bad = found.low > border, found.high < border
  if good:
    return Verdict.REPRODUCED
  return Verdict.CONTRADICTED if bad else Verdict.NOT_RESOLVED


def beside_twins(one: Finding, twins: Sequence[Finding]) -> Verdict:
  """The verdict on a claim, given what its twins say.

  An order is the claim's only where its second condition is also above those
  that have everything but what the claim is about.
  """
  if one.verdict is not Verdict.REPRODUCED:
    return one.verdict
  verdicts = {twin.verdict for twin in twins if twin.found is not None}
  if not verdicts:
    return Verdict.NO_TWIN
  good = verdicts == {Verdict.REPRODUCED}
  return Verdict.REPRODUCED if good else Verdict.AS_ITS_TWIN


def seeds_to_resolve(one: Finding) -> int | None:
  """How many seeds would resolve a difference of this size, four times in five.

  By the spread that was seen, of normal differences; None where no difference
  was seen, or languages differ too much for any number of seeds.
  """
  found, count = one.found, len(one.seeds)
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


def find(claim: Claim, scores: Scores) -> Finding:
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
      claim=claim, verdict=Verdict.NOT_RUN, seeds=seeds, found=None
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
    verdict=judge(found, claim.order, claim.margin),
    seeds=seeds,
    found=found,
    languages=dict(zip(codes, changes, strict=False)),
    errors=errors,
  )


def conditions_of(claims: Sequence[Claim]) -> tuple[str, ...]:
  """The conditions that claims compare, each once."""
  return tuple(
    dict.fromkeys(
      name for claim in claims for name in (claim.first, claim.second)
    )
  )
