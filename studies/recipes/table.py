"""Prints the tables of docs/recipes.md, and draws its curves.

python -m studies.recipes.table RESULTS [PICTURE]
"""

import json
import pathlib
import sys

from studies.recipes import conditions
from xlflax.evaluation import plots

COLUMNS = (
  'condition',
  'seed',
  'steps',
  'processor seconds',
  'loss en',
  'loss ru',
  'mean',
  'below `base`',
)


def main(results: str) -> None:
  found = json.loads(pathlib.Path(results).read_text('utf-8'))
  rows = []
  for condition in conditions.CONDITIONS:
    for seed in range(3):
      one = found.get(f'{condition.name}-{seed}')
      if one is None or len(_along(one)) > 1:
        continue
      losses, base = _losses(one), found.get(f'base-{seed}')
      below = f'{_losses(base)[-1] - losses[-1]:+.3f}' if base else ''
      rows.append(
        [
          f'`{condition.name}`',
          seed,
          one['steps'],
          round(one['processor_seconds']),
          *(f'{value:.3f}' for value in losses),
          below,
        ]
      )
  for row in (COLUMNS, ['---'] * len(COLUMNS), *rows):
    print('|', ' | '.join(map(str, row)), '|')


def widths(results: str) -> None:
  """Held-out loss along the runs whose checkpoints were kept."""
  found = json.loads(pathlib.Path(results).read_text('utf-8'))
  curves = {name: _along(one) for name, one in found.items()}
  curves = {name: curve for name, curve in curves.items() if len(curve) > 1}
  steps = sorted({step for curve in curves.values() for step in curve})
  header = ['condition', 'processor seconds', *(f'step {s}' for s in steps)]
  rows = [
    [
      f'`{name.removesuffix("-0")}`',
      round(found[name]['processor_seconds']),
      *(f'{curve[s]:.3f}' if s in curve else '' for s in steps),
    ]
    for name, curve in curves.items()
  ]
  for row in (header, ['---'] * len(header), *rows):
    print('|', ' | '.join(map(str, row)), '|')


def _along(one: dict) -> dict[int, float]:
  """Step -> held-out loss, mean of the languages."""
  steps = (name.partition('/') for name in one['measures'])
  return {
    int(step): one['measures'][f'perplexity/{step}']['loss/mean']
    for task, _, step in sorted(steps, key=lambda part: len(part[2]))
    if task == 'perplexity' and step.isdecimal()
  }


def draw(results: str, picture: str) -> None:
  """Training loss by step of conditions with 1,280 tokens a step, seed 0."""
  found = json.loads(pathlib.Path(results).read_text('utf-8'))
  panels = {
    'what is best': ('shipped', 'base', 'modern', 'combined'),
    'optimizer': ('adamw', 'base'),
    'one change': ('mask_15', 'post_norm', 'rotary', 'base'),
  }
  canvas = plots.line_panels(
    'Training loss (masked tokens, each run by its own mask ratio)',
    'loss, nats',
    {
      title: {name: found[f'{name}-0']['curve'] for name in names}
      for title, names in panels.items()
    },
    xlabel=plots.STEP,
  )
  plots.save_figure(canvas, pathlib.Path(picture), dpi=100)


def _losses(one: dict) -> list[float]:
  """Of the trained model on validation pages: en, ru, their mean."""
  metrics = one['measures'][f'perplexity/{one["steps"]}']
  return [metrics[f'loss/{part}'] for part in ('en', 'ru', 'mean')]


if __name__ == '__main__':
  main(sys.argv[1])
  print()
  widths(sys.argv[1])
  for picture in sys.argv[2:]:
    draw(sys.argv[1], picture)
