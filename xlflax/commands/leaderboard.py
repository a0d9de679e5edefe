"""`xlflax leaderboard`: reports of suites, joined on one page."""

import argparse

from xlflax.foundation import numeric_flags, ranges
from xlflax.storage import paths

HELP = (
  'Joins the reports of any number of suites and models on one page: scores '
  'by task and language with intervals, differences from a baseline, '
  'transfer gaps, costs, and links to predictions.'
)
EXAMPLES = """
  # two suites of one model, and another model
  xlflax leaderboard runs/xtreme runs/synthetic runs/other --output=runs/board

  # everything against one checkpoint
  xlflax leaderboard runs/xtreme runs/other --baseline=mlm@1000 \\
      --output=runs/board
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the folders and the flags."""
  parser.add_argument(
    'folders', nargs='+', metavar='DIR', help='outputs of `evaluate --suite`'
  )
  parser.add_argument(
    '--output', required=True, metavar='DIR', help='folder to be written'
  )
  parser.add_argument(
    '--baseline',
    metavar='MODEL',
    help='that the others are compared with (default: the first)',
  )
  parser.add_argument(
    '--source',
    default='en',
    metavar='LANGUAGE',
    help='that models were fine-tuned in (default: %(default)s)',
  )
  parser.add_argument(
    '--title', default='Leaderboard', help='of the page (default: %(default)s)'
  )
  parser.add_argument(
    '--samples',
    type=numeric_flags.of(ranges.Count),
    default=1000,
    help='of the bootstrap (default: %(default)s)',
  )


def run(args: argparse.Namespace) -> int:
  """Writes the page, the tables and the pictures."""
  from xlflax.evaluation.reports import joined, report

  written = report.write(
    paths.of(args.output),
    joined.tables([paths.of(folder) for folder in args.folders]),
    title=args.title,
    source=args.source,
    baseline=args.baseline,
    samples=args.samples,
  )
  page = next(path for path in written if path.name == report.PAGE)
  print(f'{page}: {len(written)} files')
  return 0
