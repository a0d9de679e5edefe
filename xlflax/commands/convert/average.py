"""`xlflax convert average`: the mean of some checkpoints' parameters."""

import argparse

from xlflax.foundation import errors

HELP = (
  'Averages the parameters of checkpoints, of one run or of several, into a '
  'model directory of its own.'
)


FLAGS = """
--model_dir DIR (repeated, required): the run; repeat for several, which began
  from one model
--output DIR (required): model directory to make
[one of, required]
--last (Count): average the newest N checkpoints of each run
--steps STEPS: comma-separated steps of checkpoints to average
"""


def run(args: argparse.Namespace) -> int:
  """Averages, and says what was averaged."""
  from xlflax.training.initialization import averaging

  chosen = {
    directory: averaging.last_steps(directory, args.last)
    if args.steps is None
    else _steps(args.steps)
    for directory in args.model_dir
  }
  averaging.average(chosen, args.output)
  for directory, steps in chosen.items():
    listed = ', '.join(map(str, sorted(set(steps))))
    print(f'{directory}, steps {listed} -> {args.output}')
  return 0


def _steps(text: str) -> list[int]:
  try:
    return [int(step) for step in text.split(',')]
  except ValueError as error:
    raise errors.ConfigError(
      'Steps are no numbers',
      got=text,
      expected='such as 1000,2000,3000',
      where='--steps',
    ) from error
