"""`xlflax convert from-hf`: a Hugging Face folder as a model directory."""

import argparse

from xlflax.commands.flags import parsing

HELP = (
  'Makes a model directory from a local Hugging Face or '
  'Sentence-Transformers folder: BERT, DistilBERT, DeBERTa-v2, RoBERTa, XLM-R, XLM-R XL, '
  'XLM, ModernBERT, EuroBERT, ESM, T5, mT5, umT5, mBART, M2M-100 or NLLB-200, with '
  'tokenizer and heads.'
)


FLAGS = """
path PATH: folder with config.json, weights and tokenizer
--output MODEL_DIR (required): model directory to make
--dry_run (switch): check, show what becomes what, write nothing
--layers (one of scanned unrolled, default scanned): how the model holds its
  layers
--pad_vocab_size_multiple (Count, default 128): round the number of rows of
  embedding tables up to a multiple of this number
--languages CODES: comma-separated: the languages that get an id,
  in order (default: config.json's, else those of multilingual models)
--vocabulary DIR: a vocabulary to take instead of the folder's tokenizer
--unused_rows (one of refuse keep, default refuse): what to do about embeddings
  without a token
--drop PATTERN (repeated): leave out tensors whose names match; may be repeated
"""


RULES = (parsing.Excludes('languages unused_rows', 'vocabulary'),)


def run(args: argparse.Namespace) -> int:
  """Converts, or shows what would be done."""
  from xlflax.interop.huggingface import importing, tables

  checked = importing.check(
    args.path,
    scan_layers=args.layers == 'scanned',
    pad_vocab_size_multiple=args.pad_vocab_size_multiple,
    languages=tuple(filter(None, (args.languages or '').split(','))) or None,
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
