"""`xlflax benchmark`: step time of a configuration on synthetic batches."""

import argparse
import json

from xlflax import config, errors
from xlflax.commands import train as train_command
from xlflax.data import vocabulary_spec

HELP = ('Times training steps of a configuration on synthetic batches: step '
        'time, tokens/s, model FLOP utilisation, peak memory, as JSON.')
EXAMPLES = """
  xlflax benchmark --gin_file=pretrain/mlm.gin --gin_file=models/base.gin \\
      --vocabulary_size=250000 --gin.BATCH_SIZE=64 --gin.LENGTH=512
"""

_TRAIN_STEPS = 1_000_000  # of schedules; not what is timed


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of benchmarks."""
  train_command.add_common_arguments(parser)
  parser.add_argument('--steps', type=int, default=10, metavar='N',
                      help='timed steps (default: %(default)s)')
  parser.add_argument(
      '--vocabulary_size', type=int, metavar='N',
      help='use an invented vocabulary of this size instead of --vocabulary')
  parser.add_argument('--output', metavar='FILE',
                      help='also write the JSON to this file')


def run(args: argparse.Namespace) -> int:
  """Prints the figures."""
  args.model_dir = args.model_dir or 'unused'
  if not any(b.startswith('TRAIN_STEPS=') for b in args.gin_bindings):
    args.gin_bindings.insert(0, f'TRAIN_STEPS={_TRAIN_STEPS}')
  invented = {}
  if args.vocabulary_size is not None:
    args.vocabulary = args.vocabulary or 'unused'
    invented['vocabulary'] = invented_vocabulary(args.vocabulary_size)
  train_command.prepare(args)
  from xlflax import train as train_lib  # pylint: disable=g-import-not-at-top
  result = config.call(
      train_lib.train, mode=train_lib.Mode.BENCHMARK,
      benchmark_steps=args.steps, **invented)
  text = json.dumps(result, indent=2)
  print(text)
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      file.write(text + '\n')
  return 0


def invented_vocabulary(size: int) -> vocabulary_spec.VocabularySpec:
  """Sizes of a vocabulary with five special symbols and one language."""
  if size < 16:
    raise errors.ConfigError(
        'The vocabulary size is too small', got=size, expected='16 or more',
        where='--vocabulary_size')
  return vocabulary_spec.VocabularySpec(
      size=size, pad_id=0, bos_id=1, eos_id=2, unk_id=3, mask_id=4,
      special_ids=(0, 1, 2, 3, 4), languages=('en',))
