"""`xlflax analyze sentences`: retrieval by layer, with and without a map."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags

HELP = (
  'Sentence retrieval at every layer, as the states are and after an '
  'orthogonal map learned on other parallel text (ECS section 5.1.3).'
)


FLAGS = f"""
{flags.FLAGS}{flags.MODELS}{flags.STATES}
--test TEXT (repeated, required): {flags.PAIRS}
--train TEXT (repeated): text that maps are learned from, given as --test;
  without it there is no map
--languages CODES: comma-separated, of directories; all by default
{flags.PIVOT}
--max_pairs (Count): of the test text; all by default
--train_pairs (Count, default 10000): of the training text
"""


def run(args: argparse.Namespace) -> int:
  """Runs the analysis."""
  from xlflax.analysis import sentence_study

  flags.check_languages(args, *args.test, *args.train)
  train = None
  if args.train:
    train = flags.chosen_pairs(args, 'train', max_pairs=args.train_pairs)
  return flags.finish(
    args,
    sentence_study.SentenceStudy(
      test=flags.chosen_pairs(args, 'test', max_pairs=args.max_pairs),
      train=train,
      series=flags.series(args),
      steps=flags.steps(args),
      layers=flags.layers(args),
      reader=flags.reader(args),
    ),
  )
