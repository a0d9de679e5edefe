"""`xlflax analyze curves`: evaluation results and analyses by checkpoint."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors

HELP = (
  'Draws what is on disk along training: the results of `xlflax '
  'evaluate --steps=all`, with the transfer gap (MetaXLM figure 5), and '
  'analyses made with --steps=all.'
)


FLAGS = f"""
{flags.OUTPUT}
--model_dir DIR (repeated): run with results of `xlflax evaluate`; may be
  repeated
--analysis DIR (repeated): folder of an analysis; may be repeated
--tasks NAMES: comma-separated; all by default
--metric NAME: of the tasks (default: each one's main metric)
--layers NUMBERS (default -1): of analyses, comma-separated; -1 is the last
--source_language CODE (default en): that runs were fine-tuned in
"""


def run(args: argparse.Namespace) -> int:
  """Draws."""
  from xlflax.analysis import curves_study

  if not args.model_dir and not args.analysis:
    raise errors.ConfigError(
      'There is nothing to draw', expected='--model_dir=DIR or --analysis=DIR'
    )
  return flags.draw(
    args,
    curves_study.CurvesStudy(
      runs=tuple(args.model_dir),
      analyses=tuple(args.analysis),
      tasks=tuple(args.tasks.split(',')) if args.tasks else None,
      metric=args.metric,
      source=args.source_language,
      layers=tuple(flags.numbers(args.layers, '--layers')),
    ),
  )
