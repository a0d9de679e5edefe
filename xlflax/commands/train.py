"""`xlflax train`: pretraining and fine-tuning."""

import argparse
import json

from xlflax import config
from xlflax.commands import compilation
from xlflax.training import distributed

HELP = ('Trains a model, or continues the run in --model_dir from its last '
        'checkpoint.')
EXAMPLES = """
  xlflax train --gin_file=pretrain/mlm.gin --gin_file=models/small.gin \\
      --corpus=corpus --vocabulary=vocab --cache=cache --model_dir=runs/mlm \\
      --gin.TRAIN_STEPS=10000

  # the plan only: parameters, memory, batches per language, time
  xlflax train --gin_file=... --model_dir=runs/mlm --dry_run

  # two processes on one machine (the same line with --process_id=1)
  xlflax train ... --coordinator=localhost:9876 --num_processes=2 --process_id=0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of training."""
  add_common_arguments(parser)
  parser.add_argument('--dry_run', action='store_true',
                      help='check everything and print the plan, no step')
  parser.add_argument(
      '--other_config', choices=['refuse', 'accept'], default='refuse',
      help="what to do where --model_dir holds another configuration's run")
  parser.add_argument('--stop_at_step', type=int, metavar='N',
                      help='save and stop at this step, before the last one')
  group = parser.add_argument_group('several processes')
  group.add_argument('--coordinator', metavar='HOST:PORT',
                     help='address of process 0')
  group.add_argument('--num_processes', type=int, metavar='N')
  group.add_argument('--process_id', type=int, metavar='I')


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
  """Flags that training and benchmarks share."""
  config.add_flags(parser)
  for flag, macro, text in (
      ('--model_dir', 'MODEL_DIR', 'directory of the run'),
      ('--corpus', 'CORPUS', 'corpus directory'),
      ('--vocabulary', 'VOCABULARY', 'directory made by `xlflax vocab`'),
      ('--cache', 'CACHE_DIR', 'token cache made by `xlflax cache`')):
    parser.add_argument(flag, metavar='DIR', help=f'{text} (gin: {macro})')
  parser.add_argument(
      '--task_module', action='append', default=[], metavar='MODULE',
      help='module that registers SeqIO tasks, where they are read live; may '
      'be repeated')
  compilation.add_flag(parser)


def bindings(args: argparse.Namespace) -> list[str]:
  """Gin bindings of the flags that are given, before the user's own."""
  flags = (('MODEL_DIR', args.model_dir), ('CORPUS', args.corpus),
           ('VOCABULARY', args.vocabulary), ('CACHE_DIR', args.cache))
  modules = ([f'TASK_MODULES={args.task_module!r}'] if args.task_module
             else [])
  return [config.quoted(name, value) for name, value in flags
          if value is not None] + modules + args.gin_bindings


def prepare(args: argparse.Namespace) -> None:
  """Parses the configuration and turns on the compilation cache."""
  config.parse(args.gin_file, bindings(args), args.gin_search_paths)
  compilation.use(args.compilation_cache)


def run(args: argparse.Namespace) -> int:
  """Trains, or prints the plan."""
  distributed.initialize(
      coordinator=args.coordinator, num_processes=args.num_processes,
      process_id=args.process_id)
  prepare(args)
  from xlflax import train as train_lib  # pylint: disable=g-import-not-at-top
  from xlflax.training import run_directory  # pylint: disable=g-import-not-at-top
  given = {}  # without it, what the configuration binds
  if args.stop_at_step is not None:
    given['stop_at_step'] = args.stop_at_step
  result = config.call(
      train_lib.train, config=config.operative,
      mode=train_lib.Mode.PLAN if args.dry_run else train_lib.Mode.TRAIN,
      other_config=run_directory.OtherConfig(args.other_config), **given)
  if distributed.is_lead() and not args.dry_run:
    print(json.dumps(result))
  return 0
