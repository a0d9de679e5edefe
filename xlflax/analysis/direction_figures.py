"""Matrices of transfer from every language to every other.

As `figures`: readable at half a page, languages named by their codes.
"""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib import figure

from xlflax.evaluation.reports import drawing

_ACROSS = 3  # panels in a row


def draw(
  title: str,
  label: str,
  panels: Mapping[str, Mapping[tuple[str, str], float]],
  *,
  around_zero: bool = False,
) -> figure.Figure:
  """Training by test languages, one panel a model (MetaXLM figure 6).

  Args:
    title: above the picture.
    label: of the colours, with its unit.
    panels: name -> (training language, test language) -> points.
    around_zero: whether colours tell gains from losses.
  """
  places = [place for found in panels.values() for place in found]
  trained, tested = (
    list(dict.fromkeys(place[i] for place in places)) for i in (0, 1)
  )
  values = [value for found in panels.values() for value in found.values()]
  low, high = min(values), max(values)
  if around_zero:
    high = max(abs(low), abs(high), 1e-9)
    low = -high
  across = min(_ACROSS, len(panels))
  down = math.ceil(len(panels) / across)
  canvas = figure.Figure(
    figsize=(
      max(
        1.6 + across * max(1.9, 0.6 * len(tested) + 0.5),
        0.5 + 0.085 * len(title),
      ),
      0.8 + down * max(1.6, 0.42 * len(trained) + 0.9),
    ),
    layout='constrained',
  )
  grid = canvas.subplots(down, across, squeeze=False).ravel()
  for axes in grid[len(panels) :]:
    axes.set_visible(False)
  for axes, (name, found) in zip(grid, panels.items(), strict=False):
    table = np.array(
      [
        [found.get((train, test), np.nan) for test in tested]
        for train in trained
      ]
    )
    image = drawing.heat(
      axes,
      table,
      shown=('{:+.1f}' if around_zero else '{:.1f}').format,
      low=low,
      high=high,
    )
    axes.set_title(name, fontsize='medium')
    axes.set_yticks(range(len(trained)), trained)
    axes.set_xticks(range(len(tested)), tested)
    axes.set(xlabel='test language', ylabel='training language')
  canvas.colorbar(image, ax=grid[: len(panels)].tolist(), label=label)
  canvas.suptitle(title, fontsize='large')
  return canvas
