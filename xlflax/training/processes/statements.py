"""Statements: what each process of a job was started with, and mistakes there."""

import dataclasses
import difflib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Statement:
  """The settings of a process; all but id and host must agree.

  Attributes:
    process_id: its number.
    num_processes: how many it expects.
    host: the name of its machine.
    versions: package -> version.
    configuration: text that has to be the same on all processes.
  """

  process_id: int
  num_processes: int
  host: str
  versions: dict[str, str]
  configuration: str

  @property
  def who(self) -> str:
    """The process as messages name it."""
    return f'process {self.process_id} (on {self.host})'


def mistake(
  lead: Statement, last: Statement, twin: Statement | None
) -> dict[str, Any] | None:
  """How a process differs from process 0; None where it does not.

  Args:
    lead: what process 0 was started with.
    last: what the process was.
    twin: an earlier process of the same number, if there is one.

  Returns:
    The arguments of the error that all processes raise.
  """
  if last.num_processes != lead.num_processes:
    return dict(
      what='The processes do not agree on how many they are',
      got=f'{lead.num_processes} for {lead.who}, {last.num_processes} for '
      f'{last.who}',
      expected='the same --num_processes everywhere',
    )
  if twin:
    return dict(
      what='Two processes have the same number',
      got=f'{twin.process_id} on {twin.host} and on {last.host}',
      expected='each number from 0 to num_processes - 1 once',
      fix='correct --process_id; where all are right, another job uses this '
      'coordinator address: choose another port',
    )
  if last.versions != lead.versions:
    return dict(
      what='The processes have different packages installed',
      got=f'{_versions(lead)}; {_versions(last)}',
      expected='the same versions everywhere',
    )
  if last.configuration != lead.configuration:
    return dict(
      what='The processes were started with different configurations',
      got='\n' + '\n'.join(_difference(lead, last)) + '\n',
      expected='the same flags and gin files everywhere',
    )
  return None


def _versions(statement: Statement) -> str:
  shown = ' '.join(f'{k} {v}' for k, v in sorted(statement.versions.items()))
  return f'{statement.who}: {shown}'


def _difference(lead: Statement, last: Statement, limit: int = 20):
  lines = [
    line
    for line in difflib.unified_diff(
      lead.configuration.splitlines(),
      last.configuration.splitlines(),
      lead.who,
      last.who,
      lineterm='',
      n=0,
    )
    if not line.startswith('@@')
  ]
  more = len(lines) - limit
  return lines[:limit] + ([f'and {more} more lines'] if more > 0 else [])


def short(numbers: list[int], limit: int = 10) -> str:
  """The first numbers of a list, and how many more there are."""
  more = len(numbers) - limit
  return ', '.join(map(str, numbers[:limit])) + (
    f' and {more} more' if more > 0 else ''
  )
