"""Prints the tables of docs/recipes.md, and draws its curves.

python docs/recipes/table.py RESULTS [PICTURE]
"""

import json
import pathlib
import sys
import tomllib

from xlflax.evaluation.reports import drawing, pictures

HERE = pathlib.Path(__file__).resolve().parent
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
  declared = tomllib.loads((HERE / 'conditions.toml').read_text('utf-8'))
  rows = []
  for condition in declared['condition']:
    for seed in range(3):
      one = found.get(f'{condition["name"]}-{seed}')
      if one is None:
        continue
      losses, base = _losses(one), found.get(f'base-{seed}')
      below = f'{_losses(base)[-1] - losses[-1]:+.3f}' if base else ''
      rows.append(
        [
          f'`{condition["name"]}`',
          seed,
          one['steps'],
          round(one['processor_seconds']),
          *(f'{value:.3f}' for value in losses),
          below,
        ]
      )
  for row in (COLUMNS, ['---'] * len(COLUMNS), *rows):
    print('|', ' | '.join(map(str, row)), '|')


def draw(results: str, picture: str) -> None:
  """Training loss by step of conditions with 1,280 tokens a step, seed 0."""
  found = json.loads(pathlib.Path(results).read_text('utf-8'))
  panels = {
    'what is best': ('shipped', 'base', 'modern', 'combined'),
    'optimizer': ('adamw', 'base'),
    'one change': ('mask_15', 'post_norm', 'rotary', 'base'),
  }
  canvas = drawing.curves(
    'Training loss (masked tokens, each run by its own mask ratio)',
    'loss, nats',
    {
      title: {name: found[f'{name}-0']['curve'] for name in names}
      for title, names in panels.items()
    },
    xlabel=drawing.STEP,
  )
  pictures.save(canvas, pathlib.Path(picture), dpi=100)


def _losses(one: dict) -> list[float]:
  """Of the trained model on validation pages: en, ru, their mean."""
  metrics = one['measures'][f'perplexity/{one["steps"]}']
  return [metrics[f'loss/{part}'] for part in ('en', 'ru', 'mean')]


if __name__ == '__main__':
  main(sys.argv[1])
  for picture in sys.argv[2:]:
    draw(sys.argv[1], picture)
