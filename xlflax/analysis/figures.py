"""Figures for analyses, in the style of the ECS and MetaXLM papers.

All figures are readable at half a page and without color. Languages are named
by their codes, because the fonts of Matplotlib lack many scripts.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from matplotlib import axes as matplotlib_axes
from matplotlib import figure
from matplotlib import image as matplotlib_image

from xlflax.evaluation import plots

_MAX_PANELS_PER_ROW = 3


def layer_columns(
  title: str,
  label: str,
  columns: Mapping[tuple[str, str], Sequence[float]],
  *,
  layers: Sequence[int] = (),
) -> figure.Figure:
  """Plots a heat map with a row for each layer, like figure 7 of ECS.

  The last row is the mean of all layers.

  Args:
    title: Figure title.
    label: Label of the color bar. The plotted values are between 0 and 1.
    columns: Map from (group, column) to the values of all layers. Columns of
      one group are adjacent. In columns with fewer layers, the last rows are
      empty.
    layers: Layer number of each row. If empty, zero-based row numbers are
      used.
  """
  depth = max(map(len, columns.values()))
  values = np.full((depth + 1, len(columns)), np.nan)
  for index, layer_values in enumerate(columns.values()):
    values[: len(layer_values), index] = layer_values
    if np.isfinite(layer_values).any():
      values[depth, index] = np.nanmean(layer_values)
  names = [name for _, name in columns]
  longest = max(map(len, names))
  canvas = figure.Figure(
    figsize=(
      max(5.0, 2.1 + 0.48 * len(columns)),
      1.6 + 0.36 * (depth + 1) + 0.05 * longest,
    ),
    layout='constrained',
  )
  axes = canvas.subplots()
  canvas.colorbar(plots.draw_heatmap(axes, values), ax=axes, label=label)
  axes.set_xticks(
    range(len(names)), names, rotation=35, ha='right', rotation_mode='anchor'
  )
  axes.set_yticks(
    range(depth + 1), [*(f'L{i}' for i in layers or range(depth)), 'mean']
  )
  axes.axhline(depth - 0.5, color='white', linewidth=3)
  _group_columns(axes, [group for group, _ in columns])
  axes.set_ylabel(plots.LAYER)
  canvas.suptitle(title, fontsize='large')
  return canvas


def matrices(
  title: str,
  label: str,
  panels: Mapping[str, np.ndarray],
  *,
  first: str,
  second: str,
  first_layers: Sequence[int] = (),
  second_layers: Sequence[int] = (),
) -> figure.Figure:
  """Plots heat maps over all pairs of layers of two models.

  Args:
    title: Figure title.
    label: Label of the color bar. The plotted values are between 0 and 1.
    panels: Map from panel name to an array of values of shape [L, M].
    first: Label for the row axis.
    second: Label for the column axis.
    first_layers: Layer number of each row. If empty, zero-based row numbers are
      used.
    second_layers: Layer number of each column. If empty, zero-based column
      numbers are used.
  """
  num_rows = max(len(values) for values in panels.values())
  num_columns = max(values.shape[1] for values in panels.values())
  width = max(1.9, 0.36 * num_columns + 0.5)

  def draw(axes, name: str):
    values = panels[name]
    image = plots.draw_heatmap(axes, values)
    axes.set_title(plots.wrap_name(name, width), fontsize='medium')
    for ticks, size, layers in (
      (axes.set_yticks, len(values), first_layers),
      (axes.set_xticks, values.shape[1], second_layers),
    ):
      ticks(range(size), [str(i) for i in (layers or range(size))])
    axes.invert_yaxis()  # The embeddings are at the bottom.
    axes.set(xlabel=f'layer of {second}', ylabel=f'layer of {first}')
    return image

  size = (width, max(1.6, 0.3 * num_rows + 0.9))
  return _heat_maps(title, label, panels, draw, size)


def directions(
  title: str,
  label: str,
  panels: Mapping[str, Mapping[tuple[str, str], float]],
  *,
  around_zero: bool = False,
) -> figure.Figure:
  """Plots scores by training language and test language (MetaXLM figure 6).

  Args:
    title: Figure title.
    label: Label of the color bar, including the unit.
    panels: Nested map from model to pair (training language, test language) to
      transfer score in points.
    around_zero: Whether the colors are centered at zero, to distinguish gains
      from losses.
  """
  pairs = [pair for scores in panels.values() for pair in scores]
  train_languages = list(dict.fromkeys(train for train, _ in pairs))
  test_languages = list(dict.fromkeys(test for _, test in pairs))
  values = [value for scores in panels.values() for value in scores.values()]
  low, high = min(values), max(values)
  if around_zero:
    high = max(abs(low), abs(high), 1e-9)
    low = -high
  format_value = ('{:+.1f}' if around_zero else '{:.1f}').format

  def draw(axes, name: str):
    scores = panels[name]
    table = [
      [scores.get((train, test), np.nan) for test in test_languages]
      for train in train_languages
    ]
    image = plots.draw_heatmap(
      axes, np.array(table), shown=format_value, low=low, high=high
    )
    axes.set_title(name, fontsize='medium')
    axes.set_yticks(range(len(train_languages)), train_languages)
    axes.set_xticks(range(len(test_languages)), test_languages)
    axes.set(xlabel='test language', ylabel='training language')
    return image

  size = (
    max(1.9, 0.6 * len(test_languages) + 0.5),
    max(1.6, 0.42 * len(train_languages) + 0.9),
  )
  min_width = 0.5 + 0.085 * len(title)
  return _heat_maps(title, label, panels, draw, size, min_width=min_width)


def _heat_maps(
  title: str,
  label: str,
  names: Collection[str],
  draw: Callable[[matplotlib_axes.Axes, str], matplotlib_image.AxesImage],
  size: tuple[float, float],
  *,
  min_width: float = 0.0,
) -> figure.Figure:
  """Plots heat maps of equal size that share one color bar.

  Args:
    title: Figure title.
    label: Label of the color bar.
    names: Panel names.
    draw: Function that draws the panel with a given name.
    size: Width and height of each panel in inches.
    min_width: Minimum figure width in inches.
  """
  num_columns = min(_MAX_PANELS_PER_ROW, len(names))
  num_rows = math.ceil(len(names) / num_columns)
  canvas = figure.Figure(
    figsize=(
      max(1.6 + num_columns * size[0], min_width),
      0.8 + num_rows * size[1],
    ),
    layout='constrained',
  )
  grid = canvas.subplots(num_rows, num_columns, squeeze=False).ravel()
  for axes in grid[len(names) :]:
    axes.set_visible(False)
  for axes, name in zip(grid, names, strict=False):
    image = draw(axes, name)
  canvas.colorbar(image, ax=grid[: len(names)].tolist(), label=label)
  canvas.suptitle(title, fontsize='large')
  return canvas


def _group_columns(axes, groups: Sequence[str]) -> None:
  """Draws white lines between groups of columns, and their names above."""
  start = 0
  for stop in range(1, len(groups) + 1):
    if stop == len(groups) or groups[stop] != groups[start]:
      axes.text(
        (start + stop - 1) / 2, -0.65, groups[start], ha='center', va='bottom'
      )
      if stop < len(groups):
        axes.axvline(stop - 0.5, color='white', linewidth=3)
      start = stop
