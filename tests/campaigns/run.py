"""Runs the campaigns and writes the table of docs/reliability.md.

  python -m tests.campaigns.run --minutes 60
  make campaign MINUTES=60

Each campaign gets a quarter of the time, or what it takes to reach the least
numbers (100 kills, 1,000 mutations, 1,000 inputs), and a seed that goes on from
round to round. Signals in every phase of training and to all commands, full
disks (as root, who may mount some), few descriptors and every exchange of one
or two kinds of artifact are tried once. The exit status is 1 if a promise was
broken.
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

from tests.campaigns import counts as counts_lib
from tests.campaigns import (
  exchanges,
  fuzzed_inputs,
  fuzzed_records,
  kills,
  mutations,
  scarcity,
  stops,
)
from tests.end_to_end import conftest as end_to_end

_PAGE = pathlib.Path(__file__).parents[2] / 'docs/reliability.md'
_TABLE = re.compile(r'(<!-- campaign -->\n).*?(<!-- end -->)', re.DOTALL)
_SHARE = 15  # seconds of each minute for each of the four campaigns
_ROUND = 200  # cases between two looks at the clock


def main(arguments=None) -> int:
  """Runs everything; see the module's docstring."""
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
  # Children inherit what nohup, or a shell's background, has ignored.
  signal.signal(signal.SIGHUP, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.default_int_handler)
  found: dict[str, counts_lib.Counts] = {}
  with tempfile.TemporaryDirectory() as folder:
    directory = pathlib.Path(folder)
    space = end_to_end.make_workspace(directory / 'workspace')
    _kill(space, directory, args, found)
    _stop(space, directory, args, found)
    found['file mutations'] = _rounds(
      lambda seed: mutations.campaign(
        directory / str(seed), cases=_ROUND, seed=seed
      ),
      args,
    )
    found['fuzzed inputs'] = _rounds(
      lambda seed: fuzzed_inputs.campaign(cases=_ROUND, seed=seed), args
    )
    found['fuzzed records'] = fuzzed_records.campaign(
      cases=args.records, seed=args.seed
    )
    found['exchanged artifacts'] = _exchange(directory / 'exchanges')
  for name, one in found.items():
    print(f'{name}: {one.summary()}')
    print(''.join(f'  {line}\n' for line in one.wrong), end='', flush=True)
  write_table(_PAGE, found)
  return int(any(one.wrong for one in found.values()))


def _stop(space, directory, args, found: dict[str, counts_lib.Counts]) -> None:
  """Signals, full disks and few descriptors."""
  found['signals, phases of training'] = stops.training(
    space, directory, seed=args.seed
  )
  found['signals, all commands'] = stops.commands(
    space, directory, signals=args.signals, seed=args.seed
  )
  found['few file descriptors'] = scarcity.few_descriptors(space, directory)
  if scarcity.may_mount():
    found['full disks'] = scarcity.full_disks(
      space, directory, cases=args.disks, seed=args.seed
    )
  else:
    print('full disks: left out, as only root may mount them')


def _exchange(directory: pathlib.Path) -> counts_lib.Counts:
  """All exchanges of one kind of artifact and of every two kinds."""
  cases = [*exchanges.singles(), *exchanges.pairs()]
  found, each = exchanges.campaign(directory, cases)
  print(exchanges.table(each), flush=True)
  return found


def _kill(space, directory, args, found: dict[str, counts_lib.Counts]) -> None:
  """The campaign of kills, a row for each command."""
  killed = kills.campaign(
    space,
    directory,
    kills=args.kills,
    seed=args.seed,
    seconds=args.minutes * _SHARE,
  )
  found['kills, all commands'] = _sum(killed.values())
  print(found['kills, all commands'].summary(), flush=True)
  for name, one in killed.items():
    found[f'kills, `xlflax {name}`'] = one


def write_table(
  page: pathlib.Path, found: dict[str, counts_lib.Counts]
) -> None:
  """Replaces the table between the marks of a page."""
  lines = [
    '| campaign | cases | outcomes | violations |',
    '| --- | --- | --- | --- |',
  ]
  for name, one in found.items():
    what = one.summary().partition(': ')[2]
    lines.append(f'| {name} | {one.cases:,} | {what} | {len(one.wrong)} |')
  text = '\n'.join(lines) + '\n'
  old = page.read_text(encoding='utf-8')
  page.write_text(
    _TABLE.sub(lambda m: m[1] + '\n' + text + '\n' + m[2], old),
    encoding='utf-8',
  )


def _rounds(
  campaign: Callable[[int], counts_lib.Counts], args: argparse.Namespace
) -> counts_lib.Counts:
  """Rounds of one campaign, until there are enough and the time is over."""
  total, seed, start = counts_lib.Counts(), args.seed, time.monotonic()
  while (
    total.cases < args.cases or time.monotonic() - start < args.minutes * _SHARE
  ):
    total = _sum([total, campaign(seed)])
    seed += 1
  return total


def _sum(several: Iterable[counts_lib.Counts]) -> counts_lib.Counts:
  total = counts_lib.Counts()
  for one in several:
    total.outcomes += one.outcomes
    total.wrong += one.wrong
  return total


if __name__ == '__main__':
  sys.exit(main())
