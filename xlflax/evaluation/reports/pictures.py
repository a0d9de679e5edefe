"""A report's pictures: bars by language or task, curves over checkpoints.

Languages are named by code: the fonts of matplotlib lack many scripts.
"""

import io
import math
import pathlib
from collections.abc import Mapping, Sequence

from matplotlib import figure

from xlflax.evaluation.reports import drawing, styles
from xlflax.storage import paths

_WIDEST = 14  # groups of bars in one row

Groups = Mapping[str, Mapping[str, float]]
Curves = Mapping[str, Sequence[tuple[int, float]]]


def save(
  canvas: figure.Figure, path: pathlib.Path, *, dpi: int
) -> pathlib.Path:
  """Writes a picture as PNG, on disk or to a bucket; returns its path."""
  content = io.BytesIO()
  canvas.savefig(content, format='png', dpi=dpi)
  paths.write_atomically(path, content.getvalue())
  return path


def bars(
  title: str, label: str, models: Groups, *, groups: Sequence[str] | None = None
) -> figure.Figure:
  """Groups of bars, one bar for each model; many groups fill several rows.

  Args:
    title: above the picture.
    label: of the vertical axis, with its unit.
    models: name -> group (language or task) -> points.
    groups: their order; None: as they come.
  """
  names = list(
    groups
    if groups is not None
    else dict.fromkeys(name for scores in models.values() for name in scores)
  )
  num_rows = max(1, math.ceil(len(names) / _WIDEST))
  per_row = max(1, math.ceil(len(names) / num_rows))
  longest = max((len(name) for name in names), default=0)
  canvas = figure.Figure(
    figsize=(6.5, 0.7 + 2.3 * num_rows), layout='constrained'
  )
  grid = canvas.subplots(num_rows, squeeze=False)[:, 0]
  values = [value for scores in models.values() for value in scores.values()]
  top = _limit(values)
  for row, axes in enumerate(grid):
    shown = names[row * per_row : (row + 1) * per_row]
    _draw_bars(axes, models, shown, numbers=len(shown) * len(models) <= 20)
    axes.set_xlim(-0.6, per_row - 0.4)
    axes.set_ylim(min([0.0, *values]) * 1.15, top)
    slanted = longest * per_row > 70
    axes.set_xticks(
      range(len(shown)),
      shown,
      rotation=35 if slanted else 0,
      ha='right' if slanted else 'center',
      rotation_mode='anchor' if slanted else 'default',
    )
    styles.tidy(axes)
  canvas.supylabel(label, fontsize='medium')
  canvas.suptitle(title, fontsize='large')
  styles.legend(canvas, grid, list(models))
  return canvas


def curves(
  title: str, label: str, source: str, models: Mapping[str, Curves]
) -> figure.Figure:
  """Three panels over training steps, in the form of MetaXLM's figure 5.

  Args:
    title: above the picture.
    label: of the score, with its unit.
    source: code of the language that the model was fine-tuned in.
    models: name -> 'transfer' (mean of the other languages), 'source' and
      'gap' -> (step, points) in order of steps.
  """
  headings = {
    'transfer': '(a) mean of the other languages',
    'source': f'(b) {source}',
    'gap': f'(c) transfer gap: {source} − others',
  }
  return drawing.curves(
    title,
    label,
    {
      heading: {name: lines[key] for name, lines in models.items()}
      for key, heading in headings.items()
    },
    xlabel=drawing.STEP,
    one_scale=False,
  )


def _draw_bars(
  axes, models: Groups, shown: Sequence[str], *, numbers: bool
) -> None:
  width = 0.8 / max(1, len(models))
  for index, (model, scores) in enumerate(models.items()):
    shift = (index - (len(models) - 1) / 2) * width
    places = [
      place + shift for place, name in enumerate(shown) if name in scores
    ]
    drawn = axes.bar(
      places,
      [scores[name] for name in shown if name in scores],
      width=width,
      label=model,
      **styles.bar(index),
    )
    if numbers:
      digits = 2 - sum(axes.get_ylim()[1] > top for top in (10, 1000))
      axes.bar_label(drawn, fmt=f'%.{digits}f', fontsize=7, padding=1)
  axes.axhline(0, color='black', linewidth=0.8)


def _limit(values: Sequence[float]) -> float:
  """100 for high percentages, else a little above the highest bar."""
  highest = max(values, default=1.0)
  if 60 <= highest <= 100:
    return 108.0
  return max(highest * 1.15, 1e-3)
