"""Lines and heat maps in panels, for reports and analyses.

All are readable at half a page and without colour. Languages are named by
their codes: the fonts of matplotlib lack many scripts.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib import figure

from xlflax.evaluation.reports import styles

LAYER = 'layer (0: embeddings)'
STEP = 'training step'
_DARK = 0.55  # of cividis: below, writing is white
_ACROSS = 3  # panels in a row
_TICKS = 6  # of an axis of layers or steps

Points = Sequence[tuple[float, float]]
Panels = Mapping[str, Mapping[str, Points]]


def curves(
  title: str,
  label: str,
  panels: Panels,
  *,
  xlabel: str = LAYER,
  whole: float | None = None,
  one_scale: bool = True,
) -> figure.Figure:
  """Lines over layers or steps, one panel each (ECS 4-6, MetaXLM 3-5).

  Args:
    title: above the picture.
    label: of the vertical axes, with its unit.
    panels: name of a panel -> name of a line -> points (x, y); y may be NaN.
    xlabel: LAYER or STEP.
    whole: what all of something is, such as 100: the vertical axes begin at
      0 and end there, or earlier if no value is near; None: as values are.
    one_scale: whether the vertical axes of all panels are alike.
  """
  names = list(dict.fromkeys(n for lines in panels.values() for n in lines))
  across = min(_ACROSS, len(panels))
  down = math.ceil(len(panels) / across)
  top = _top(panels, whole) if whole is not None else 0.0
  canvas = figure.Figure(
    figsize=(1.0 + 3.1 * max(across, 1.6), 1.1 + 2.5 * down),
    layout='constrained',
  )
  grid = canvas.subplots(down, across, squeeze=False, sharey=one_scale)
  for axes in grid.ravel()[len(panels) :]:
    axes.set_visible(False)
  for axes, (panel, lines) in zip(grid.ravel(), panels.items(), strict=False):
    for name, points in lines.items():
      axes.plot(
        *zip(*points, strict=True),
        linewidth=1.6,
        markersize=4,
        label=name,
        **styles.line(names.index(name)),
      )
    axes.set_title(wrapped(panel, 3.1), fontsize='medium')
    axes.set_xlabel(xlabel)
    places = sorted({x for points in lines.values() for x, _ in points})
    if len(places) <= _TICKS:
      axes.set_xticks(places)
    else:
      axes.locator_params(axis='x', integer=True, nbins=_TICKS)
    axes.grid(alpha=0.3)
    styles.tidy(axes)
    if whole is not None:
      axes.set_ylim(-0.02 * top, 1.02 * top)
  for axes in grid[:, 0]:
    axes.set_ylabel(label)
  styles.legend(canvas, grid.ravel()[: len(panels)], names)
  canvas.suptitle(title, fontsize='large')
  return canvas


def wrapped(name: str, inches: float) -> str:
  """A name in lines that are no wider than its panel."""
  return textwrap.fill(name, max(8, int(inches / styles.LETTER)))


def _top(panels: Panels, whole: float) -> float:
  """The next tenth of the whole above all values."""
  highest = max(
    (
      y
      for lines in panels.values()
      for points in lines.values()
      for _, y in points
      if math.isfinite(y)
    ),
    default=whole,
  )
  return whole * min(10, math.floor(10 * highest / whole) + 1) / 10


def heat(
  axes,
  values: np.ndarray,
  *,
  shown: Callable[[float], str] = lambda value: f'{100 * value:.0f}',
  low: float = 0.0,
  high: float = 1.0,
):
  """Draws [rows, columns] with their numbers, on one scale of colours.

  Args:
    axes: the panel.
    values: [rows, columns]; what is not finite stays empty.
    shown: a number's text; percent of 1.
    low: the least value; where it is -`high`, colours tell gains from losses.
    high: the greatest value.
  """
  around_zero = low == -high
  image = axes.imshow(
    values,
    cmap='PuOr' if around_zero else 'cividis',
    vmin=low,
    vmax=high,
    aspect='auto',
  )
  for (y, x), value in np.ndenumerate(values):
    if np.isfinite(value):
      axes.text(
        x,
        y,
        shown(value),
        ha='center',
        va='center',
        fontsize=8,
        color=_writing((value - low) / max(high - low, 1e-9), around_zero),
      )
  return image


def _writing(share: float, around_zero: bool) -> str:
  """The colour of writing on a colour between the least and the greatest."""
  if around_zero:  # dark at both ends
    return 'black' if abs(share - 0.5) < 0.35 else 'white'
  return 'black' if share > _DARK else 'white'
