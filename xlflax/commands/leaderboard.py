"""`xlflax leaderboard`: reports of suites, joined on one page."""

import argparse

from xlflax.storage import paths

HELP = (
  'Joins the reports of any number of suites and models on one page: scores '
  'by task and language with intervals, differences from a baseline, '
  'transfer gaps, costs, and links to predictions.'
)


FLAGS = """
folders DIR (one or more): outputs of `evaluate --suite`
--output DIR (required): folder to be written
--baseline MODEL: that the others are compared with (default: the first)
--source LANGUAGE (default en): that models were fine-tuned in
--title (default Leaderboard): of the page
--samples (Count, default 1000): of the bootstrap
"""


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
