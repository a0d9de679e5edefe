"""`xlflax analyze alignment`: links between words, at every layer."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors, numeric_flags, ranges

HELP = (
  'Alignment error rate of word links at every layer, by optimal '
  'transport and by mutual argmax (MetaXLM section 4.4), and the links '
  "of a layer in Pharaoh's format."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of word alignment."""
  flags.add_arguments(parser)
  flags.add_models(parser)
  _add_text(parser)
  _add_reading(parser)
  _add_methods(parser)
  _add_transport(parser)
  parser.add_argument(
    '--max_sentences',
    type=numeric_flags.of(ranges.Count),
    help='the first N of a pair; all by default',
  )


def _add_text(parser: argparse.ArgumentParser) -> None:
  """Adds the sentences, with gold links or without."""
  parser.add_argument(
    '--links',
    metavar='PAIR=TEXT,LINKS',
    action='append',
    default=[],
    help='sentences with gold links: a file of `source ||| target`, or two '
    'files, and one of links; may be repeated',
  )
  parser.add_argument(
    '--text',
    metavar='PAIR=FILE[,FILE]',
    action='append',
    default=[],
    help='sentences without gold links, of words separated by spaces; '
    'only links are written',
  )


def _add_reading(parser: argparse.ArgumentParser) -> None:
  """Adds how sentences and links are read."""
  parser.add_argument(
    '--maps',
    metavar='DIR',
    help='output of `xlflax analyze procrustes` for '
    'the same series and pair: states of the first language are mapped, '
    'layer by layer, before words are compared',
  )
  parser.add_argument(
    '--first_index',
    type=numeric_flags.of(ranges.Natural),
    choices=[0, 1],
    help='number of the first word in the gold links (default: 0)',
  )


def _add_methods(parser: argparse.ArgumentParser) -> None:
  """Adds the methods, and whose links are written."""
  parser.add_argument(
    '--methods',
    metavar='NAMES',
    default='mutual_transport,transport,argmax',
    help='comma-separated; mutual_transport and argmax are '
    'the intersections of both directions (default: '
    '%(default)s)',
  )
  parser.add_argument(
    '--layer',
    type=numeric_flags.of(ranges.Layer),
    default=-1,
    help='whose links are written (default: %(default)s)',
  )


def _add_transport(parser: argparse.ArgumentParser) -> None:
  """Adds the settings of the transport."""
  parser.add_argument(
    '--regularization',
    type=numeric_flags.of(ranges.Positive),
    default=0.1,
    metavar='R',
    help='entropy of the transport (default: %(default)s)',
  )
  parser.add_argument(
    '--mass',
    choices=['uniform', 'norm'],
    default='uniform',
    help='of words in the transport (default: %(default)s)',
  )
  parser.add_argument(
    '--threshold',
    type=numeric_flags.of(ranges.Share),
    metavar='T',
    help='share above which words are linked (default: the greatest is)',
  )


def run(args: argparse.Namespace) -> int:
  """Runs the analysis."""
  from xlflax.analysis import alignment_study

  return flags.finish(
    args,
    alignment_study.AlignmentStudy(
      source=_source(args),
      series=flags.series(args),
      steps=flags.steps(args),
      maps=args.maps,
      methods=tuple(args.methods.split(',')),
      layer=args.layer,
      regularization=args.regularization,
      mass=args.mass,
      threshold=args.threshold,
    ),
  )


def _source(args: argparse.Namespace):
  from xlflax.analysis import alignment_study
  from xlflax.data.labelled.sources import source

  if bool(args.links) == bool(args.text):
    raise errors.ConfigError(
      'Word alignment needs sentences, with gold links or without',
      expected='either --links=PAIR=TEXT,LINKS or --text=PAIR=FILE',
    )
  if args.text:
    flags.refuse(args, ('first_index',), '--links')
    named = flags.named_files(args.text, '--text')
    return alignment_study.UnlinkedFiles(
      max_sentences=args.max_sentences,
      files={n: flags.one_or_two(p, '--text') for n, p in named.items()},
    )
  named = flags.named_files(args.links, '--links')
  return source.FileExamples(
    format='word_alignment',
    max_examples=args.max_sentences,
    options={'first_index': args.first_index or 0},
    files={name: tuple(paths.split(',')) for name, paths in named.items()},
  )
