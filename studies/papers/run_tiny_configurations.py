"""Trains a tiny model for each row in the result tables of four papers.

  python -m studies.papers.run_tiny_configurations --data DATA --work WORK [--only REGEX] \
      [--jobs 2]

DATA contains the data sets that `studies/real_text/build_corpus.py` reads. The
corpora, vocabularies, token caches and runs are created in WORK by `xlflax`
commands. Existing results are reused. The commands are recorded in
WORK/commands.txt. The table in docs/measured/papers.md, with losses and CPU
times, is printed and written to WORK/tiny_runs.md.
"""

import argparse
import concurrent.futures
import pathlib
import re
import sys
from collections.abc import Sequence

from studies import command_line
from studies.papers import runner, tiny_rows


def format_table(results: dict[str, dict]) -> str:
  """Returns a Markdown table of the training runs that have a result.

  Args:
    results: Map from the name of a run to its result, as returned by
      `runner.read_result`.
  """
  lines = [
    '| table | row | gin file | steps | first loss | final loss '
    '| CPU seconds |',
    '| --- ' * 7 + '|',
  ]
  for row in tiny_rows.ROWS:
    if row.name in results:
      result = results[row.name]
      lines.append(
        f'| {row.table} | {row.row} | {_format_files(row.files)} '
        f'| {result["steps"]} | {result["first"]:.3f} | {result["last"]:.3f} '
        f'| {result["cpu_seconds"]:.0f} |'
      )
  return '\n'.join(lines) + '\n'


def _format_files(files: tuple[str, ...]) -> str:
  """Formats the names of gin files, with the folder of only the first file."""
  first, *others = files
  names = [first, *(file.split('/')[-1] for file in others)]
  return ', '.join(f'`{name}`' for name in names)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser(
    'studies.papers.run_tiny_configurations', __doc__
  )
  parser.add_argument(
    '--data',
    required=True,
    type=command_line.input_directory,
    help='Folder that contains the data sets.',
  )
  parser.add_argument(
    '--work',
    required=True,
    type=pathlib.Path,
    help='Folder to which everything is written.',
  )
  parser.add_argument(
    '--only',
    default='',
    metavar='REGEX',
    help='Names of the runs, as a regular expression. The runs that they are '
    'initialized from are trained too.',
  )
  parser.add_argument(
    '--jobs', type=int, default=1, help='Number of parallel runs.'
  )
  return command_line.run_command(parser, _train_models, arguments)


def _train_models(args: argparse.Namespace) -> int:
  """Trains all tiny models and prints a table of their losses.

  The return value is 1 if a run fails or if the metric of a run does not
  decrease, and 0 otherwise.
  """
  study_runner = runner.Runner(args.data, args.work, tiny_rows.ROWS)
  rows = [row for row in tiny_rows.ROWS if re.search(args.only, row.name)]
  results, failed = {}, []
  with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    futures = {pool.submit(study_runner.train, row): row for row in rows}
    for future in concurrent.futures.as_completed(futures):
      row = futures[future]
      try:
        results[row.name] = runner.read_result(future.result(), row.metric)
        print(f'{row.name}: {results[row.name]}', flush=True)
      except RuntimeError as error:
        failed.append(row.name)
        print(f'{row.name}: {error}', file=sys.stderr, flush=True)
  table = format_table(results)
  (args.work / 'tiny_runs.md').write_text(table)
  print(table)
  not_falling = [
    name
    for name, result in results.items()
    if result['last'] >= result['first']
  ]
  if failed:
    print(f'Failed runs: {", ".join(failed)}', file=sys.stderr)
  if not_falling:
    print(
      f'Runs whose metric did not fall: {", ".join(not_falling)}',
      file=sys.stderr,
    )
  return int(bool(failed or not_falling))


if __name__ == '__main__':
  sys.exit(main())
