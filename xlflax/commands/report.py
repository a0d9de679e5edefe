"""`xlflax report`: runs side by side on one page."""

import argparse
import pathlib

from xlflax.configuration import early
from xlflax.foundation import errors
from xlflax.storage import names, paths

HELP = (
  'Writes one HTML page about one or several runs: losses, speed, results '
  'beside each other, and the settings that differ.'
)


FLAGS = """
runs RUN (one or more): model directory, or NAME=DIR
--output DIR (required): folder for report.html, report.csv and pictures
"""


def run(args: argparse.Namespace) -> int:
  """Writes the page and prints where it is."""
  runs = named(args.runs)
  for directory in runs.values():
    early.check_run('RUN', directory)
  from xlflax.evaluation.reports import run_pages

  records = [
    run_pages.read(paths.of(directory), name=name)
    for name, directory in runs.items()
  ]
  page = run_pages.side_by_side(
    paths.of(args.output), records, command=args.command_line
  )
  print(page)
  return 0


def named(runs: list[str]) -> dict[str, str]:
  """Name -> directory; directories of one name are called by their paths.

  Raises:
    ConfigError: two runs have the same name.
  """
  pairs = [names.split(text) for text in runs]
  short = [pathlib.PurePath(directory).name for _, directory in pairs]
  found = [
    (name or (last if short.count(last) == 1 else directory), directory)
    for (name, directory), last in zip(pairs, short, strict=True)
  ]
  if len(dict(found)) < len(found):
    raise errors.ConfigError(
      'Two runs have the same name',
      got=', '.join(name for name, _ in found),
      where='xlflax report',
      fix='name them by NAME=DIR',
    )
  return dict(found)
