"""`xlflax analyze procrustes`: maps between models, kept as files."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors

HELP = (
  'Learns an orthogonal map of each layer from the model of the first '
  'language to that of the second, on parallel sentences or on linked '
  'words in context (ECS sections 5.1.2 and 5.1.3), measures it on '
  'pairs that were held out and keeps it as .npz.'
)


FLAGS = f"""
{flags.FLAGS}{flags.MODELS}{flags.STATES}
--text TEXT (repeated, required): {flags.PAIRS}
--alignments PAIR=FILE (repeated): links between words of --text (separated by
  spaces) in Pharaoh's format, such as `xlflax analyze alignment` writes: pairs
  of words are mapped; without it, sentences
--languages CODES: comma-separated, of a directory; all by default
{flags.PIVOT}
--max_pairs (Count, default 10000): sentences of a pair
"""


def run(args: argparse.Namespace) -> int:
  """Runs the analysis."""
  from xlflax.analysis import procrustes_study

  flags.check_languages(args, *args.text)
  _check_states(args)
  return flags.finish(
    args,
    procrustes_study.ProcrustesStudy(
      source=flags.chosen_pairs(args, 'text', max_pairs=args.max_pairs),
      series=flags.series(args),
      steps=flags.steps(args),
      layers=flags.layers(args),
      reader=flags.reader(args),
      links=flags.named_files(args.alignments, '--alignments'),
      level=(
        procrustes_study.Level.WORDS
        if args.alignments
        else procrustes_study.Level.SENTENCES
      ),
    ),
  )


def _check_states(args: argparse.Namespace) -> None:
  """Refuses --states for words in context."""
  if args.alignments and args.states:
    raise errors.ConfigError(
      'States of words in context are not kept',
      got='--states',
      expected='no --states with --alignments',
    )
