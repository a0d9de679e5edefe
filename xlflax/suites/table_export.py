"""Export of a paper's table with published and measured scores."""

import csv
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.evaluation import plots
from xlflax.evaluation.reports import score_table, text
from xlflax.finetuning import model_selection
from xlflax.storage import manifests
from xlflax.suites import paper_table, suite_report
from xlflax.utils import name_suggestions, rich_tables

MARKDOWN = 'table.md'
CSV = 'table.csv'
FIGURE = 'table.png'
_FIGURE_DPI = 130


def measured_points(
  table: paper_table.PaperTable, report: suite_report.SuiteReport
) -> dict[tuple[str, str, str], float]:
  """Returns the measured scores of a paper's table, averaged over seeds.

  If several checkpoints of a run were evaluated, the scores of the last one are
  returned. The mean over languages of a task with failures, with examples
  without gold labels or with missing languages is left out, because it is a
  mean over fewer languages.

  Args:
    table: Table of a paper whose scores were measured by the suite.
    report: Results of the suite.

  Returns:
    Scores in points by (run, task, metric), such as ('default_en_fr',
    'xnli_fr', 'accuracy/fr').
  """
  results = _last_results(report)
  points = {}
  for source in table.sources.values():
    result = results.get((source.run, source.task))
    if result is None:
      continue
    metric, _, language = source.metric.partition('/')
    is_incomplete = (
      bool(result.failures or result.unlabeled)
      or not result.coverage(metric).is_complete
    )
    if is_incomplete and language == suite_report.MEAN:
      continue
    mean = model_selection.Spread(result.values.get(source.metric, ())).mean
    if mean is not None:
      key = (source.run, source.task, source.metric)
      points[key] = score_table.to_points(metric, mean)
  return points


def _last_results(
  report: suite_report.SuiteReport,
) -> dict[tuple[str, str], suite_report.TaskResult]:
  """Returns the results of the last checkpoints by run and task."""
  return {
    (result.label, result.task): result
    for result in sorted(report.results, key=lambda result: result.step)
  }


def describe_missing_scores(
  table: paper_table.PaperTable, report: suite_report.SuiteReport
) -> list[str]:
  """Describes the missing scores of each evaluated task in one line.

  Tasks with failures in this call are left out, because the command lists them
  (`SuiteReport.failures`).

  Args:
    table: Table of a paper whose scores were measured by the suite.
    report: Results of the suite.
  """
  points = measured_points(table, report)
  missing: dict[tuple[str, str], list[str]] = {}
  for source in dict.fromkeys(table.sources.values()):
    if (source.run, source.task, source.metric) not in points:
      missing.setdefault((source.run, source.task), []).append(source.metric)
  lines = []
  for key, result in _last_results(report).items():
    has_new_failures = bool(result.failures) and not result.is_earlier
    if key not in missing or has_new_failures:
      continue
    reasons = [
      *map(str, result.failures),
      *result.unlabeled,
      *_describe_missing_languages(result, missing[key]),
    ]
    reason = reasons[0] if reasons else 'the results do not contain the metric'
    if len(reasons) > 1:
      reason += f' ({len(reasons) - 1} more in report/leaderboard.md)'
    metrics = ', '.join(missing[key])
    lines.append(
      f'Missing scores of {result.model} in {result.task} ({metrics}): {reason}'
    )
  return lines


def _describe_missing_languages(
  result: suite_report.TaskResult, metrics: Sequence[str]
) -> list[str]:
  """Returns a sentence on the languages without scores in a metric, if any."""
  for name in metrics:
    metric = name.partition('/')[0]
    coverage = result.coverage(metric)
    if 0 < coverage.num_languages < coverage.num_expected:
      missing = [
        language
        for language in result.languages[metric]
        if f'{metric}/{language}' not in result.values
      ]
      return [
        f'only {coverage.num_languages} of {coverage.num_expected} languages '
        f'have scores (missing: {name_suggestions.format_names(missing)})'
      ]
  return []


def build_tables(
  table: paper_table.PaperTable, comparison: paper_table.Comparison
) -> list[text.Table]:
  """Returns the paper's table, and a table of changes from the reference rows.

  In the first table, each row of the paper has a line with the published
  scores. If scores of the row were measured, lines with the measured scores and
  the differences follow. The second table contains the changes from the
  reference rows. It is left out if no row has a reference row.

  Args:
    table: Table of a paper that the suite reproduces.
    comparison: Published and measured scores of the table.
  """
  tables = [
    text.Table(
      table.source,
      ['', *table.columns],
      _lines(
        table,
        {row.row: row.name for row in table.rows},
        table.columns,
        {
          'paper': (comparison.published, '.1f'),
          'xlflax': (comparison.measured, '.1f'),
          'difference': (comparison.differences, '+.1f'),
        },
      ),
    )
  ]
  names = {row.row: row.name for row in table.rows}
  changes = {
    row.row: f'{row.name} minus {names[row.reference]}'
    for row in table.rows
    if row.reference not in ('', row.row)
  }
  if changes:
    tables.append(
      text.Table(
        f'{table.source}: differences between rows',
        ['', *table.change_columns],
        _lines(
          table,
          changes,
          table.change_columns,
          {
            'paper': (comparison.published_changes, '+.1f'),
            'xlflax': (comparison.measured_changes, '+.1f'),
          },
        ),
      )
    )
  return tables


