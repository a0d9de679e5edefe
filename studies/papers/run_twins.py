"""Trains the tiny twin of every row of the papers' tables, and times it.

  python -m studies.papers.run_twins --data DATA --work WORK [--only REGEX] \
      [--jobs 2]

DATA holds the data sets that `studies/real_text/build_corpus.py` names. In WORK
it makes corpora, vocabularies, token caches and runs by `xlflax` commands, each
once: what is finished is not made again. The commands are in WORK/commands.txt,
the table of docs/measured/papers.md is printed and written to WORK/twins.md.
"""

import argparse
import concurrent.futures
import pathlib
import re
import sys

from studies.papers import runner, twin_rows


def table(results: dict[str, dict]) -> str:
  lines = [
    '| table | row | gin file | steps | first loss | final loss '
    '| CPU seconds |',
    '| --- ' * 7 + '|',
  ]
  for row in twin_rows.ROWS:
    if row.name in results:
      out = results[row.name]
      lines.append(
        f'| {row.table} | {row.row} | {_shown(row.files)} | {out["steps"]} '
        f'| {out["first"]:.3f} | {out["last"]:.3f} | {out["cpu_seconds"]:.0f} |'
      )
  return '\n'.join(lines) + '\n'


def _shown(files: tuple[str, ...]) -> str:
  return ', '.join(
    f'`{f if i == 0 else f.split("/")[-1]}`' for i, f in enumerate(files)
  )


def main() -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, type=pathlib.Path)
  parser.add_argument('--work', required=True, type=pathlib.Path)
  parser.add_argument(
    '--only',
    default='',
    help='names of runs, as a regular '
    'expression; those that they begin from are run too',
  )
  parser.add_argument('--jobs', type=int, default=1)
  args = parser.parse_args()
  maker = runner.Maker(args.data, args.work, twin_rows.ROWS)
  rows = [row for row in twin_rows.ROWS if re.search(args.only, row.name)]
  results, failed = {}, []
  with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    futures = {pool.submit(maker.run, row): row for row in rows}
    for future in concurrent.futures.as_completed(futures):
      row = futures[future]
      try:
        results[row.name] = runner.result_of(future.result(), row.measure)
        print(f'{row.name}: {results[row.name]}', flush=True)
      except RuntimeError as error:
        failed.append(row.name)
        print(f'{row.name} FAILED: {error}', file=sys.stderr, flush=True)
  text = table(results)
  (args.work / 'twins.md').write_text(text)
  print(text)
  rising = [
    name for name, out in results.items() if out['last'] >= out['first']
  ]
  if failed or rising:
    print(f'failed: {failed}; loss not falling: {rising}', file=sys.stderr)
  return bool(failed or rising)


if __name__ == '__main__':
  sys.exit(main())
