"""Pictures of analyses in the forms of ECS's and MetaXLM's figures.

All are readable at half a page and without colour. Languages are named by
their codes: the fonts of matplotlib lack many scripts.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure
from matplotlib import image as image_lib

from xlflax.evaluation import plots

_ACROSS = 3  # panels in a row


def layer_columns(
  title: str,
  label: str,
  columns: Mapping[tuple[str, str], Sequence[float]],
  *,
  layers: Sequence[int] = (),
) -> figure.Figure:
  """A heat map with a row for each layer and their average (ECS figure 7).

  Args:
    title: above the picture.
    label: of the colours; values are 0..1.
    columns: (group, column) -> value of each layer; columns of one group
      stand together. Shorter ones leave their last rows empty.
    layers: numbers of the rows; none: from 0.
  """
  depth = max(map(len, columns.values()))
  values = np.full((depth + 1, len(columns)), np.nan)
  for x, found in enumerate(columns.values()):
    values[: len(found), x] = found
    if np.isfinite(found).any():
      values[depth, x] = np.nanmean(found)
  names = [column for _, column in columns]
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
  """Layer by layer heat maps, one panel each.

  Args:
    title: above the picture.
    label: of the colours; values are 0..1.
    panels: name -> [L, M].
    first: what the rows are.
    second: what the columns are.
    first_layers: numbers of the rows; none: from 0.
    second_layers: numbers of the columns; none: from 0.
  """
  rows = max(len(values) for values in panels.values())
  wide = max(values.shape[1] for values in panels.values())
  width = max(1.9, 0.36 * wide + 0.5)

  def draw(axes, name: str):
    values = panels[name]
    image = plots.draw_heatmap(axes, values)
    axes.set_title(plots.wrap_name(name, width), fontsize='medium')
    for ticks, size, layers in (
      (axes.set_yticks, len(values), first_layers),
      (axes.set_xticks, values.shape[1], second_layers),
    ):
      ticks(range(size), [str(i) for i in (layers or range(size))])
    axes.invert_yaxis()  # the embeddings below, as in the model
    axes.set(xlabel=f'layer of {second}', ylabel=f'layer of {first}')
    return image

  size = (width, max(1.6, 0.3 * rows + 0.9))
  return _heat_maps(title, label, panels, draw, size)


def directions(
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
  shown = ('{:+.1f}' if around_zero else '{:.1f}').format

  def draw(axes, name: str):
    found = panels[name]
    table = [
      [found.get((train, test), np.nan) for test in tested] for train in trained
    ]
    image = plots.draw_heatmap(
      axes, np.array(table), shown=shown, low=low, high=high
    )
    axes.set_title(name, fontsize='medium')
    axes.set_yticks(range(len(trained)), trained)
    axes.set_xticks(range(len(tested)), tested)
    axes.set(xlabel='test language', ylabel='training language')
    return image

  size = max(1.9, 0.6 * len(tested) + 0.5), max(1.6, 0.42 * len(trained) + 0.9)
  at_least = 0.5 + 0.085 * len(title)
  return _heat_maps(title, label, panels, draw, size, at_least=at_least)


def _heat_maps(
  title: str,
  label: str,
  names: Collection[str],
  draw: Callable[[axes_lib.Axes, str], image_lib.AxesImage],
  size: tuple[float, float],
  *,
  at_least: float = 0.0,
) -> figure.Figure:
  """Panels of one size in rows, with one colour bar.

  Args:
    title: above all.
    label: of the colours.
    names: of the panels.
    draw: draws the panel of a name.
    size: width and height of a panel, inches.
    at_least: width of the picture.
  """
  across = min(_ACROSS, len(names))
  down = math.ceil(len(names) / across)
  canvas = figure.Figure(
    figsize=(max(1.6 + across * size[0], at_least), 0.8 + down * size[1]),
    layout='constrained',
  )
  grid = canvas.subplots(down, across, squeeze=False).ravel()
  for axes in grid[len(names) :]:
    axes.set_visible(False)
  for axes, name in zip(grid, names, strict=False):
    image = draw(axes, name)
  canvas.colorbar(image, ax=grid[: len(names)].tolist(), label=label)
  canvas.suptitle(title, fontsize='large')
  return canvas


def _group_columns(axes, groups: Sequence[str]) -> None:
  """White lines between groups of columns, and their names above."""
  start = 0
  for stop in range(1, len(groups) + 1):
    if stop == len(groups) or groups[stop] != groups[start]:
      axes.text(
        (start + stop - 1) / 2, -0.65, groups[start], ha='center', va='bottom'
      )
      if stop < len(groups):
        axes.axvline(stop - 0.5, color='white', linewidth=3)
      start = stop
