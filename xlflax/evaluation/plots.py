"""Figures for reports, evaluations and analyses, drawn with Matplotlib.

Lines and bars differ in color, shape and hatching, so that figures are readable
at half a page and without color (colors: Okabe and Ito, 2008, "Color universal
design"). Languages are labeled with their codes, since Matplotlib's fonts lack
many scripts.
"""

import functools
import io
import math
import pathlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import figure

from xlflax.evaluation import (
  eval_task,
  result_store,
  result_tables,
  score_format,
  task_families,
)
from xlflax.evaluation.metrics.metric import Better, Unit
from xlflax.storage import paths

LAYER = 'layer (0: embeddings)'
STEP = 'training step'
_PARTS = 'language, language pair or file'
_COLORS = (
  '#0072B2',
  '#E69F00',
  '#009E73',
  '#CC79A7',
  '#56B4E9',
  '#D55E00',
  '#999999',
)
_HATCHES = ('', '//', '..', 'xx', '\\\\', '++', 'oo')
_LINES = ('-', '--', '-.', ':')
_MARKERS = tuple('osD^vPX')
_LETTER_WIDTH = 0.085  # inches, approximately
_MAX_LEGEND_BELOW = 10  # names; a longer legend is drawn on the right
_MAX_PANELS_PER_ROW = 2
_MAX_BAR_GROUPS_PER_ROW = 14
_MAX_STEPS_WITH_INTERVALS = 8
_MAX_TICKS = 6  # on an axis of layers or steps
_DARK = 0.55  # position in the color map below which numbers are white
_TASK_DPI = 130
_MAX_PARTS_PER_COLUMN = 12  # in the legend of a task

Points = Sequence[tuple[float, float]]
Panels = Mapping[str, Mapping[str, Points]]
Groups = Mapping[str, Mapping[str, float]]
Intervals = Mapping[str, Mapping[str, tuple[float, float]]]
Curves = Mapping[str, Sequence[tuple[int, float]]]
ByStep = Mapping[result_store.Step, eval_task.EvalResult]
IntervalsByStep = Mapping[
  result_store.Step, Mapping[str, result_tables.Interval]
]


def line_style(index: int) -> dict[str, Any]:
  """Returns Matplotlib `plot` arguments that style a line.

  The styles of 28 consecutive indices are distinct.

  Args:
    index: Index of the line, which determines its color and style.
  """
  cycle = index // len(_COLORS)
  return {
    'color': _COLORS[index % len(_COLORS)],
    'linestyle': _LINES[(index + 2 * cycle) % len(_LINES)],
    'marker': _MARKERS[(index + cycle) % len(_MARKERS)],
  }


def bar_style(index: int) -> dict[str, Any]:
  """Returns Matplotlib `bar` arguments that style the bars of a series."""
  return {
    'color': _COLORS[index % len(_COLORS)],
    'hatch': _HATCHES[index % len(_HATCHES)],
    'edgecolor': 'white',
    'linewidth': 0.5,
  }


def hide_spines(axes) -> None:
  """Hides the top and right borders (spines) of the axes."""
  axes.spines[['top', 'right']].set_visible(False)


def add_legend(canvas, grid: Iterable, names: Sequence[str]) -> None:
  """Adds a shared legend that is not wider than the figure.

  Args:
    canvas: Figure with constrained layout. Its height is increased to make
      space for the legend.
    grid: Axes that contain the labeled lines or bars.
    names: Labels in legend order. If there is only one label, no legend is
      added.
  """
  handles: dict[str, Any] = {}
  for axes in grid:
    handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
  if len(names) < 2:
    return

  options: dict[str, Any]
  if len(names) <= _MAX_LEGEND_BELOW:
    entry_width = 0.58 + _LETTER_WIDTH * max(map(len, names))  # in inches
    max_columns = max(1, int(canvas.get_figwidth() / entry_width))
    num_legend_rows = math.ceil(len(names) / max_columns)
    canvas.set_figheight(canvas.get_figheight() + 0.2 * (num_legend_rows - 1))
    options = dict(
      loc='outside lower center', ncols=min(len(names), max_columns)
    )
  else:
    options = dict(
      loc='outside right center', fontsize=7, ncols=math.ceil(len(names) / 20)
    )
  canvas.legend(
    [handles[name] for name in names], names, frameon=False, **options
  )


