"""Learning curves of translation models by epoch, like VECO's table 3 (right).

  python -m studies.papers.learning_curves --steps_per_epoch=2197 \
      --metric=bleu/en-de --output=curves RUN [RUN ...]

All checkpoints of the runs have been evaluated with `xlflax evaluate
--gin_file=evaluate/translation.gin --checkpoint_steps=all`. An epoch is one
pass over the training pairs: N / B steps for N pairs and batches of B pairs.
The figure and its points are written to `curves.png` and `curves.csv` in the
output directory.
"""

import argparse
import csv
import pathlib
import sys
from collections.abc import Mapping, Sequence

from studies import command_line
from xlflax.evaluation import plots, result_store
from xlflax.utils import errors

TASK = 'translation'

# Map from the name of a run to its points (epoch, score).
Curves = Mapping[str, Sequence[tuple[float, float]]]


def read_curve(
  run: pathlib.Path, metric: str, steps_per_epoch: float
) -> list[tuple[float, float]]:
  """Returns the scores of a run's checkpoints as points (epoch, score).

  Args:
    run: Model directory.
    metric: Metric and language pair, such as 'bleu/en-de'.
    steps_per_epoch: Number of training steps in an epoch.

  Raises:
    CheckpointError: If no checkpoint of the run has the metric.
  """
  points = {
    step / steps_per_epoch: result.metrics[metric]
    for group, results in result_store.find_results(run, TASK).items()
    if group.split == 'test'
    for step, result in results.items()
    if isinstance(step, int) and metric in result.metrics
  }
  if not points:
    raise errors.CheckpointError(
      'The run has no test results for the requested metric',
      got=metric,
      where=run,
      fix='Run `xlflax evaluate --gin_file=evaluate/translation.gin '
      '--checkpoint_steps=all` first.',
    )
  return sorted(points.items())


def write_curves(curves: Curves, metric: str, output: pathlib.Path) -> None:
  """Plots learning curves, and writes their points to a CSV file.

  Args:
    curves: Map from the name of each run to its points (epoch, score).
    metric: Metric and language pair, such as 'bleu/en-de'.
    output: Directory to which `curves.csv` and `curves.png` are written.
  """
  output.mkdir(parents=True, exist_ok=True)
  with (output / 'curves.csv').open('w', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(('run', 'epoch', metric))
    for run, points in curves.items():
      writer.writerows((run, epoch, score) for epoch, score in points)
  canvas = plots.line_panels(
    'Learning curves', metric, {metric: curves}, xlabel='epoch'
  )
  plots.save_figure(canvas, output / 'curves.png', dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.papers.learning_curves', __doc__)
  parser.add_argument(
    'runs',
    nargs='+',
    type=command_line.input_directory,
    help='Model directories.',
  )
  parser.add_argument(
    '--steps_per_epoch',
    required=True,
    type=_parse_steps,
    help='Number of training steps in an epoch.',
  )
  parser.add_argument(
    '--metric',
    default='bleu/en-de',
    help='Metric and language pair. Defaults to bleu/en-de.',
  )
  parser.add_argument(
    '--output',
    required=True,
    type=pathlib.Path,
    help='Directory to which the figure and its points are written.',
  )
  return command_line.run_command(parser, _draw_curves, arguments)


def _parse_steps(text: str) -> float:
  """Parses a positive number of steps."""
  try:
    steps = float(text)
  except ValueError:
    steps = 0.0
  if not 0 < steps < float('inf'):
    raise argparse.ArgumentTypeError(f'{text!r} is not a positive number.')
  return steps


def _draw_curves(args: argparse.Namespace) -> None:
  """Draws the learning curves of the runs on the command line."""
  curves = {
    run.resolve().name: read_curve(run, args.metric, args.steps_per_epoch)
    for run in args.runs
  }
  write_curves(curves, args.metric, args.output)


if __name__ == '__main__':
  sys.exit(main())
