"""`xlflax analyze directions`: transfer from every language to every other."""

import argparse
import pathlib

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors
from xlflax.storage import names

HELP = (
  'Draws the matrices of training by test language of finished `xlflax '
  'finetune --train_languages` calls beside each other, and the gains over '
  'the first model (MetaXLM figure 6).'
)


FLAGS = f"""
{flags.OUTPUT}
--result [NAME=]DIR (repeated, required): output folder of `xlflax finetune
  --train_languages`; may be repeated, the first is what others are compared with
--tasks NAMES: comma-separated; all by default
"""


def run(args: argparse.Namespace) -> int:
  """Draws."""
  from xlflax.analysis import directions_study

  return flags.draw(
    args,
    directions_study.DirectionsStudy(
      results=_named(args.result),
      tasks=tuple(args.tasks.split(',')) if args.tasks else None,
    ),
  )


def _named(items: list[str]) -> dict[str, str]:
  """The folders of results by name."""
  results: dict[str, str] = {}
  for item in items:
    name, directory = names.split(item)
    name = name or pathlib.Path(directory).name or directory
    if not (name and directory) or name in results:
      raise errors.ConfigError(
        'A folder of results is named wrongly',
        got=repr(item),
        expected='DIR or NAME=DIR, each name once',
        where='--result',
      )
    results[name] = directory
  return results
