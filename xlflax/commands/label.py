"""`xlflax label`: a fine-tuned run labels the words of text."""

import argparse

from xlflax.commands.flags import compilation, language_files
from xlflax.foundation import numeric_flags, ranges

HELP = (
  'Writes the labels that a run fine-tuned for parts of speech or '
  'entities gives to words: training data for self-labelled '
  'translate-train.'
)
EXAMPLES = """
  # translated training text, a sentence a line, words separated by spaces
  xlflax label --model_dir=runs/pos/trials/single --output=labelled \\
      --input fr=translated.fr --input ja=translated.ja

  # train on English and on what was labelled
  xlflax finetune --gin_file=finetune/tagging.gin --init_from=runs/mlm \\
      --gin.FORMAT="'conll'" --output=runs/pos2 --gin.TRAIN_FILES="{
      'en': 'train.en.conll', 'fr': 'labelled/fr.conll'}"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of labelling."""
  _add_files(parser)
  parser.add_argument(
    '--step',
    type=numeric_flags.of(ranges.Natural),
    help='of the checkpoint (default: the newest)',
  )
  parser.add_argument(
    '--scheme',
    choices=['tags', 'entities'],
    default='tags',
    help='(default: %(default)s)',
  )
  _add_rows(parser)
  compilation.add_flag(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
  """Adds the run, the text and the output."""
  parser.add_argument(
    '--model_dir',
    metavar='DIR',
    required=True,
    help='directory of the fine-tuned run',
  )
  parser.add_argument(
    '--input',
    metavar='LANGUAGE=FILE',
    action='append',
    required=True,
    help='text, a sentence a line, words separated by spaces; repeat for '
    'several languages',
  )
  parser.add_argument(
    '--output',
    metavar='DIR',
    required=True,
    help='where <language>.conll are written',
  )


def _add_rows(parser: argparse.ArgumentParser) -> None:
  """Adds the sizes of rows and batches."""
  parser.add_argument(
    '--length',
    type=numeric_flags.of(ranges.Count),
    default=128,
    help='tokens a row (default: %(default)s)',
  )
  parser.add_argument(
    '--batch_size',
    type=numeric_flags.of(ranges.Count),
    default=64,
    help='sentences a batch (default: %(default)s)',
  )


def run(args: argparse.Namespace) -> int:
  """Labels and lists the files."""
  files = language_files.parse(args.input, where='--input')
  compilation.use(args.compilation_cache)
  from xlflax.finetuning import self_labelling

  written = self_labelling.label(
    teacher=args.model_dir,
    output=args.output,
    step=args.step,
    source=self_labelling.WordLines(files=files),
    scheme=args.scheme,
    length=args.length,
    batch_size=args.batch_size,
  )
  for path in written.values():
    print(path)
  return 0
