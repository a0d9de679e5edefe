"""`xlflax analyze cka`: similarity of layers by centred kernel alignment."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import numeric_flags, ranges

HELP = (
  'Linear CKA between layers of models on parallel text (ECS section '
  '5.2), with a random encoder as lower bound and, given paraphrases as '
  'a pair such as en-en, an upper bound.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of CKA."""
  flags.add_arguments(parser)
  flags.add_models(parser)
  flags.add_states(parser)
  parser.add_argument(
    '--text', metavar='TEXT', action='append', required=True, help=flags.PAIRS
  )
  flags.add_languages(parser, 'a directory')
  parser.add_argument(
    '--max_pairs',
    type=numeric_flags.of(ranges.Count),
    help='the first N sentences of a pair; all by default',
  )
  _add_comparison(parser)


def _add_comparison(parser: argparse.ArgumentParser) -> None:
  """Adds how layers are compared."""
  parser.add_argument(
    '--compare',
    choices=['all', 'diagonal'],
    default='all',
    help='every two layers, or layer i with layer i (default: %(default)s)',
  )
  parser.add_argument(
    '--estimator',
    choices=['biased', 'debiased'],
    default='biased',
    help='(default: %(default)s)',
  )
  parser.add_argument(
    '--no_random',
    action='store_true',
    help='leave out the random encoder of --model_dir',
  )


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
