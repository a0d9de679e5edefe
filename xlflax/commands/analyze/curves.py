"""`xlflax analyze curves`: evaluation results by checkpoint."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags

HELP = (
  'Draws what is on disk along training: the results of `xlflax '
  'evaluate --steps=all`, with the transfer gap (MetaXLM figure 5).'
)


FLAGS = f"""
{flags.OUTPUT}
--model_dir DIR (repeated, required): run with results of `xlflax evaluate`; may
  be repeated
--tasks NAMES: comma-separated; all by default
--metric NAME: of the tasks (default: each one's main metric)
--source_language CODE (default en): that runs were fine-tuned in
"""


def run(args: argparse.Namespace) -> int:
  """Draws."""
  from xlflax.analysis import curves_study

  return flags.draw(
    args,
    curves_study.CurvesStudy(
      runs=tuple(args.model_dir),
      tasks=tuple(args.tasks.split(',')) if args.tasks else None,
      metric=args.metric,
      source=args.source_language,
    ),
  )
