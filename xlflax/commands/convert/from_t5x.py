"""`xlflax convert from-t5x`: a T5X checkpoint as a model directory."""

import argparse

from xlflax.commands.flags import gin_flags, parsing
from xlflax.configuration import config
from xlflax.foundation import errors
from xlflax.storage import paths

HELP = (
  'Makes a model directory from a checkpoint of T5X: of its T5 (T5 v1.1, '
  "mT5), or of xlflax's own models trained by t5x.train."
)


FLAGS = f"""
checkpoint CHECKPOINT: folder such as MODEL_DIR/checkpoint_1000
--output MODEL_DIR (required): model directory to make
[one of, required]
--vocabulary DIR: directory made by `xlflax vocab`
--tokenizer DIR: folder with the SentencePiece model of T5 or mT5 as
  spiece.model; 100 sentinels are added
[]
--languages CODES: comma-separated, with --tokenizer: the languages that get an
  id, in order
--dry_run (switch): check, show what becomes what, write nothing
--layers (one of scanned unrolled, default scanned): how the model holds T5's
  layers
--activation (one of gelu_tanh gelu relu silu): of T5's feed-forward blocks
  (default: gelu_tanh where they are gated, else relu)
{gin_flags.FLAGS}
"""


RULES = (
  parsing.Needs('languages', 'tokenizer'),
  parsing.Excludes('layers activation', 'gin_file'),
)


def run(args: argparse.Namespace) -> int:
  """Converts, or shows what would be done."""
  from xlflax.interop.t5x import importing, model_directory

  checked = importing.check(
    args.checkpoint,
    vocabulary=_vocabulary(args),
    model=_model(args),
    scan_layers=args.layers == 'scanned',
    activation=args.activation,
  )
  if args.dry_run:
    print(importing.table(checked))
    return 0
  directory = model_directory.convert(checked, args.output)
  print(f'{len(checked.sources)} parameters -> {directory}')
  return 0


def _model(args: argparse.Namespace):
  """The module that gin files describe; None without any."""
  bindings = getattr(args, 'gin_bindings', [])
  if not args.gin_file:
    if bindings:
      raise errors.ConfigError(
        'There are gin bindings, but no model',
        got=', '.join(bindings),
        fix='add --gin_file=models/SIZE.gin',
      )
    return None
  return config.load(args.gin_file, bindings, args.gin_search_paths).macro(
    'MODEL'
  )


def _vocabulary(args: argparse.Namespace):
  from xlflax.data.vocabularies import vocabulary as vocabulary_lib

  if args.vocabulary:
    return vocabulary_lib.Vocabulary.load(args.vocabulary)
  from xlflax.interop.huggingface.tokenizers import languages, tokenizers

  codes = tuple(filter(None, (args.languages or '').split(',')))
  return tokenizers.read(
    paths.local(args.tokenizer, where='--tokenizer'),
    model_type='mt5',
    size=None,
    languages=codes or languages.DEFAULT,
  )
