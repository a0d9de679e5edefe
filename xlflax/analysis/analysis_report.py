"""What an analysis found, and the folder that it is written to."""

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
class Picture:
  """A drawing and its numbers.

  Attributes:
    title: of the picture.
    canvas: it.
    rows: the numbers that are drawn; written as CSV beside it.
  """

  title: str
  canvas: figure.Figure
  rows: Sequence[Row]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
  """What an analysis found.

  Attributes:
    name: of the analysis, such as 'cka'.
    title: of its report.
    explanation: what the numbers are; a few sentences.
    rows: all numbers; each a line of `<name>.csv`.
    pictures: file name without suffix -> picture.
    tables: of the report.
    settings: what was asked for, as JSON values.
    notes: facts a reader must know.
    failures: parts that could not be analysed.
    files: name -> content of further files; bytes or text.
  """

  name: str
  title: str
  explanation: str
  rows: Sequence[Row]
  pictures: Mapping[str, Picture] = dataclasses.field(default_factory=dict)
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
) -> dict[str, Picture]:
  """A picture of curves by its name; none where there are no points.

  Args:
    name: of its files.
    title: above it.
    label: of the vertical axes, with its unit.
    panels: see `plots.line_panels`.
    rows: the numbers it is drawn from.
    **options: of `plots.line_panels`.
  """
  if not panels:
    return {}
  canvas = plots.line_panels(title, label, panels, **options)
  return {name: Picture(title, canvas, rows)}


def write(
  directory: pathlib.Path, analysis: Analysis, *, command: Sequence[str] = ()
) -> list[pathlib.Path]:
  """Writes the folder of an analysis; files in it are replaced.

  `analysis.json` (settings and numbers), `<name>.csv`, `<picture>.png` and
  `<picture>.csv`, `report.html` (one file with tables, pictures and the
  command), and the analysis's own files.

  Args:
    directory: is created.
    analysis: what was found.
    command: the words of the command that found it.

  Returns:
    The files written.

  Raises:
    AnalysisError: there is no number in it.
  """
  if not analysis.rows:
    raise errors.AnalysisError(
      f'The analysis {analysis.name} found nothing',
      got='; '.join(map(str, analysis.failures)) or 'no text',
    )
  directory.mkdir(parents=True, exist_ok=True)
  line = shlex.join(command)
  contents: dict[str, str | bytes] = {
    **analysis.files,
    f'{analysis.name}.csv': to_csv(analysis.rows),
  }
  drawn = {}
  for name, picture in analysis.pictures.items():
    drawn[picture.title] = directory / f'{name}.png'
    fonts.fit(picture.canvas)
    plots.save_figure(picture.canvas, drawn[picture.title], dpi=_DPI)
    contents[f'{name}.csv'] = to_csv(picture.rows)
  notes = [*analysis.notes, *(f'failed: {one}' for one in analysis.failures)]
  contents[PAGE] = page.render(
    analysis.title,
    analysis.explanation,
    analysis.tables,
    drawn,
    notes,
    command=command,
    figures_first=True,
  )
  contents[JSON] = (
    json.dumps(
      checksums.add_digest(
        _plain(
          {
            'analysis': analysis.name,
            'command': line,
            'settings': analysis.settings,
            'notes': list(analysis.notes),
            'failures': [dataclasses.asdict(one) for one in analysis.failures],
            'rows': list(analysis.rows),
          }
        )
      ),
      indent=1,
      ensure_ascii=False,
      allow_nan=False,
    )
    + '\n'
  )  # last: all is there
  kind = manifests.Kind.ANALYSIS
  manifests.record_files(
    directory, kind, [path.name for path in drawn.values()]
  )
  manifests.write_files(directory, kind, contents)
  names = [*contents, manifests.FILE]
  return [*(directory / name for name in names), *drawn.values()]


def to_csv(rows: Sequence[Row]) -> str:
  """Returns CSV with all columns of the rows; NaN is an empty cell."""
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
  """A table of percentages.

  Args:
    title: above it.
    rows: the numbers; the last one counts where several fall together.
    value: the column that is shown, a fraction.
    down: the line of a row.
    across: the column of a row.
    corner: what the lines are.
  """
  heads = list(dict.fromkeys(map(across, rows)))
  lines: dict[Hashable, dict[Hashable, float]] = {}
  for row in rows:
    lines.setdefault(down(row), {})[across(row)] = row[value]
  return text.Table(
    title,
    [corner, *map(str, heads)],
    (
      [str(name), *(_percent(found.get(head)) for head in heads)]
      for name, found in lines.items()
    ),
  )


def _percent(value: float | None) -> str:
  return text.number(None if value is None or _is_nan(value) else 100 * value)


def _is_nan(value: Any) -> bool:
  return isinstance(value, float) and not math.isfinite(value)


def _plain(value: Any) -> Any:
  """As JSON values; NaN and infinity become null."""
  if isinstance(value, Mapping):
    return {str(key): _plain(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_plain(item) for item in value]
  return None if _is_nan(value) else value
