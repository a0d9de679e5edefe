"""Prints the tables in docs/recipes.md and plots its loss curves.

python -m studies.recipes.table RESULTS [FIGURE]

RESULTS is the file results.json that studies.recipes.study writes.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from studies import command_line
from studies.recipes import conditions
from xlflax.evaluation import plots

COLUMNS = (
  'configuration',
  'seed',
  'steps',
  'CPU seconds',
  'loss en',
  'loss ru',
  'mean',
  'below `base`',
)


def print_losses(results_file: str) -> None:
  """Prints the final held-out loss of each training configuration and seed.

  Runs with several evaluated checkpoints are omitted, because
  `print_loss_curves` prints them.
  """
  results = _read_results(results_file)
  rows = []
  for condition in conditions.CONDITIONS:
    for seed in range(3):
      result = results.get(f'{condition.name}-{seed}')
      if result is None or len(_held_out_losses(result)) > 1:
        continue
      losses = _final_losses(result)
      base = results.get(f'base-{seed}')
      below_base = (
        f'{_final_losses(base)[-1] - losses[-1]:+.3f}' if base else ''
      )
      rows.append(
        [
          f'`{condition.name}`',
          seed,
          result['steps'],
          round(result['cpu_seconds']),
          *(f'{loss:.3f}' for loss in losses),
          below_base,
        ]
      )
  _print_table(COLUMNS, rows)


def print_loss_curves(results_file: str) -> None:
  """Prints the held-out losses of runs with several evaluated checkpoints."""
  results = _read_results(results_file)
  curves = {name: _held_out_losses(result) for name, result in results.items()}
  curves = {name: curve for name, curve in curves.items() if len(curve) > 1}
  steps = sorted({step for curve in curves.values() for step in curve})
  rows = [
    [
      f'`{name.removesuffix("-0")}`',
      round(results[name]['cpu_seconds']),
      *(f'{curve[step]:.3f}' if step in curve else '' for step in steps),
    ]
    for name, curve in curves.items()
  ]
  _print_table(
    ['configuration', 'CPU seconds', *(f'step {step}' for step in steps)], rows
  )


def draw_training_curves(results_file: str, figure_file: str) -> None:
  """Plots training loss curves of configurations with 1,280 tokens per step."""
  results = _read_results(results_file)
  panels = {
    'best conditions': ('shipped', 'base', 'modern', 'combined'),
    'optimizer': ('adamw', 'base'),
    'one change': ('mask_15', 'post_norm', 'rotary', 'base'),
  }
  canvas = plots.line_panels(
    "Training loss of masked tokens at each run's mask ratio, seed 0",
    'loss, nats',
    {
      title: {name: results[f'{name}-0']['curve'] for name in names}
      for title, names in panels.items()
    },
    xlabel=plots.STEP,
  )
  plots.save_figure(canvas, pathlib.Path(figure_file), dpi=100)


def _read_results(path: str) -> dict[str, dict]:
  return json.loads(pathlib.Path(path).read_text('utf-8'))


def _held_out_losses(result: dict) -> dict[int, float]:
  """Returns the held-out loss at each step, averaged over languages."""
  names = (name.partition('/') for name in result['measures'])
  return {
    int(step): result['measures'][f'perplexity/{step}']['loss/mean']
    for task, _, step in sorted(names, key=lambda parts: len(parts[2]))
    if task == 'perplexity' and step.isdecimal()
  }


def _final_losses(result: dict) -> list[float]:
  """Returns the final validation losses: English, Russian and their mean."""
  metrics = result['measures'][f'perplexity/{result["steps"]}']
  return [metrics[f'loss/{name}'] for name in ('en', 'ru', 'mean')]


def _print_table(columns, rows) -> None:
  """Prints rows as a Markdown table."""
  for row in (columns, ['---'] * len(columns), *rows):
    print('|', ' | '.join(map(str, row)), '|')


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.recipes.table', __doc__)
  parser.add_argument(
    'results', metavar='RESULTS', help='File that studies.recipes.study wrote.'
  )
  parser.add_argument(
    'figure', nargs='?', metavar='FIGURE', help='Image file to write.'
  )
  return command_line.run_command(parser, _print_tables, arguments)


def _print_tables(args: argparse.Namespace) -> None:
  """Prints both tables, and plots the training curves if requested."""
  print_losses(args.results)
  print()
  print_loss_curves(args.results)
  if args.figure:
    draw_training_curves(args.results, args.figure)


if __name__ == '__main__':
  sys.exit(main())
