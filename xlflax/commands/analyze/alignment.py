"""`xlflax analyze alignment`: links between words, at every layer."""

import argparse

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors

HELP = (
  'Alignment error rate of word links at every layer, by optimal '
  'transport and by mutual argmax (MetaXLM section 4.4), and the links '
  "of a layer in Pharaoh's format."
)


FLAGS = f"""
{flags.FLAGS}{flags.MODELS}
--links PAIR=TEXT,LINKS (repeated): sentences with gold links: a file of `source
  ||| target`, or two files, and one of links; may be repeated
--text PAIR=FILE[,FILE] (repeated): sentences without gold links, of words
  separated by spaces; only links are written
--maps DIR: output of `xlflax analyze procrustes` for the same series and pair:
  states of the first language are mapped, layer by layer, before words are
  compared
--methods NAMES (default mutual_transport,transport,argmax): comma-separated;
  mutual_transport and argmax are the intersections of both directions
--layer (Layer, default -1): whose links are written
--regularization R (Positive, default 0.1): entropy of the transport
--mass (one of uniform norm, default uniform): of words in the transport
--threshold T (Share): share above which words are linked (default: the greatest
  is)
--first_index (Natural, one of 0 1): number of the first word in the gold links
  (default: 0)
--max_sentences (Count): the first N of a pair; all by default
"""


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
