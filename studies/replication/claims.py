"""Results claimed in papers, and statistical tests of these results."""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from studies.replication import crossed_effects
from xlflax.evaluation.metrics import bootstrap, paired_comparison

NO_PAPER = 'no paper'  # Section of a claim that no paper makes.
FEWEST_SEEDS = 3  # A claim with fewer seeds counts as not run.


class Order(enum.Enum):
  """Order of two training configurations by score, as claimed in a paper."""

  BELOW = 'below'  # The first condition scores lower.
  SAME = 'same'  # The conditions differ by less than a margin.
  # The first condition does not score higher by a margin or more.
  NOT_ABOVE = 'not_above'


class Verdict(enum.Enum):
  """Outcome of the experiment that tests a paper's result."""

  REPRODUCED = 'reproduced'
  NOT_RESOLVED = 'not_resolved'
  CONTRADICTED = 'contradicted'
  NOT_RUN = 'not_run'
  # In these two cases, the interval of the claim itself is reproduced.
  NO_CONTROL = 'no_control'
  NOT_ABOVE_CONTROLS = 'not_above_controls'

  @property
  def label(self) -> str:
    """Verdict as text for tables and logs, such as 'replicated'."""
    return _VERDICT_LABELS[self]


_VERDICT_LABELS = {
  Verdict.REPRODUCED: 'replicated',
  Verdict.NOT_RESOLVED: 'inconclusive',
  Verdict.CONTRADICTED: 'contradicted',
  Verdict.NOT_RUN: 'not run',
  Verdict.NO_CONTROL: 'consistent with the paper, no control experiment',
  Verdict.NOT_ABOVE_CONTROLS: (
    'consistent with the paper, not distinguished from a control experiment'
  ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """A paper's claim that one training configuration scores higher than another.

  Training configurations are called conditions. A claim can also state that two
  conditions score equally, or that a condition does not score higher.

  Attributes:
    name: Unique name of the form `paper.claim`.
    paper: Abbreviation of the paper, such as 'ECS'.
    section: Section or table in which the paper makes the claim, or NO_PAPER.
    statement: The claim as a sentence. For a control, this is a phrase that
      describes the control.
    published: Numbers that the paper reports for `first` and `second`.
    first: Name of the condition that has the lower (or an equal) score
      according to the claim.
    second: Name of the condition with which `first` is compared.
    measure: Name of the measured score, or 'first|second' if the two conditions
      are scored by different measures.
    order: Order of the two scores according to the paper.
    margin: Margin within which scores count as equal, in the unit of the
      measure. It is only used for the orders SAME and NOT_ABOVE.
    control_for: Name of the claim to which this control belongs, or '' if this
      is a claim and not a control. A control compares the claim's second
      condition with a condition that tests an alternative explanation for the
      order, for example one with the same number of tokens or with shuffled
      pairs.
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
    """True if a paper makes the claim, False for a control experiment."""
    return not self.control_for and self.section != NO_PAPER

  @property
  def measures(self) -> tuple[str, str]:
    """Names of the metrics for the first and for the second condition."""
    first, _, second = self.measure.partition('|')
    return first, second or first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
  """Result of comparing the two training configurations that a claim is about.

  Attributes:
    claim: Claim that was tested.
    verdict: Verdict on the claim. `judge_interval` derives it from the
      confidence interval of the score difference. Controls are not considered.
    seeds: Random seeds with which both conditions have been run.
    comparison: Mean scores, their difference and its 95 % interval. If None,
      the claim was not tested.
    languages: Map from language to the score difference in the language, if
      there are several languages.
    errors: Squared error of the score difference, as one part for seeds and one
      part for languages. It is None unless there are several languages.
  """

  claim: Claim
  verdict: Verdict
  seeds: tuple[int, ...]
  comparison: bootstrap.Significance | None
  languages: Mapping[str, float] = dataclasses.field(default_factory=dict)
  errors: crossed_effects.SquaredErrors | None = None


# Condition -> seed -> measure -> value.
Scores = Mapping[str, Mapping[int, Mapping[str, float]]]


def judge_interval(
  comparison: bootstrap.Significance, order: Order, margin: float = 0.0
) -> Verdict:
  """Uses a confidence interval to decide whether a claim is replicated.

  The 95 % interval describes the score of the second condition minus the score
  of the first condition.

  * BELOW: Reproduced if the interval is above 0, contradicted if it is below.
  * SAME: Reproduced if the interval is within -margin .. margin, contradicted
    if it is outside of that range.
  * NOT_ABOVE: Reproduced if the interval is above -margin, contradicted if it
    is below.

  Args:
    comparison: Statistical comparison of the two conditions' scores.
    order: Order of the two scores according to the paper.
    margin: Difference up to which two scores count as equal. It affects only
      the orders SAME and NOT_ABOVE.
  """
  if order is Order.SAME:
    is_reproduced = comparison.low > -margin and comparison.high < margin
    is_contradicted = comparison.low > margin or comparison.high < -margin
  else:
    bound = 0.0 if order is Order.BELOW else -margin
    is_reproduced = comparison.low > bound
    is_contradicted = comparison.high < bound
  if is_reproduced:
    return Verdict.REPRODUCED
  return Verdict.CONTRADICTED if is_contradicted else Verdict.NOT_RESOLVED


def apply_controls(finding: Finding, controls: Sequence[Finding]) -> Verdict:
  """Returns the outcome for a claim after considering its control experiments.

  A score difference supports the claim only if the second condition also scores
  higher than each control. A control differs from the second condition only in
  the component that the claim is about.

  Args:
    finding: Result of testing the claim.
    controls: Results of testing the claim's controls. Controls that were not
      run are ignored.
  """
  if finding.verdict is not Verdict.REPRODUCED:
    return finding.verdict
  verdicts = {
    control.verdict for control in controls if control.comparison is not None
  }
  if not verdicts:
    return Verdict.NO_CONTROL
  if verdicts == {Verdict.REPRODUCED}:
    return Verdict.REPRODUCED
  return Verdict.NOT_ABOVE_CONTROLS


def seeds_to_resolve(finding: Finding) -> int | None:
  """Estimates the number of seeds required for a significant difference.

  With the returned number of seeds, the 95 % confidence interval of the
  difference excludes 0 with a probability of 80 %, assuming that differences
  are normally distributed with the observed variance.

  Args:
    finding: Result of testing a claim.

  Returns:
    The number of seeds, or None if no difference was observed or the languages
    differ too much for any number of seeds.
  """
  comparison, num_seeds = finding.comparison, len(finding.seeds)
  if comparison is None or not comparison.difference:
    return None
  target_error = comparison.difference / (
    special.ndtri(0.975) + special.ndtri(0.8)
  )
  if finding.errors is None:
    half_width = (comparison.high - comparison.low) / 2
    seed_error = half_width / special.stdtrit(num_seeds - 1, 0.975)
    allowed_squared_error = target_error**2
  else:
    seed_error = finding.errors.seeds**0.5
    allowed_squared_error = target_error**2 - finding.errors.languages
  if allowed_squared_error <= 0:
    return None
  required = math.ceil(num_seeds * seed_error**2 / allowed_squared_error)
  return max(required, FEWEST_SEEDS)


def evaluate_claim(claim: Claim, scores: Scores) -> Finding:
  """Tests a claim that one training configuration scores higher than another.

  Only the seeds with which both configurations have been run are compared.

  Args:
    claim: Claim to test.
    scores: Nested map from condition to seed to measure to value.
  """
  first_runs = scores.get(claim.first, {})
  second_runs = scores.get(claim.second, {})
  first_measure, second_measure = claim.measures
  seeds = tuple(
    seed
    for seed in sorted(first_runs.keys() & second_runs.keys())
    if first_measure in first_runs[seed] and second_measure in second_runs[seed]
  )
  if len(seeds) < FEWEST_SEEDS:
    return Finding(
      claim=claim, verdict=Verdict.NOT_RUN, seeds=seeds, comparison=None
    )

  languages = crossed_effects.common_languages(
    first_measure, *(first_runs[seed] for seed in seeds)
  )
  suffixes = [f':{language}' for language in languages] or ['']
  first_scores, second_scores = (
    np.array(
      [
        [runs[seed][f'{measure}{suffix}'] for suffix in suffixes]
        for seed in seeds
      ]
    )
    for runs, measure in (
      (first_runs, first_measure),
      (second_runs, second_measure),
    )
  )
  if len(languages) > 1:
    comparison = crossed_effects.compare_crossed(first_scores, second_scores)
    squared_errors = crossed_effects.squared_errors(first_scores, second_scores)
  else:
    comparison = paired_comparison.compare_paired(
      *np.concatenate([first_scores, second_scores], 1).T.tolist()
    )
    squared_errors = None
  differences = (second_scores - first_scores).mean(axis=0).tolist()
  return Finding(
    claim=claim,
    verdict=judge_interval(comparison, claim.order, claim.margin),
    seeds=seeds,
    comparison=comparison,
    languages=dict(zip(languages, differences, strict=False)),
    errors=squared_errors,
  )


def compared_conditions(claims: Sequence[Claim]) -> tuple[str, ...]:
  """Returns the distinct names of the training configurations in claims."""
  return tuple(
    dict.fromkeys(
      name for claim in claims for name in (claim.first, claim.second)
    )
  )
