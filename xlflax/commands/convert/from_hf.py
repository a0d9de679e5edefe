"""`xlflax convert from-hf`: a Hugging Face folder as a model directory."""

import argparse

from xlflax.foundation import numeric_flags, ranges

HELP = (
  'Makes a model directory from a local Hugging Face or '
  'Sentence-Transformers folder: BERT, DistilBERT, DeBERTa-v2, RoBERTa, XLM-R, XLM-R XL, '
  'XLM, ModernBERT, EuroBERT, ESM, T5, mT5, umT5, mBART, M2M-100 or NLLB-200, with '
  'tokenizer and heads.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the import."""
  _add_folders(parser)
  _add_model(parser)
  _add_vocabulary(parser)
  parser.add_argument(
    '--drop',
    metavar='PATTERN',
    action='append',
    default=[],
    help='leave out tensors whose names match; may be repeated',
  )


def _add_folders(parser: argparse.ArgumentParser) -> None:
  """Adds what is read, and what is written."""
  parser.add_argument(
    'path',
    metavar='PATH',
    help='folder with config.json, weights and tokenizer',
  )
  parser.add_argument(
    '--output',
    metavar='MODEL_DIR',
    required=True,
    help='model directory to make',
  )
  parser.add_argument(
    '--dry_run',
    action='store_true',
    help='check, show what becomes what, write nothing',
  )


def _add_model(parser: argparse.ArgumentParser) -> None:
  """Adds the shape of the model."""
  parser.add_argument(
    '--layers',
    choices=('scanned', 'unrolled'),
    default='scanned',
    help='how the model holds its layers (default: %(default)s)',
  )
  parser.add_argument(
    '--vocab_multiple',
    type=numeric_flags.of(ranges.Count),
    default=1,
    help="round the embeddings' rows up to a multiple of this (default: "
    '%(default)s)',
  )


def _add_vocabulary(parser: argparse.ArgumentParser) -> None:
  """Adds the vocabulary and its languages."""
  parser.add_argument(
    '--languages',
    metavar='CODES',
    default='',
    help='comma-separated: the languages that get an id, in order '
    "(default: config.json's, else those of multilingual models)",
  )
  parser.add_argument(
    '--vocabulary',
    metavar='DIR',
    help="a vocabulary to take instead of the folder's tokenizer",
  )
  parser.add_argument(
    '--unused_rows',
    choices=('refuse', 'keep'),
    default='refuse',
    help='what to do about embeddings without a token (default: %(default)s)',
  )


def run(args: argparse.Namespace) -> int:
  """Converts, or shows what would be done."""
  from xlflax.interop.huggingface import importing, tables

  checked = importing.check(
    args.path,
    scan_layers=args.layers == 'scanned',
    vocab_multiple=args.vocab_multiple,
    languages=tuple(filter(None, args.languages.split(','))) or None,
    vocabulary=args.vocabulary,
    unused_rows=args.unused_rows,
    drop=args.drop,
  )
  if args.dry_run:
    print(tables.of_import(checked))
    return 0
  directory = importing.convert(checked, args.output)
  for name, reason in checked.plan.skipped.items():
    print(f'not kept: {name} ({reason})')
  print(f'{len(checked.plan.assignments)} tensors -> {directory}')
  return 0
