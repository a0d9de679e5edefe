"""`xlflax convert to-hf`: a model directory as a Hugging Face folder."""

import argparse

from xlflax.foundation import numeric_flags, ranges
from xlflax.storage import paths

HELP = (
  'Makes a Hugging Face folder of a checkpoint: config.json, '
  'safetensors and tokenizer.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the export."""
  _add_folders(parser)
  parser.add_argument(
    '--architecture',
    metavar='TYPE',
    help='model_type of config.json (default: that of the tokenizer, else of '
    'the model that the run starts from, else the first that fits)',
  )
  parser.add_argument(
    '--task',
    metavar='TASK',
    help='whose head is taken along: masked_lm, '
    'sequence_classification, token_classification, question_answering, '
    'pretraining or states (default: what there is)',
  )
  parser.add_argument(
    '--license',
    metavar='NAME',
    help='for the model card, such as mit (default: that of the model that '
    'the run starts from)',
  )
  parser.add_argument(
    '--sentence_transformers',
    choices=('mean_all', 'first'),
    metavar='POOLING',
    help='make a folder for Sentence-Transformers, too, with the mean over '
    'all tokens (mean_all) or the first state (first) as vectors',
  )
  parser.add_argument(
    '--onnx',
    action='store_true',
    help='write an encoder as onnx/model.onnx, too, compared in onnxruntime '
    '(the extra `onnx`)',
  )
  parser.add_argument(
    '--direction',
    nargs=2,
    metavar=('SOURCE', 'TARGET'),
    help='of a translation model, such as de en: whose symbols the folder has',
  )
  _add_weights(parser)


def _add_folders(parser: argparse.ArgumentParser) -> None:
  """Adds what is read, and what is written."""
  parser.add_argument(
    'model_dir',
    metavar='MODEL_DIR',
    help="a run's directory, or an imported model's",
  )
  parser.add_argument(
    '--output', metavar='PATH', required=True, help='folder to make'
  )
  parser.add_argument(
    '--push',
    metavar='ORG/NAME',
    help='upload the folder to the Hugging Face Hub, too, where only you see '
    'it; first look at what is written, without this flag',
  )
  parser.add_argument(
    '--dry_run',
    action='store_true',
    help='check, show what becomes what, write nothing',
  )
  parser.add_argument(
    '--step',
    type=numeric_flags.of(ranges.Natural),
    help='checkpoint (default: the newest)',
  )


def _add_weights(parser: argparse.ArgumentParser) -> None:
  """Adds which tensors are written, and how."""
  parser.add_argument(
    '--dtype',
    default='float32',
    choices=('float32', 'float16', 'bfloat16'),
    help='of the tensors (default: %(default)s)',
  )
  parser.add_argument(
    '--max_shard_size',
    type=numeric_flags.of(ranges.Positive),
    default=5.0,
    metavar='GB',
    help='largest file, in 10^9 bytes (default: %(default)s)',
  )
  parser.add_argument(
    '--drop',
    metavar='PATTERN',
    action='append',
    default=[],
    help='leave out parameters whose names match; may be repeated',
  )


def run(args: argparse.Namespace) -> int:
  """Converts, or shows what would be done."""
  from xlflax.interop.huggingface import (
    exporting,
    folder_writing,
    hub_files,
    tables,
  )
  from xlflax.interop.huggingface.cards import card_metadata

  paths.local(args.output, where='--output')  # before anything is read
  card_metadata.check_license(args.license)
  checked = exporting.check(
    args.model_dir,
    step=args.step,
    model_type=args.architecture,
    task=args.task,
    drop=args.drop,
    dtype=args.dtype,
    pooling=args.sentence_transformers,
    direction=args.direction,
  )
  if args.dry_run:
    print(tables.of_export(checked))
    return 0
  notes = folder_writing.convert(
    checked,
    args.output,
    max_shard_bytes=int(args.max_shard_size * 1e9),
    license=args.license,
    onnx=args.onnx,
  )
  _report(checked, notes)
  print(
    f'{checked.options["architectures"][0]}, step {checked.step} -> '
    f'{args.output}'
  )
  if args.push:
    print(f'uploaded: {hub_files.push(paths.of(args.output), args.push)}')
  return 0


def _report(checked, notes) -> None:
  """Prints what was left out, and what to know of the rest."""
  for name, reason in checked.left_out.items():
    print(f'not kept: {name} ({reason})')
  for note in notes:
    print(f'note: {note}')
