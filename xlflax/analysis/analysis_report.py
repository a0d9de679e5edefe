"""Results of an analysis, and the folder to which they are written."""

import dataclasses
import json
import math
import pathlib
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from matplotlib import figure

from xlflax.analysis import fonts
from xlflax.evaluation import eval_task, plots
from xlflax.evaluation.reports import page, text
from xlflax.storage import checksums, manifests
from xlflax.utils import errors

JSON = 'analysis.json'
PAGE = 'report.html'
_DPI = 160

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Figure:
  """A figure with the numbers that it plots.

  Attributes:
    title: Figure title.
    canvas: Matplotlib figure.
    rows: Plotted numbers, which are also written as CSV.
  """

  title: str
  canvas: figure.Figure
  rows: Sequence[Row]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
  """Results of an analysis: numbers, figures, tables and notes.

  Attributes:
    name: Name of the analysis, such as 'cka'.
    title: Report title.
    explanation: Short description of what the numbers measure.
    rows: All numbers of the analysis, in rows that become lines of
      `<name>.csv`.
    pictures: Map from file name, without the suffix, to figure.
    tables: Tables to show in the report.
    settings: The analysis settings as JSON values.
    notes: Remarks that are needed to interpret the numbers.
    failures: Language pairs or runs that could not be analyzed.
    files: Map from the name of each additional file to its content, as text or
      bytes.
  """

  name: str
  title: str
  explanation: str
  rows: Sequence[Row]
  pictures: Mapping[str, Figure] = dataclasses.field(default_factory=dict)
  tables: Sequence[text.Table] = ()
  settings: Any = None
  notes: Sequence[str] = ()
  failures: Sequence[eval_task.Failure] = ()
  files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)


def curves(
  name: str,
  title: str,
  label: str,
  panels: plots.Panels,
  rows: Sequence[Row],
  **options: Any,
) -> dict[str, Figure]:
  """Plots curves. Returns {file name: figure}, or {} if there are no points.

  Args:
    name: File name without the suffix.
    title: Figure title.
    label: Label of the vertical axes, including the unit.
    panels: Points on the curves (see `plots.line_panels`).
    rows: Numbers that the figure plots.
    **options: Options of `plots.line_panels`.
  """
  if not panels:
    return {}
  canvas = plots.line_panels(title, label, panels, **options)
  return {name: Figure(title, canvas, rows)}


def write(
  directory: pathlib.Path, analysis: Analysis, *, command: Sequence[str] = ()
) -> list[pathlib.Path]:
  """Writes an analysis to a folder and replaces existing files.

  The folder contains `analysis.json` (settings and numbers), `<name>.csv`,
  `<figure>.png` and `<figure>.csv`, `report.html` (a single file with tables,
  figures and the command), and the analysis's own files.

  Args:
    directory: Folder to which the files are written. It is created if it does
      not exist.
    analysis: Results to write.
    command: Command-line arguments with which the analysis was run.

  Returns:
    The paths of the written files.

  Raises:
    AnalysisError: If the analysis does not contain any rows.
  """
  if not analysis.rows:
    raise errors.AnalysisError(
      f'The analysis {analysis.name} did not produce any results',
      got='; '.join(map(str, analysis.failures)) or 'no text',
    )
  directory.mkdir(parents=True, exist_ok=True)
  contents: dict[str, str | bytes] = {
    **analysis.files,
    f'{analysis.name}.csv': to_csv(analysis.rows),
  }
  figure_paths = {}
  for name, picture in analysis.pictures.items():
    figure_paths[picture.title] = directory / f'{name}.png'
    fonts.fit(picture.canvas)
    plots.save_figure(picture.canvas, figure_paths[picture.title], dpi=_DPI)
    contents[f'{name}.csv'] = to_csv(picture.rows)
  notes = [
    *analysis.notes,
    *(f'failed: {failure}' for failure in analysis.failures),
  ]
  contents[PAGE] = page.render_page(
    analysis.title,
    analysis.explanation,
    analysis.tables,
    figure_paths,
    notes,
    command=command,
    figures_first=True,
  )
  record = {
    'analysis': analysis.name,
    'command': shlex.join(command),
    'settings': analysis.settings,
    'notes': list(analysis.notes),
    'failures': [dataclasses.asdict(failure) for failure in analysis.failures],
    'rows': list(analysis.rows),
  }
  # Written last, because its existence indicates that all files exist.
  contents[JSON] = (
    json.dumps(
      checksums.add_digest(_to_json(record)),
      indent=1,
      ensure_ascii=False,
      allow_nan=False,
    )
    + '\n'
  )
  kind = manifests.Kind.ANALYSIS
  manifests.record_files(
    directory, kind, [path.name for path in figure_paths.values()]
  )
  manifests.write_files(directory, kind, contents)
  names = [*contents, manifests.FILE]
  return [*(directory / name for name in names), *figure_paths.values()]


def to_csv(rows: Sequence[Row]) -> str:
  """Returns rows as CSV text with all columns that occur in any row.

  NaN and infinity become empty cells.
  """
  columns = list(dict.fromkeys(name for row in rows for name in row))
  return text.to_csv(
    columns,
    (
      ['' if _is_nan(value := row.get(name, '')) else value for name in columns]
      for row in rows
    ),
  )


def grid(
  title: str,
  rows: Sequence[Row],
  *,
  value: str,
  down: Callable[[Row], Hashable],
  across: Callable[[Row], Hashable],
  corner: str = '',
) -> text.Table:
  """Returns a pivot table of percentages, with labels for rows and columns.

  Args:
    title: Table title.
    rows: Rows with the numbers to display. If several rows belong to the same
      table cell, the last row is used.
    value: Name of the column that contains the values to display, which are
      fractions.
    down: Function that maps each of `rows` to the label of the table row in
      which its value is displayed.
    across: Function that maps each of `rows` to the label of the table column
      in which its value is displayed.
    corner: Heading above the row labels.
  """
  column_labels = list(dict.fromkeys(map(across, rows)))
  values_by_line: dict[Hashable, dict[Hashable, float]] = {}
  for row in rows:
    values_by_line.setdefault(down(row), {})[across(row)] = row[value]
  return text.Table(
    title,
    [corner, *map(str, column_labels)],
    (
      [
        str(row_label),
        *(_percent(values.get(label)) for label in column_labels),
      ]
      for row_label, values in values_by_line.items()
    ),
  )


def _percent(value: float | None) -> str:
  """Formats a fraction as a percentage."""
  return text.format_number(
    None if value is None or _is_nan(value) else 100 * value
  )


def _is_nan(value: Any) -> bool:
  return isinstance(value, float) and not math.isfinite(value)


def _to_json(value: Any) -> Any:
  """Converts a value to JSON values. NaN and infinity become null."""
  if isinstance(value, Mapping):
    return {str(key): _to_json(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_to_json(item) for item in value]
  return None if _is_nan(value) else value
