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
--against_plan (switch): profile the steps, and print the measured time of each
  kernel beside the planned one (needs a GPU or TPU)
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
  if args.against_plan:
    from xlflax.planning import against

    result = made.compare_with_plan(steps=args.steps)
    against.show(result)
  else:
    result = made.benchmark(steps=args.steps)
  text = json.dumps(result, indent=2)
  if not args.against_plan:
    print(text)
  if args.output:
    paths.write_atomically(paths.of(args.output), text + '\n')
  return 0
