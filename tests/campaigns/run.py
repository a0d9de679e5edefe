"""Runs the campaigns and writes the table of docs/measured/reliability.md.

  python -m tests.campaigns.run --minutes 60
  make campaign MINUTES=60

Each campaign gets a quarter of the time, or as long as it takes to reach the
minimum numbers (100 kills, 1,000 mutations, 1,000 inputs), and a seed that
increases from round to round. Signals in every phase of training and to all
commands, full disks (as root, because mounting requires it), few descriptors
and every exchange of one or two kinds of artifact are tried once. The exit
status is 1 if a guarantee was violated.
"""

import argparse
import logging
import pathlib
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

from tests.campaigns import (
  counts,
  exchanges,
  fuzzed_inputs,
  fuzzed_records,
  kills,
  mutations,
  scarcity,
  stops,
)
from tests.end_to_end import conftest as end_to_end

_PAGE = pathlib.Path(__file__).parents[2] / 'docs/measured/reliability.md'
_TABLE = re.compile(r'(<!-- campaign -->\n).*?(<!-- end -->)', re.DOTALL)
_SECONDS_PER_MINUTE = (
  15  # seconds of each minute for each of the four campaigns
)
_CASES_PER_ROUND = 200  # cases between two checks of the time


def main(arguments=None) -> int:
  """Runs all campaigns; see the module's docstring."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--minutes', type=float, default=30)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--kills', type=int, default=100, help='at least')
  parser.add_argument('--cases', type=int, default=1000, help='at least')
  parser.add_argument('--records', type=int, default=20_000)
  parser.add_argument('--signals', type=int, default=40, help='at least')
  parser.add_argument('--disks', type=int, default=40, help='at least')
  args = parser.parse_args(arguments)
  logging.disable(logging.CRITICAL)
  # Child processes inherit signals ignored by nohup or a background shell.
  signal.signal(signal.SIGHUP, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.default_int_handler)
  results = _Results()
  with tempfile.TemporaryDirectory() as folder:
    directory = pathlib.Path(folder)
    space = end_to_end.make_workspace(directory / 'workspace')
    _run_kills(space, directory, args, results)
    _run_signals(space, directory, args, results)
    results['file mutations'] = _run_rounds(
      lambda seed: mutations.run_campaign(
        directory / str(seed), cases=_CASES_PER_ROUND, seed=seed
      ),
      args,
    )
    results['fuzzed inputs'] = _run_rounds(
      lambda seed: fuzzed_inputs.run_campaign(
        cases=_CASES_PER_ROUND, seed=seed
      ),
      args,
    )
    results['fuzzed records'] = fuzzed_records.run_campaign(
      cases=args.records, seed=args.seed
    )
    results['exchanged artifacts'] = _run_exchanges(directory / 'exchanges')
  write_table(_PAGE, results)
  return int(any(totals.violations for totals in results.values()))


class _Results(dict[str, counts.Counts]):
  """Counts by name of the campaign, which are printed when they are added."""

  def __setitem__(self, name: str, totals: counts.Counts) -> None:
    super().__setitem__(name, totals)
    lines = [f'{name}: {totals.summary()}']
    lines += [f'  {violation}' for violation in totals.violations]
    print('\n'.join(lines), flush=True)


def _run_signals(
  space, directory, args, results: dict[str, counts.Counts]
) -> None:
  """Runs the campaigns of signals, full disks and few descriptors."""
  results['signals, phases of training'] = stops.signal_training(
    space, directory, seed=args.seed
  )
  results['signals, all commands'] = stops.signal_commands(
    space, directory, signals=args.signals, seed=args.seed
  )
  results['few file descriptors'] = scarcity.few_descriptors(space, directory)
  if scarcity.may_mount():
    results['full disks'] = scarcity.full_disks(
      space, directory, cases=args.disks, seed=args.seed
    )
  else:
    print('full disks: left out, as only root may mount them')


def _run_exchanges(directory: pathlib.Path) -> counts.Counts:
  """Exchanges each kind of artifact and each pair of kinds."""
  cases = [*exchanges.single_exchanges(), *exchanges.paired_exchanges()]
  totals, outcomes = exchanges.run_campaign(directory, cases)
  print(exchanges.format_table(outcomes), flush=True)
  return totals


def _run_kills(
  space, directory, args, results: dict[str, counts.Counts]
) -> None:
  """Runs the kill campaign and records one row per command."""
  kill_results = kills.run_campaign(
    space,
    directory,
    kills=args.kills,
    seed=args.seed,
    seconds=args.minutes * _SECONDS_PER_MINUTE,
  )
  results['kills, all commands'] = _sum(kill_results.values())
  for name, totals in kill_results.items():
    results[f'kills, `xlflax {name}`'] = totals


def write_table(page: pathlib.Path, results: dict[str, counts.Counts]) -> None:
  """Replaces the table between the markers of a page."""
  lines = [
    '| campaign | cases | outcomes | violations |',
    '| --- | --- | --- | --- |',
  ]
  for name, totals in results.items():
    outcomes = totals.summary().partition(': ')[2]
    lines.append(
      f'| {name} | {totals.cases:,} | {outcomes} | {len(totals.violations)} |'
    )
  text = '\n'.join(lines) + '\n'
  old = page.read_text(encoding='utf-8')
  page.write_text(
    _TABLE.sub(lambda m: m[1] + '\n' + text + '\n' + m[2], old),
    encoding='utf-8',
  )


def _run_rounds(
  campaign: Callable[[int], counts.Counts], args: argparse.Namespace
) -> counts.Counts:
  """Repeats a campaign until the minimum cases and time are reached."""
  total, seed, start = counts.Counts(), args.seed, time.monotonic()
  while (
    total.cases < args.cases
    or time.monotonic() - start < args.minutes * _SECONDS_PER_MINUTE
  ):
    total = _sum([total, campaign(seed)])
    seed += 1
  return total


def _sum(summands: Iterable[counts.Counts]) -> counts.Counts:
  total = counts.Counts()
  for summand in summands:
    total.outcomes += summand.outcomes
    total.violations += summand.violations
  return total


if __name__ == '__main__':
  sys.exit(main())