def line_panels(
  title: str,
  label: str,
  panels: Panels,
  *,
  xlabel: str = LAYER,
  whole: float | None = None,
  one_scale: bool = True,
) -> figure.Figure:
  """Plots lines over layers or training steps, with one panel per group.

  Source: ECS, figures 4 to 6; MetaXLM, figures 3 to 5.

  Args:
    title: Figure title.
    label: Label of the vertical axes, including the unit.
    panels: Points (x, y) by panel name and line name. The value y may be NaN.
    xlabel: Label of the horizontal axes, `LAYER` or `STEP`.
    whole: Largest possible value, such as 100. The vertical axes start at 0 and
      end at the smallest multiple of `whole / 10` that exceeds all values. If
      None, the vertical axes fit the values.
    one_scale: Whether to use the same vertical scale in all panels.
  """
  names = list(dict.fromkeys(n for lines in panels.values() for n in lines))
  num_columns = min(_MAX_PANELS_PER_ROW, len(panels))
  num_rows = math.ceil(len(panels) / num_columns)
  top = _upper_limit(panels, whole) if whole is not None else 0.0
  canvas = figure.Figure(
    figsize=(1.0 + 3.1 * max(num_columns, 1.6), 1.1 + 2.5 * num_rows),
    layout='constrained',
  )
  grid = canvas.subplots(num_rows, num_columns, squeeze=False, sharey=one_scale)
  for axes in grid.ravel()[len(panels) :]:
    axes.set_visible(False)
  for axes, (panel, lines) in zip(grid.ravel(), panels.items(), strict=False):
    for name, points in lines.items():
      axes.plot(
        *zip(*points, strict=True),
        linewidth=1.6,
        markersize=4,
        label=name,
        **line_style(names.index(name)),
      )
    axes.set_title(wrap_name(panel, 3.1), fontsize='medium')
    axes.set_xlabel(xlabel)
    positions = sorted({x for points in lines.values() for x, _ in points})
    if len(positions) <= _MAX_TICKS:
      axes.set_xticks(positions)
    else:
      axes.locator_params(axis='x', integer=True, nbins=_MAX_TICKS)
    axes.grid(alpha=0.3)
    hide_spines(axes)
    if whole is not None:
      axes.set_ylim(-0.02 * top, 1.02 * top)
  for axes in grid[:, 0]:
    axes.set_ylabel(label)
  add_legend(canvas, grid.ravel()[: len(panels)], names)
  canvas.suptitle(title, fontsize='large')
  return canvas


def wrap_name(name: str, inches: float) -> str:
  """Wraps a name so that no line is wider than `inches`."""
  return textwrap.fill(name, max(8, int(inches / _LETTER_WIDTH)))


def _upper_limit(panels: Panels, whole: float) -> float:
  """Returns the smallest multiple of `whole / 10` that exceeds all values."""
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


