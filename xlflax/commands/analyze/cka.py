"""`xlflax analyze cka`: similarity of layers by centred kernel alignment."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags

HELP = (
  'Linear CKA between layers of models on parallel text (ECS section '
  '5.2), with a random encoder as lower bound and, given paraphrases as '
  'a pair such as en-en, an upper bound.'
)


FLAGS = f"""
{flags.FLAGS}{flags.MODELS}{flags.STATES}
--text TEXT (repeated, required): {flags.PAIRS}
--languages CODES: comma-separated, of a directory; all by default
{flags.PIVOT}
--max_pairs (Count): the first N sentences of a pair; all by default
--compare (one of all diagonal, default all): every two layers, or layer i with
  layer i
--estimator (one of biased debiased, default biased)
--no_random (switch): leave out the random encoder of --model_dir
"""


def run(args: argparse.Namespace) -> int:
  """Runs the analysis."""
  from xlflax.analysis import cka_study

  flags.check_languages(args, *args.text)
  return flags.finish(
    args,
    cka_study.CkaStudy(
      source=flags.chosen_pairs(args, 'text', max_pairs=args.max_pairs),
      series=flags.series(args, random=not args.no_random),
      steps=flags.steps(args),
      compare=args.compare,
      layers=flags.layers(args),
      estimator=args.estimator,
      reader=flags.reader(args),
    ),
  )
