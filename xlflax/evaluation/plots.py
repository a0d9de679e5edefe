"""Pictures of results: the main metric by checkpoint, and by layer."""

import math
import pathlib
from collections.abc import Mapping

import numpy as np
from matplotlib import figure

from xlflax.evaluation import base, families, results, summary
from xlflax.evaluation.metrics.declaration import Better, Unit
from xlflax.evaluation.reports import drawing, pictures

_DPI = 130
_MANY = 12  # parts, beyond which the legend has two columns

ByStep = Mapping[results.Step, base.EvalResult]


def write(
  directory: pathlib.Path, task: base.EvalTask | summary.Recorded, found: ByStep
) -> list[pathlib.Path]:
  """Draws a task's results into `directory`.

  `<task>.<split>.png` shows the main metric: bars of two results, curves of
  more, in which the untrained model stands at step 0.
  `<task>.<split>.layers.png` shows the table `layers` of the last result,
  where it has one.

  Args:
    directory: of the pictures.
    task: whose results they are.
    found: results of one split, text and settings, by step.

  Returns:
    The files written.
  """
  written = []
  name = task.name if task.split == 'all' else f'{task.name}.{task.split}'
  known: ByStep = {k: result for k, result in found.items() if result.metrics}
  if len(known) > 1:
    canvas = (_bars if len(known) == 2 else _curves)(task, known)
    file = directory / f'{name}.png'
    written.append(pictures.save(canvas, file, dpi=_DPI))
  last = list(found.items())[-1:]
  if last and last[0][1].tables.get('layers'):
    file = directory / f'{name}.layers.png'
    written.append(pictures.save(_layers(task, *last[0]), file, dpi=_DPI))
  return written


def _title(task: base.EvalTask | summary.Recorded) -> str:
  return task.name if task.split == 'all' else f'{task.name} ({task.split})'


def _bars(
  task: base.EvalTask | summary.Recorded, found: ByStep
) -> figure.Figure:
  """A bar of each part for each of two results."""
  prefix = f'{task.primary_metric}/'
  models = {
    step if isinstance(step, str) else f'step {step:,}': {
      name.removeprefix(prefix): value
      for name, value in result.metrics.items()
      if name.startswith(prefix)
    }
    for step, result in found.items()
  }
  label = families.metric(task.primary_metric).explained
  return pictures.bars(_title(task), label, models)


def _curves(
  task: base.EvalTask | summary.Recorded, found: ByStep
) -> figure.Figure:
  """One thin line for each part, a thick one for their mean."""
  found = {max(results.order(step), 0): one for step, one in found.items()}
  canvas = figure.Figure(figsize=(7, 4.5), layout='constrained')
  axes = canvas.subplots()
  prefix = f'{task.primary_metric}/'
  names = sorted(
    {
      name
      for result in found.values()
      for name in result.metrics
      if name.startswith(prefix)
    }
  )
  for name in names:
    part = name.removeprefix(prefix)
    points = [
      (step, result.metrics[name])
      for step, result in found.items()
      if name in result.metrics
    ]
    style = (
      dict(color='black', linewidth=2.5, zorder=3)
      if part == 'mean'
      else dict(linewidth=1, alpha=0.8)
    )
    axes.plot(*zip(*points, strict=True), marker='.', label=part, **style)
  axes.set(
    xlabel='training step',
    ylabel=families.metric(task.primary_metric).explained,
    title=f'{_title(task)} along training',
  )
  declared = families.metric(task.primary_metric)
  if (declared.unit, declared.better) == (Unit.UNBOUNDED, Better.LOWER):
    axes.set_yscale('log')
  axes.locator_params(axis='x', integer=True)
  axes.grid(alpha=0.3)
  axes.spines[['top', 'right']].set_visible(False)
  few = len(names) <= _MANY
  axes.legend(
    frameon=False,
    fontsize=9 if few else 7,
    ncols=1 if few else 2,
    loc='center left',
    bbox_to_anchor=(1, 0.5),  # inside, it would lie on some curve
  )
  return canvas


def _layers(
  task: base.EvalTask | summary.Recorded,
  step: results.Step,
  result: base.EvalResult,
) -> figure.Figure:
  """The main metric, the mean of both directions, by pair and layer.

  Where the table has several methods, each pair has a column for each.
  """
  sums: dict[tuple[str, int], list[float]] = {}
  for row in result.tables['layers']:
    column = '\n'.join(filter(None, (row['pair'], row.get('method'))))
    value = (
      math.nan if row[task.primary_metric] is None else row[task.primary_metric]
    )
    sums.setdefault((column, row['layer']), []).append(value)
  pairs = sorted({pair for pair, _ in sums})
  layers = sorted({layer for _, layer in sums})
  values = [
    [sum(sums[pair, layer]) / len(sums[pair, layer]) for pair in pairs]
    for layer in layers
  ]
  longest = max(len(line) for pair in pairs for line in pair.splitlines())
  canvas = figure.Figure(
    figsize=(
      max(4.5, 2 + max(0.5, 0.1 * longest) * len(pairs)),
      1.5 + 0.4 * len(layers),
    ),
    layout='constrained',
  )
  axes = canvas.subplots()
  image = drawing.heat(axes, np.array(values), shown='{:.2f}'.format)
  axes.invert_yaxis()
  axes.set_xticks(range(len(pairs)), pairs)
  axes.set_yticks(range(len(layers)), list(map(str, layers)))
  axes.set(
    ylabel='layer (0: embeddings)',
    title=f'{_title(task)}: {task.primary_metric} at step {step}',
  )
  label = families.metric(task.primary_metric).explained
  canvas.colorbar(image, ax=axes, label=label)
  return canvas