def draw_heatmap(
  axes,
  values: np.ndarray,
  *,
  shown: Callable[[float], str] = lambda value: f'{100 * value:.0f}',
  low: float = 0.0,
  high: float = 1.0,
):
  """Plots a heat map with the value of each cell.

  Args:
    axes: Axes to draw on.
    values: Array of shape [rows, columns]. Cells that are not finite are empty.
    shown: Function that formats the number in a cell. By default, numbers are
      formatted as percentages.
    low: Lower end of the color scale. If it is `-high`, the colors diverge
      from zero.
    high: Upper end of the color scale.

  Returns:
    The Matplotlib image, from which a color bar can be drawn.
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
        color=_text_color((value - low) / max(high - low, 1e-9), around_zero),
      )
  return image


def _text_color(position: float, around_zero: bool) -> str:
  """Returns a text color that is readable on a background in a color map.

  Args:
    position: Relative position in the color map, from 0 to 1.
    around_zero: Whether the color map is dark at both ends.
  """
  if around_zero:
    return 'black' if abs(position - 0.5) < 0.35 else 'white'
  return 'black' if position > _DARK else 'white'


def save_figure(
  canvas: figure.Figure, path: pathlib.Path, *, dpi: int
) -> pathlib.Path:
  """Writes a figure to a PNG file and returns the path."""
  content = io.BytesIO()
  canvas.savefig(content, format='png', dpi=dpi)
  paths.write_atomically(path, content.getvalue())
  return path


def bar_chart(
  title: str,
  label: str,
  models: Groups,
  *,
  groups: Sequence[str] | None = None,
  xlabel: str = '',
  intervals: Intervals | None = None,
  baselines: Mapping[str, Mapping[str, float | None]] | None = None,
) -> figure.Figure:
  """Draws a bar chart of scores, grouped by language or task.

  Each group has one bar per model. The groups are divided into one or more rows
  of the figure.

  Args:
    title: Figure title.
    label: Label of the vertical axis, including the unit.
    models: Score by model name and group (language or task).
    groups: Order of the groups. If None, the groups are in the order in which
      they occur in `models`.
    xlabel: Label of the horizontal axis.
    intervals: Lower and upper ends of the error bars, by model name and group.
    baselines: Scores that do not depend on the model, by baseline name and
      group. Each is drawn as a line across the bars of its group. None and NaN
      are not drawn.
  """
  names = list(
    groups
    if groups is not None
    else dict.fromkeys(name for scores in models.values() for name in scores)
  )
  num_rows = max(1, math.ceil(len(names) / _MAX_BAR_GROUPS_PER_ROW))
  per_row = max(1, math.ceil(len(names) / num_rows))
  longest = max((len(name) for name in names), default=0)
  canvas = figure.Figure(
    figsize=(
      # Text of narrow figures is larger on a screen of a phone.
      5.2 if len(names) * len(models) <= 8 else 6.5,
      0.7 + 2.3 * num_rows,
    ),
    layout='constrained',
  )
  grid = canvas.subplots(num_rows, squeeze=False)[:, 0]
  values = [value for scores in models.values() for value in scores.values()]
  values += [
    bound
    for model_intervals in (intervals or {}).values()
    for interval in model_intervals.values()
    for bound in interval
  ]
  lines = {
    baseline: {
      group: value
      for group, value in by_group.items()
      if group in names and value is not None and math.isfinite(value)
    }
    for baseline, by_group in (baselines or {}).items()
  }
  values += [value for scores in lines.values() for value in scores.values()]
  top = _bar_limit(values)
  for row, axes in enumerate(grid):
    row_names = names[row * per_row : (row + 1) * per_row]
    _draw_bars(
      axes,
      models,
      row_names,
      intervals=intervals or {},
      show_numbers=len(row_names) * len(models) <= 20,
    )
    _draw_baselines(axes, lines, row_names)
    axes.set_xlim(-0.6, per_row - 0.4)
    axes.set_ylim(min([0.0, *values]) * 1.15, top)
    if top >= 1000:
      # By default, large numbers have a common factor, such as 1e6.
      axes.yaxis.set_major_formatter(score_format.format_tick)
    is_slanted = longest * per_row > 70
    axes.set_xticks(
      range(len(row_names)),
      row_names,
      rotation=35 if is_slanted else 0,
      ha='right' if is_slanted else 'center',
      rotation_mode='anchor' if is_slanted else 'default',
    )
    hide_spines(axes)
  canvas.supylabel(label, fontsize='medium')
  if xlabel:  # A label of the figure would overlap the legend.
    grid[-1].set_xlabel(xlabel)
  canvas.suptitle(title, fontsize='large')
  add_legend(canvas, grid, [*models, *filter(lines.get, lines)])
  return canvas


def transfer_curves(
  title: str, label: str, source: str, models: Mapping[str, Curves]
) -> figure.Figure:
  """Plots transfer scores over training steps, as in MetaXLM's figure 5.

  Args:
    title: Figure title.
    label: Label of the score, including the unit.
    source: Language code of the fine-tuning data.
    models: Curves of each model as points (step, score). The curves are
      'transfer' (mean of the other languages), 'source' and 'gap'.
  """
  headings = {
    'transfer': '(a) mean of the other languages',
    'source': f'(b) {source}',
    'gap': f'(c) transfer gap: {source} − others',
  }
  return line_panels(
    title,
    label,
    {
      heading: {name: lines[key] for name, lines in models.items()}
      for key, heading in headings.items()
    },
    xlabel=STEP,
    one_scale=False,
  )


def _draw_bars(
  axes,
  models: Groups,
  names: Sequence[str],
  *,
  intervals: Intervals,
  show_numbers: bool,
) -> None:
  """Draws the bars of the groups with the given names."""
  width = 0.8 / max(1, len(models))
  font_size = 9 if len(names) * len(models) <= 8 else 7
  for index, (model, scores) in enumerate(models.items()):
    shift = (index - (len(models) - 1) / 2) * width
    positions = [
      position + shift for position, name in enumerate(names) if name in scores
    ]
    heights = [scores[name] for name in names if name in scores]
    bounds = [
      # Bars without an interval have no error bar.
      intervals.get(model, {}).get(name, (math.nan, math.nan))
      for name in names
      if name in scores
    ]
    error_bars = [
      np.maximum(
        0.0, [y - low for y, (low, _) in zip(heights, bounds, strict=True)]
      ),
      np.maximum(
        0.0, [high - y for y, (_, high) in zip(heights, bounds, strict=True)]
      ),
    ]
    bars = axes.bar(
      positions,
      heights,
      width=width,
      label=model,
      yerr=error_bars if model in intervals else None,
      error_kw=dict(linewidth=1, capsize=3, ecolor='#333333'),
      **bar_style(index),
    )
    if show_numbers:
      digits = 3 - sum(axes.get_ylim()[1] > top for top in (2, 10, 1000))
      axes.bar_label(
        bars,
        fmt=functools.partial(score_format.format_score, decimals=digits),
        fontsize=font_size,
        padding=1,
      )
  axes.axhline(0, color='black', linewidth=0.8)


def _draw_baselines(axes, baselines: Groups, names: Sequence[str]) -> None:
  """Draws the scores of baselines as lines across the bars of each group."""
  for index, (baseline, scores) in enumerate(baselines.items()):
    positions = [
      position for position, name in enumerate(names) if name in scores
    ]
    if positions:
      axes.hlines(
        [scores[names[position]] for position in positions],
        [position - 0.45 for position in positions],
        [position + 0.45 for position in positions],
        colors='black',
        linestyles=_LINES[index % len(_LINES)],
        linewidth=1.5,
        label=baseline,
      )


def _bar_limit(values: Sequence[float]) -> float:
  """Returns the upper limit of the vertical axis of a bar chart."""
  highest = max(values, default=1.0)
  if 60 <= highest <= 100:
    return 108.0
  return max(highest * 1.15, 1e-3)


def write_task_plots(
  directory: pathlib.Path,
  task: eval_task.EvalTask | result_tables.Recorded,
  results: ByStep,
  *,
  folder: pathlib.Path | None = None,
) -> list[pathlib.Path]:
  """Plots a task's results over training steps.

  `<task>.<split>.png` shows the primary metric as bars for two results, or as
  curves for more than two results, with the untrained model at step 0.
  `<task>.<split>.layers.png` shows the table `layers` of the last result, and
  `<task>.<split>.untrained_layers.png` that of the untrained model, if they
  have one.

  Args:
    directory: Directory to which the figures are written.
    task: Evaluation task that produced the results.
    results: Comparable results by training step. They have the same split, text
      and settings.
    folder: Folder with the results. If given, bars and curves of at most eight
      checkpoints have error bars that show 95 % confidence intervals.

  Returns:
    Paths to the written files.
  """
  files = []
  name = task.name if task.split == 'all' else f'{task.name}.{task.split}'
  scored: ByStep = {
    step: result for step, result in results.items() if result.metrics
  }
  if len(scored) > 1:
    draw = _task_bars if len(scored) == 2 else _task_curves
    path = directory / f'{name}.png'
    intervals = {
      step: result_tables.result_intervals(task, result, folder / str(step))
      for step, result in scored.items()
      # Each interval requires a bootstrap, so long curves have none.
      if folder is not None and len(scored) <= _MAX_STEPS_WITH_INTERVALS
    }
    canvas = draw(task, scored, intervals)
    files.append(save_figure(canvas, path, dpi=_TASK_DPI))

  figure_names = {
    step: 'untrained_layers' if step == result_store.UNTRAINED else 'layers'
    for step in (*list(results)[-1:], result_store.UNTRAINED)
    if step in results and results[step].tables.get('layers')
  }
  for step, figure_name in figure_names.items():
    canvas = _task_layers(task, step, results[step])
    path = directory / f'{name}.{figure_name}.png'
    files.append(save_figure(canvas, path, dpi=_TASK_DPI))
  return files


def _task_title(task: eval_task.EvalTask | result_tables.Recorded) -> str:
  return result_tables.add_split(task.name, task.split)


def _task_bars(
  task: eval_task.EvalTask | result_tables.Recorded,
  results: ByStep,
  intervals: IntervalsByStep | None = None,
) -> figure.Figure:
  """Draws bars for two results, with one bar per language or file."""
  prefix = f'{task.primary_metric}/'
  names = {
    step: step if isinstance(step, str) else f'step {step:,}'
    for step in results
  }
  models = {
    names[step]: {
      name.removeprefix(prefix): value
      for name, value in result.metrics.items()
      if name.startswith(prefix)
    }
    for step, result in results.items()
  }
  label = task_families.find_metric(task.primary_metric).explained
  return bar_chart(
    _task_title(task),
    label,
    models,
    xlabel=_PARTS,
    intervals={
      names[step]: {
        name.removeprefix(prefix): interval
        for name, interval in step_intervals.items()
        if name.startswith(prefix)
      }
      for step, step_intervals in (intervals or {}).items()
    },
    baselines=result_tables.baseline_scores(
      task.primary_metric, results[list(results)[-1]]
    ),
  )


def _task_curves(
  task: eval_task.EvalTask | result_tables.Recorded,
  results: ByStep,
  intervals: IntervalsByStep | None = None,
) -> figure.Figure:
  """Draws thin lines for languages or files, and a thick line for the mean."""
  results_by_number = {
    max(result_store.step_sort_key(step), 0): result
    for step, result in results.items()
  }
  # Text of this size is readable on a screen of a phone.
  canvas = figure.Figure(figsize=(5.6, 3.8), layout='constrained')
  axes = canvas.subplots()
  prefix = f'{task.primary_metric}/'
  names = sorted(
    {
      name
      for result in results_by_number.values()
      for name in result.metrics
      if name.startswith(prefix)
    },
    key=lambda name: (name == f'{prefix}mean', name),
  )
  for index, name in enumerate(names):
    part = name.removeprefix(prefix)
    # Error bars of all languages would hide the curves.
    has_intervals = (part == 'mean' or len(names) == 1) and _draw_intervals(
      axes, name, intervals or {}
    )
    points = [
      (step, result.metrics[name])
      for step, result in results_by_number.items()
      if name in result.metrics
    ]
    style = (
      dict(color='black', linewidth=2.5, marker='.', zorder=3)
      if part == 'mean'
      else dict(linewidth=1, markersize=4, alpha=0.8, **line_style(index))
    )
    label = f'{part},\n95 % interval' if has_intervals else part
    axes.plot(*zip(*points, strict=True), label=label, **style)
  last = results[list(results)[-1]]
  baselines = result_tables.baseline_scores(task.primary_metric, last)
  main_part = names[-1].removeprefix(prefix) if names else ''
  if main_part == 'mean' or len(names) == 1:
    for index, (baseline, scores) in enumerate(baselines.items()):
      if math.isfinite(scores.get(main_part, math.nan)):
        axes.axhline(
          scores[main_part],
          color='black',
          linestyle=_LINES[1 + index % (len(_LINES) - 1)],
          linewidth=1.2,
          label=baseline if len(names) == 1 else f'{baseline},\n{main_part}',
        )
  metric = task_families.find_metric(task.primary_metric)
  has_untrained = any(isinstance(step, str) for step in results)
  axes.set(
    xlabel=f'{STEP} (0: untrained)' if has_untrained else STEP,
    ylabel=metric.explained,
    title=f'{_task_title(task)} during training',
  )
  if metric.unit is Unit.UNBOUNDED and metric.better is Better.LOWER:
    axes.set_yscale('log')
    # By default, the numbers are powers of ten.
    axes.yaxis.set_major_formatter(score_format.format_tick)
    axes.yaxis.set_minor_formatter(score_format.format_tick)
    axes.tick_params(axis='y', which='minor', labelsize='small')
  axes.locator_params(axis='x', integer=True)
  axes.grid(alpha=0.3)
  hide_spines(axes)
  fits_in_one_column = len(names) <= _MAX_PARTS_PER_COLUMN
  axes.legend(
    frameon=False,
    fontsize=9 if fits_in_one_column else 7,
    ncols=1 if fits_in_one_column else 2,
    loc='center left',
    bbox_to_anchor=(1, 0.5),  # An inner legend would hide parts of the curves.
  )
  return canvas


def _draw_intervals(axes, name: str, intervals: IntervalsByStep) -> bool:
  """Draws a metric's confidence intervals. Returns False if there are none."""
  bounds = {
    max(result_store.step_sort_key(step), 0): step_intervals[name]
    for step, step_intervals in intervals.items()
    if name in step_intervals
  }
  if bounds:
    lows, highs = zip(*bounds.values(), strict=True)
    axes.vlines(list(bounds), lows, highs, color='#333333', linewidth=1)
  return bool(bounds)


def _task_layers(
  task: eval_task.EvalTask | result_tables.Recorded,
  step: result_store.Step,
  result: eval_task.EvalResult,
) -> figure.Figure:
  """Draws the primary metric by pair and layer, averaged over both directions.

  If the table contains several methods, each pair has one column per method.
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
      max(3.0, 1.5 + 0.4 * len(layers)),
    ),
    layout='constrained',
  )
  axes = canvas.subplots()
  image = draw_heatmap(axes, np.array(values), shown='{:.2f}'.format)
  axes.invert_yaxis()
  axes.set_xticks(range(len(pairs)), pairs)
  axes.set_yticks(range(len(layers)), list(map(str, layers)))
  axes.set(
    xlabel=_PARTS,
    ylabel=LAYER,
    title=f'{_task_title(task)}: {task.primary_metric}\n'
    + (
      'of the untrained model' if isinstance(step, str) else f'at step {step:,}'
    ),
  )
  label = task_families.find_metric(task.primary_metric).explained
  label = wrap_name(label, 0.75 * canvas.get_figheight())
  canvas.colorbar(image, ax=axes, label=label)
  return canvas
