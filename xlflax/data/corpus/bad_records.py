"""Counting and skipping of unusable lines and records in text files."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from xlflax.utils import errors

T = TypeVar('T')
# Function that is called with the error of each bad record.
OnBadRecord = Callable[[errors.BadRecordError], None]
# Function that is called for each valid record that is dropped. Its argument is
# the reason, such as `EMPTY`.
OnDroppedRecord = Callable[[str], None]

# Reasons for which a valid record does not contribute text to a corpus.
EMPTY = 'empty record'
FILTERED = 'excluded by corpus.toml'
INCOMPLETE = 'missing language'

HINT = (
  'Correct the line, or drop all such lines with '
  '`xlflax preprocess --bad_records=drop`. `xlflax inspect` lists them.'
)
# Number of examples that are kept of each problem.
_NUM_EXAMPLES = 3


@dataclasses.dataclass(frozen=True)
class BadRecordCount:
  """Number of lines or records of a file that have the same problem.

  Attributes:
    problem: Sentence that describes the problem.
    count: Number of lines or records that have the problem.
    examples: First lines or records that have the problem. Each is described by
      its location (file and line or record) and its value.
    fix: Hint for correcting all of these lines or records at once, for example
      by converting the file. If None, they must be corrected separately.
  """

  problem: str
  count: int
  examples: tuple[str, ...]
  fix: str | None = None

  def __str__(self) -> str:
    return f'{self.count:,} × {self.problem}: {"; ".join(self.examples)}'


class BadRecords:
  """Counter of the bad lines and records of a file, grouped by problem."""

  def __init__(self):
    self._counts: collections.Counter[str] = collections.Counter()
    self._examples: dict[str, list[str]] = {}
    self._fixes: dict[str, str | None] = {}

  def add(self, error: errors.BadRecordError) -> None:
    """Counts a bad line or record."""
    self._counts[error.what] += 1
    examples = self._examples.setdefault(error.what, [])
    if len(examples) < _NUM_EXAMPLES:
      value = '' if error.got is None else f' ({error.got})'
      examples.append(f'{error.where}{value}')
    if isinstance(error, (errors.TextColumnError, errors.FileConversionError)):
      self._fixes.setdefault(error.what, error.fix)

  @property
  def total(self) -> int:
    """Number of bad lines and records."""
    return self._counts.total()

  @property
  def problems(self) -> tuple[BadRecordCount, ...]:
    """Count and examples of each problem, most frequent problem first."""
    return tuple(
      BadRecordCount(
        problem, count, tuple(self._examples[problem]), self._fixes.get(problem)
      )
      for problem, count in self._counts.most_common()
    )


def ignore(error: errors.BadRecordError) -> None:
  """Ignores a `BadRecordError` and does not count the bad record."""
  del error


def skip_bad_records(
  parse: Callable[..., T], on_bad_record: OnBadRecord | None
) -> Callable[..., T | None]:
  """Wraps a parser so that it returns None for bad lines and records.

  Args:
    parse: Function that parses a line or record, and raises a `BadRecordError`
      if it is bad.
    on_bad_record: Function that is called with the error of each bad record. If
      None, `parse` is returned, so that the error is raised.
  """
  if on_bad_record is None:
    return parse

  def parse_or_skip(*arguments: Any) -> T | None:
    try:
      return parse(*arguments)
    except errors.BadRecordError as error:
      on_bad_record(error)
      return None

  return parse_or_skip
