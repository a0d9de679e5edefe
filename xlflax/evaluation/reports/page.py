"""HTML report page, a single file that contains its tables and figures."""

import base64
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence

import jinja2

from xlflax.evaluation import task_families
from xlflax.evaluation.metrics.metric import Metric
from xlflax.evaluation.reports import cells, text

_TEMPLATES = jinja2.Environment(
  loader=jinja2.PackageLoader('xlflax.evaluation', 'reports'),
  autoescape=True,
  trim_blocks=True,
  lstrip_blocks=True,
  keep_trailing_newline=True,
  undefined=jinja2.StrictUndefined,
)
# Maximum number of columns with numbers if transposing would leave fewer.
_MAX_COLUMNS = 4
_MAX_ROWS = 60  # of a table without a scroll bar
_MAX_WORD = 20  # Maximum length of a word that narrow windows do not break.
_INTERVAL = re.compile(r'(.+?) (± .*|\[.*\])')


def render_page(
  title: str,
  explanation: str,
  tables: Sequence[text.Table],
  figures: Mapping[str, pathlib.Path],
  notes: Sequence[str],
  *,
  command: Sequence[str] = (),
  figures_first: bool = False,
  summary: Sequence[str] = (),
  metrics: Sequence[str] = (),
) -> str:
  """Renders an HTML page that does not depend on other files.

  Args:
    title: Page title.
    explanation: Explanatory paragraph below the title.
    tables: Tables in display order.
    figures: PNG files by figure title.
    notes: Notes to list at the end of the page.
    command: Command-line arguments that produced the page.
    figures_first: Whether to show the figures before the tables.
    summary: Main results to list below the title.
    metrics: Names of the metrics in the tables. The page contains a list of
      their descriptions, which are also shown as tooltips of columns.
  """
  legend = _describe_metrics(metrics)

  def find_description(column: str) -> str:
    """Returns the description of the metric that a column shows, or ''."""
    name = re.split(r'[, ]', str(column), maxsplit=1)[0]
    return legend[name].description if name in legend else ''

  return _TEMPLATES.get_template('page.html.j2').render(
    title=title,
    explanation=explanation,
    tables=[_transpose_if_wide(table) for table in tables],
    figures=[
      {
        'title': name,
        'content': base64.b64encode(path.read_bytes()).decode('ascii'),
      }
      for name, path in figures.items()
    ],
    notes=notes,
    command=format_command(command),
    figures_first=figures_first,
    summary=summary,
    max_rows=_MAX_ROWS,
    split_interval=_split_interval,
    has_long_words=_has_long_words,
    legend=legend,
    find_description=find_description,
  )


def _describe_metrics(names: Sequence[str]) -> dict[str, Metric]:
  """Returns the declarations of the metrics that have a description."""
  declarations = {name: task_families.find_metric(name) for name in names}
  return {
    name: declaration
    for name, declaration in declarations.items()
    if declaration.description
  }


def _has_long_words(value: str | cells.Cell) -> bool:
  """Returns whether a cell has a word that is wider than a narrow column."""
  return any(len(word) > _MAX_WORD for word in str(value).split())


def _split_interval(value: str) -> tuple[str, str]:
  """Splits '0.5 ± 0.1' or '50 [40, 60]' into the score and the rest.

  The rest is empty for other values. The page can break a line between the two
  parts only.
  """
  match = _INTERVAL.fullmatch(value)
  return (match[1], match[2]) if match else (value, '')


def format_command(words: Sequence[str]) -> str:
  """Formats a command for a shell, with each option on its own line."""
  lines: list[str] = []
  for word in map(_quote, words):
    if lines and not word.startswith('-'):
      lines[-1] += f' {word}'
    else:
      lines.append(word)
  return ' \\\n    '.join(lines)


def _quote(word: str) -> str:
  """Quotes a word with as few quotation marks as a shell needs."""
  if shlex.quote(word) == word or "'" not in word or set(word) & set('"$`\\!'):
    return shlex.quote(word)
  name, equals, value = word.partition('=')
  if equals and shlex.quote(name) == name:
    return f'{name}="{value}"'
  return f'"{word}"'


def _transpose_if_wide(table: text.Table) -> text.Table:
  """Transposes a table of numbers that has many more columns than rows."""
  num_numbers = len(table.head) - 1
  is_wide = num_numbers > max(_MAX_COLUMNS, len(table.rows))
  if is_wide and not any(table.text_columns[1:]):
    return table.transposed()
  return table
