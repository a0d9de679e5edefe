"""`xlflax analyze sentences`: retrieval by layer, with and without a map."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import flag_tables

HELP = (
  'Sentence retrieval at every layer, as the states are and after an '
  'orthogonal map learned on other parallel text (ECS section 5.1.3).'
)


_MORE_FLAGS = """
--max_pairs (Count): of the test text; all by default
--train_pairs (Count, default 10000): of the training text
"""


_FLAGS = f"""
--test TEXT (repeated, required): {flags.PAIRS}
--train TEXT (repeated): text that maps are learned from, given as --test;
  without it there is no map
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of sentence retrieval."""
  flags.add_arguments(parser)
  flags.add_models(parser)
  flags.add_states(parser)
  flag_tables.add(parser, _FLAGS)
  flags.add_languages(parser, 'directories')
  flag_tables.add(parser, _MORE_FLAGS)


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
