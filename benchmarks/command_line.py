"""Response times of `xlflax` when it prints help or reports an error.

  python -m benchmarks.command_line
  python -m benchmarks.command_line --rounds=5 --output=command_line.json

Each command runs in its own process, as if started from a shell. `seconds` is
the lowest wall time over all rounds, and `cpu` is the lowest CPU time. On a
busy machine, only the CPU time is meaningful. `python` is an empty program,
whose time is part of every response time.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from xlflax import cli

# Time limits in seconds for help texts and error messages.
HELP_LIMIT, MISTAKE_LIMIT = 0.3, 1.0
MISTAKES = (
  'trian',
  'evaluate --model_dir=nowhere --tasks=retrieval',
  'evaluate --model_dir=. --tasks=retreival',
  'evaluate --model_dir=. --max_examples=3',
  'evaluate --model_dir=. --suite=xtrem --data=d --output=o',
  'train --gin_file=pretrain/mml.gin',
  'train --gin_file=pretrain/mlm.gin --gin.BATCH_SZIE=4',
  'train --gin_file=pretrain/mlm.gin --gin.MONO=corpus.mono',
  'train --gin_file=pretrain/mlm.gin --gin.trainer.Trainer.sed=3',
  'finetune --output=o --init_from=nowhere',
  'cache verify o --vocabulary=v',
  'vocab --output=o --corpus=nowhere --size=100',
  'convert to_hf run --output=o',
  'analyze cka --output=o',
  'translate --model_dir=r --source=en --target=de --input=nowhere',
)


def list_invocations() -> list[tuple[str, float]]:
  """Returns the arguments and the time limit of each timed `xlflax` process."""
  invocations = [(f'{name} --help', HELP_LIMIT) for name in cli.COMMANDS]
  for name in cli.COMMANDS:
    invocations += [
      (f'{path} --help', HELP_LIMIT) for path in _list_subcommands(name)
    ]
  return [*invocations, *((line, MISTAKE_LIMIT) for line in MISTAKES)]


def _list_subcommands(name: str) -> list[str]:
  """Returns the subcommands of a command, such as 'cache verify'."""
  module = cli.load_command(name)
  return [
    f'{name} {subcommand}' for subcommand in getattr(module, 'SUBCOMMANDS', {})
  ]


def time_process(command: list[str]) -> tuple[float, float]:
  """Runs a process and returns its wall time and CPU time in seconds."""
  times_before, start = os.times(), time.perf_counter()
  subprocess.run(command, capture_output=True, check=False)
  seconds, times_after = time.perf_counter() - start, os.times()
  return seconds, (
    times_after.children_user
    + times_after.children_system
    - times_before.children_user
    - times_before.children_system
  )


def measure_command(command: list[str], rounds: int) -> dict[str, float]:
  """Runs a command several times and returns its lowest wall and CPU time."""
  timings = [time_process(command) for _ in range(rounds)]
  return {
    'seconds': round(min(seconds for seconds, _ in timings), 3),
    'cpu': round(min(cpu for _, cpu in timings), 3),
  }


def main(arguments: list[str] | None = None) -> None:
  """Prints the time for each command, with the slowest command last."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    '--rounds', type=int, default=3, help='Number of runs per command.'
  )
  parser.add_argument(
    '--only', default='', help='Measure only commands that contain this text.'
  )
  parser.add_argument(
    '--output',
    metavar='FILE',
    help='JSON file to which the measurements are written.',
  )
  args = parser.parse_args(arguments)
  rows = [
    {'answer': 'python', 'limit': HELP_LIMIT}
    | measure_command([sys.executable, '-c', 'pass'], args.rounds)
  ]
  for line, limit in list_invocations():
    if args.only in line:
      command = [sys.executable, '-m', 'xlflax.cli', *line.split()]
      rows.append(
        {'answer': line, 'limit': limit} | measure_command(command, args.rounds)
      )
  for row in sorted(rows, key=lambda row: row['cpu']):
    note = '' if row['seconds'] < row['limit'] else '  over the limit'
    print(
      f'{row["seconds"]:7.3f} s  {row["cpu"]:7.3f} s cpu  {row["answer"]}{note}'
    )
  if args.output:
    pathlib.Path(args.output).write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
  main()
