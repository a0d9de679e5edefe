"""Outcome counts of a campaign's cases."""

import collections
import dataclasses


@dataclasses.dataclass
class Counts:
  """Cases by outcome, and descriptions of the violations.

  Attributes:
    outcomes: Mapping from the name of an outcome to its number of cases.
    violations: One line for each case that violated a guarantee.
  """

  outcomes: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  violations: list[str] = dataclasses.field(default_factory=list)

  def add(self, outcome: str, problem: str = '') -> None:
    """Counts a case. A nonempty `problem` describes a violation."""
    self.outcomes[outcome] += 1
    if problem:
      self.violations.append(f'{outcome}: {problem}')

  @property
  def cases(self) -> int:
    """Total number of cases."""
    return self.outcomes.total()

  def summary(self) -> str:
    """Returns a one-line summary: '400 cases: 390 noticed, 10 unread'."""
    parts = [f'{n:,} {name}' for name, n in self.outcomes.most_common()]
    return f'{self.cases:,} cases: ' + ', '.join(parts)
