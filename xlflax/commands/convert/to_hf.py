"""`xlflax convert to-hf`: a model directory as a Hugging Face folder."""

import argparse

from xlflax.foundation import flag_tables
from xlflax.storage import mirrors

HELP = (
  'Makes a Hugging Face folder of a checkpoint: config.json, '
  'safetensors and tokenizer.'
)


_FLAGS = """
model_dir MODEL_DIR: a run's directory, or an imported model's
--output PATH (required): folder to make
--dry_run (switch): check, show what becomes what, write nothing
--step (Natural): checkpoint (default: the newest)
--architecture TYPE: model_type of config.json (default: that of the tokenizer,
  else of the model that the run starts from, else the first that fits)
--task TASK: whose head is taken along: masked_lm, sequence_classification,
  token_classification, question_answering, pretraining or states (default: what
  there is)
--license NAME: for the model card, such as mit (default: that of the model that
  the run starts from)
--sentence_transformers POOLING (one of mean_all first): make a folder for
  Sentence-Transformers, too, with the mean over all tokens (mean_all) or the
  first state (first) as vectors
--onnx (switch): write an encoder as onnx/model.onnx, too, compared in
  onnxruntime (the extra `onnx`)
"""

_MORE_FLAGS = """
--dtype (one of float32 float16 bfloat16, default float32): of the tensors
--max_shard_size GB (Positive, default 5.0): largest file, in 10^9 bytes
--drop PATTERN (repeated): leave out parameters whose names match; may be
  repeated
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the export."""
  flag_tables.add(parser, _FLAGS)
  parser.add_argument(
    '--direction',
    nargs=2,
    metavar=('SOURCE', 'TARGET'),
    help='of a translation model, such as de en: whose symbols the folder has',
  )
  flag_tables.add(parser, _MORE_FLAGS)


def run(args: argparse.Namespace) -> int:
  """Converts, or shows what would be done."""
  from xlflax.interop.huggingface import exporting, folder_writing, tables
  from xlflax.interop.huggingface.cards import card_metadata

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
  with mirrors.output(args.output, new=True) as folder:
    notes = folder_writing.convert(
      checked,
      folder,
      max_shard_bytes=int(args.max_shard_size * 1e9),
      license=args.license,
      onnx=args.onnx,
    )
  _report(checked, notes)
  print(
    f'{checked.options["architectures"][0]}, step {checked.step} -> '
    f'{args.output}'
  )
  return 0


def _report(checked, notes) -> None:
  """Prints what was left out, and what to know of the rest."""
  for name, reason in checked.left_out.items():
    print(f'not kept: {name} ({reason})')
  for note in notes:
    print(f'note: {note}')
