"""`xlflax benchmark`: step time of a configuration on synthetic batches."""

import argparse
import json

from xlflax.commands.flags import compilation, parsing
from xlflax.commands.train import train_flags
from xlflax.configuration import config
from xlflax.storage import paths

HELP = (
  'Times training steps of a configuration on synthetic batches: step '
  'time, tokens/s, model FLOP utilisation, peak memory, as JSON.'
)

RULES = (
  parsing.Needs('num_languages', 'vocabulary_size'),
  parsing.Excludes('vocabulary', 'vocabulary_size'),
)
_TRAIN_STEPS = 1_000_000  # of schedules; not what is timed


FLAGS = f"""
{train_flags.COMMON}
--steps (Count, default 10): timed steps
--output FILE: also write the JSON to this file
"""


def run(args: argparse.Namespace) -> int:
  """Prints the figures."""
  args.model_dir = args.model_dir or 'unused'
  if not any(b.startswith('TRAIN_STEPS=') for b in args.gin_bindings):
    args.gin_bindings.insert(0, f'TRAIN_STEPS={_TRAIN_STEPS}')
  configuration = config.configure(args, train_flags.macros(args))
  compilation.use(args.compilation_cache)
  from xlflax import trainer

  made = configuration.build(
    trainer.Trainer, **train_flags.invented_vocabulary(args)
  )
  text = json.dumps(made.benchmark(steps=args.steps), indent=2)
  print(text)
  if args.output:
    paths.write_atomically(paths.of(args.output), text + '\n')
  return 0
