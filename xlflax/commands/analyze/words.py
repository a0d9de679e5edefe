"""`xlflax analyze words`: dictionary induction."""

import argparse
import pathlib

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors
from xlflax.storage import names

HELP = (
  'Word translation by nearest neighbours (cosine, CSLS) of embeddings, '
  'of contextual means at every layer, and of .vec files, with and '
  'without an orthogonal map (ECS section 5.1.1).'
)


FLAGS = f"""
{flags.FLAGS}{flags.MODELS}{flags.STATES}
--train PAIR=FILE (repeated, required): dictionary that the map is learned from:
  word and translation, separated by a tab or a space (MUSE), the first language
  asks; may be repeated
--test PAIR=FILE (repeated, required): dictionary whose words are asked for, as
  --train; may be repeated
--text TEXT (repeated): text whose words get contextual vectors: LANGUAGE=FILE,
  or a corpus directory, DIR or DIR@SPLIT (default: train); without it only
  embeddings are compared
--vec LANGUAGE=FILE (repeated): word vectors in fastText's text format, the
  baseline
--max_lines (Count): of a language's text; all by default
--max_words (Count, default 200000): of a language
--min_count (Count): words that the text has less often are left out (default:
  1)
"""


def run(args: argparse.Namespace) -> int:
  """Runs the analysis."""
  from xlflax.analysis import word_study

  series = _series(args)
  return flags.finish(
    args,
    word_study.WordStudy(
      train=flags.named_files(args.train, '--train'),
      test=flags.named_files(args.test, '--test'),
      text=_text(args),
      series=series,
      vectors=flags.named_files(args.vec, '--vec'),
      steps=flags.steps(args),
      layers=flags.layers(args),
      max_words=args.max_words,
      min_count=args.min_count or 1,
      max_length=args.max_length,
      directory=args.states,
    ),
  )


def _series(args: argparse.Namespace) -> tuple:
  """The models, none if only vectors are given; refuses flags of no use."""
  wanted = args.model_dir or args.series or not args.vec
  series = flags.series(args) if wanted else ()
  if not series:
    flags.refuse(args, ('text',), '--model_dir or --series')
  if not args.text:
    own = ('layers', 'max_length', 'max_lines', 'min_count', 'states')
    flags.refuse(args, own, '--text')
  return series


def _text(args: argparse.Namespace):
  from xlflax.analysis import text_files

  if not args.text:
    return None
  if len(args.text) == 1 and not names.split(args.text[0])[0]:
    directory, split = names.split_end(args.text[0])
    return text_files.CorpusLines(
      directory=directory, split=split or 'train', max_lines=args.max_lines
    )
  named = flags.named_files(args.text, '--text')
  for path in named.values():
    if not pathlib.Path(path).is_file():
      raise errors.CorpusError(
        'There is no such file of text', got=path, where='--text'
      )
  return text_files.TextFiles(files=named, max_lines=args.max_lines)