def table_titles(table: paper_table.PaperTable) -> tuple[str, ...]:
  """Returns the titles of the tables that `print_tables` prints."""
  tables = build_tables(table, table.compare({}))
  return tuple(printed_table.title for printed_table in tables)


def _lines(
  table: paper_table.PaperTable,
  names: Mapping[str, str],
  columns: Sequence[str],
  scores_by_label: Mapping[str, tuple[paper_table.Scores, str]],
) -> Iterator[list[str]]:
  """Yields the lines of a table, with the headings of its sections.

  Args:
    table: Table of a paper that the suite reproduces.
    names: Mapping from the identifiers of the rows to include to their names.
    columns: Columns to include.
    scores_by_label: Mapping from labels of lines, such as 'paper', to scores
      and the format of their numbers. Lines without scores are left out.
  """
  section = ''
  for row in table.rows:
    if row.row not in names:
      continue
    if row.section != section:
      section = row.section
      yield [section, *('' for _ in columns)]
    for label, (scores, number_format) in scores_by_label.items():
      cells = _cells(scores, row.row, columns, number_format)
      if any(cell != '-' for cell in cells):
        yield [f'{names[row.row]} ({label})', *cells]


def _cells(
  scores: paper_table.Scores,
  row: str,
  columns: Sequence[str],
  number_format: str,
) -> list[str]:
  """Returns the formatted scores of a row, with '-' for missing scores."""
  return [
    format(scores[row, column], number_format)
    if (row, column) in scores
    else '-'
    for column in columns
  ]


def write(
  table: paper_table.PaperTable,
  report: suite_report.SuiteReport,
  output: pathlib.Path,
) -> None:
  """Writes a paper's table as Markdown and CSV, and a plot of the table.

  The plot is written only if scores were measured.

  Args:
    table: Table of a paper that the suite reproduces.
    report: Results of the suite.
    output: Output directory of the suite.
  """
  comparison = table.compare(measured_points(table, report))
  tables = build_tables(table, comparison)
  contents = {
    MARKDOWN: '\n'.join(part.to_markdown() for part in tables),
    CSV: _to_csv(table, comparison),
  }
  manifests.write_files(output, manifests.Kind.SUITE, contents)
  if comparison.measured:
    _draw_figure(table, comparison, output / FIGURE)
    manifests.record_files(output, manifests.Kind.SUITE, [FIGURE])


def _to_csv(
  table: paper_table.PaperTable, comparison: paper_table.Comparison
) -> str:
  """Returns CSV text with a line for each row and column of the table."""
  content = io.StringIO()
  writer = csv.writer(content, lineterminator='\n')
  writer.writerow(
    ('row', 'section', 'name', 'setting', 'column', *comparison._fields)
  )
  for row in table.rows:
    for column in table.columns:
      writer.writerow(
        (
          row.row,
          row.section,
          row.name,
          row.setting,
          column,
          *(scores.get((row.row, column), '') for scores in comparison),
        )
      )
  return content.getvalue()


def _draw_figure(
  table: paper_table.PaperTable,
  comparison: paper_table.Comparison,
  path: pathlib.Path,
) -> None:
  """Draws the published and measured scores of the summary columns as bars."""
  measured_rows = [row for row in table.rows if row.run]
  groups = {
    f'{column}, {label}': {
      f'{row.name} {row.setting}'.strip(): scores[row.row, column]
      for row in measured_rows
      if (row.row, column) in scores
    }
    for column in table.change_columns
    for label, scores in (
      ('published', comparison.published),
      ('xlflax', comparison.measured),
    )
  }
  groups = {name: scores for name, scores in groups.items() if scores}
  figure = plots.bar_chart(table.source, 'score', groups)
  plots.save_figure(figure, path, dpi=_FIGURE_DPI)


def print_tables(
  table: paper_table.PaperTable, report: suite_report.SuiteReport, console: Any
) -> None:
  """Prints a paper's table with published and measured scores.

  The reasons for missing scores of evaluated tasks are printed below the table.

  Args:
    table: Table of a paper that the suite reproduces.
    report: Results of the suite.
    console: Rich console on which the table is printed.
  """
  comparison = table.compare(measured_points(table, report))
  for part in build_tables(table, comparison):
    rich_table = rich_tables.make_table(
      part.head[:1], part.head[1:], title=part.title, title_justify='left'
    )
    # Section headings are wrapped, so that they do not widen the column.
    name_widths = [len(str(row[0])) for row in part.rows if any(row[1:])]
    rich_table.columns[0].max_width = max(name_widths, default=None)
    for row in part.rows:
      is_section = bool(row[0]) and not any(row[1:])
      rich_table.add_row(*map(str, row), style='bold' if is_section else None)
    rich_tables.print_table(rich_table, console)
  for line in describe_missing_scores(table, report):
    console.print(line, markup=False, highlight=False, soft_wrap=True)
