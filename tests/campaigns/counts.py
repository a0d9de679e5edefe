"""What became of the cases of a campaign."""

import collections
import dataclasses


@dataclasses.dataclass
class Counts:
  """Cases by outcome, and what went wrong.

  Attributes:
    outcomes: name of an outcome -> cases.
    wrong: a line for each case that broke a promise.
  """

  outcomes: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  wrong: list[str] = dataclasses.field(default_factory=list)

  def add(self, outcome: str, problem: str = '') -> None:
    """Counts a case; `problem` says what is wrong with it, if anything."""
    self.outcomes[outcome] += 1
    if problem:
      self.wrong.append(f'{outcome}: {problem}')

  @property
  def cases(self) -> int:
    """How many there were."""
    return self.outcomes.total()

  def summary(self) -> str:
    """One line: '400 cases: 390 noticed, 10 unread'."""
    parts = [f'{n:,} {name}' for name, n in self.outcomes.most_common()]
    return f'{self.cases:,} cases: ' + ', '.join(parts)
