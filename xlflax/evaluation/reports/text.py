"""Report tables and their CSV and Markdown formats."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from xlflax.evaluation import score_format, task_families
from xlflax.evaluation.reports import cells, leaderboard, score_table


class Table:
  """A table of displayed values, with a title.

  Attributes:
    title: Table title.
    frame: DataFrame of the values, which are strings or `cells.Cell` objects.
      The first column contains the row names.
  """

  def __init__(
    self,
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str | cells.Cell]],
  ):
    self.title = title
    self.frame = pd.DataFrame(
      [list(row) for row in rows], columns=list(head), dtype=object
    )

  @property
  def head(self) -> list[str]:
    """Names of the table's columns."""
    return list(self.frame.columns)

  @property
  def rows(self) -> list[list[str | cells.Cell]]:
    """Values of the table's cells, row by row."""
    return self.frame.to_numpy().tolist()

  @property
  def text_columns(self) -> list[bool]:
    """True for each column that contains no numbers."""
    columns = self.frame.to_numpy().T
    return [not any(map(_is_number, column)) for column in columns]

  def to_markdown(self) -> str:
    """Returns the title and the table in GitHub-flavored Markdown."""
    alignment = ['---'] + ['---:'] * (len(self.head) - 1)
    lines: list[Sequence[str | cells.Cell]] = [self.head, alignment, *self.rows]
    grid = '\n'.join(
      '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
      for line in lines
    )
    return f'## {self.title}\n\n{grid}\n'

  def transposed(self) -> 'Table':
    """Returns the transposed table."""
    head, *rows = zip(self.head, *self.rows, strict=True)
    return Table(self.title, list(map(str, head)), rows)


def build_tables(
  summaries: Sequence[leaderboard.Summary],
  comparisons: Sequence[leaderboard.Comparison],
  details: cells.Details,
  scores: Sequence[score_table.ScoreTable],
) -> list[Table]:
  """Returns the tables to show in a report.

  The tables contain averages, transfer gaps, costs, the scores of each task,
  and comparisons. Empty tables are left out.

  Args:
    summaries: Summary of each model's scores.
    comparisons: Comparisons of the models with the baseline.
    details: Confidence intervals, significance marks and links to display next
      to scores.
    scores: Score table of each model.
  """
  tables = [
    _averages_table(summaries, details),
    _gaps_table(summaries, details),
  ]
  if any(table.cost for table in scores):
    tables.append(Table('Cost', cells.COST_HEAD, map(cells.cost_row, scores)))
  tables += [
    _task_table(task, summaries, details) for task in task_names(summaries)
  ]
  if comparisons:
    tables.append(_comparisons_table(comparisons))
  for table in tables:
    if any(
      isinstance(cell, cells.Cell) and cell.note.startswith('±')
      for row in table.rows
      for cell in row
    ):
      table.title += ', ± 95 % interval'
  return [table for table in tables if table.rows and len(table.head) > 1]


def scores_csv(scores: Sequence[score_table.ScoreTable]) -> str:
  """Returns rows `model,task,metric,language,score`, with scores in points."""
  columns = ['model', 'task', 'metric', 'language', 'score']
  return to_csv(
    columns,
    (
      (
        table.model,
        score.task,
        score.metric,
        score.language,
        round(score_table.to_points(score.metric, score.score), 6),
      )
      for table in scores
      for score in table.scores
    ),
  )


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Formats a table as CSV with a header.

  Numbers keep all their digits. None becomes an empty cell, and NaN becomes
  `nan`.
  """
  values = [['' if value is None else value for value in row] for row in rows]
  frame = pd.DataFrame(values, columns=list(columns), dtype=object)
  return frame.to_csv(index=False, lineterminator='\n', na_rep='nan')


def task_names(summaries: Sequence[leaderboard.Summary]) -> list[str]:
  """Returns the tasks for which at least one model has scores."""
  return list(
    dict.fromkeys(task for summary in summaries for task in summary.tasks)
  )


def language_names(
  task: str, summaries: Sequence[leaderboard.Summary]
) -> list[str]:
  """Returns the languages in which at least one model has scores for a task."""
  return list(
    dict.fromkeys(
      language
      for summary in summaries
      if task in summary.tasks
      for language in summary.tasks[task].languages
    )
  )


def metric_name(metric: str) -> str:
  """Returns a metric's display name, such as 'F1' for 'f1'."""
  return task_families.find_metric(metric).title


def format_number(value: float | None) -> str:
  """Formats a number with at most one decimal place, and None as a dash."""
  return '–' if value is None else score_format.format_score(value, decimals=1)


def _summary_cell(
  details: cells.Details, summary: leaderboard.Summary, task: str, language: str
) -> cells.Cell:
  """Returns the cell of a mean or gap, with a note on missing scores.

  Args:
    details: Confidence intervals, significance marks and links to display next
      to scores.
    summary: Summary of the model's scores.
    task: Name of the task, or ALL for the mean over tasks.
    language: MEAN for the cell with the mean over languages, or GAP for the
      cell with the transfer gap.
  """
  mean: float | None = None
  gap: float | None = None
  missing = ''
  if task == leaderboard.ALL:
    mean, gap, missing = summary.average, summary.gap, summary.missing
  elif task in summary.tasks:
    task_summary = summary.tasks[task]
    mean, gap = task_summary.score, task_summary.gap
    missing = task_summary.missing
  value = gap if language == leaderboard.GAP else mean

  detail = cells.Detail()
  if value is not None:
    detail = details.get((summary.model, task, language), detail)
  cell = detail.cell(format_number(value))
  if language == leaderboard.GAP and task != leaderboard.ALL and value is None:
    return cell
  note = ' '.join(filter(None, (cell.note, missing)))
  return dataclasses.replace(cell, note=note)


def _averages_table(summaries, details) -> Table:
  """Returns the table of means over tasks, XTREME averages and task scores."""
  tasks = task_names(summaries)
  groups = list(
    dict.fromkeys(name for summary in summaries for name in summary.xtreme)
  )
  labels = ['XTREME' if name == 'all' else f'XTREME {name}' for name in groups]
  return Table(
    'Averages',
    ['model', 'mean', *labels, *tasks],
    (
      [
        summary.model,
        _summary_cell(details, summary, leaderboard.ALL, leaderboard.MEAN),
        *(format_number(summary.xtreme.get(name)) for name in groups),
        *(
          _summary_cell(details, summary, task, leaderboard.MEAN)
          for task in tasks
        ),
      ]
      for summary in summaries
    ),
  )


def _gaps_table(summaries, details) -> Table:
  """Returns the table of transfer gaps, for the tasks that have a gap."""
  tasks = [
    task
    for task in task_names(summaries)
    if any(
      task in summary.tasks and summary.tasks[task].gap is not None
      for summary in summaries
    )
  ]
  head = ['model', 'mean', *tasks] if tasks else ['model']
  return Table(
    'Transfer gap (lower is better)',
    head,
    (
      [
        summary.model,
        *(
          _summary_cell(details, summary, task, leaderboard.GAP)
          for task in ((leaderboard.ALL, *tasks) if tasks else ())
        ),
      ]
      for summary in summaries
    ),
  )


def _task_table(task: str, summaries, details: cells.Details) -> Table:
  """Returns the mean, gap and score in each language, one row per model."""
  languages = language_names(task, summaries)
  summaries = [summary for summary in summaries if task in summary.tasks]
  rows = []
  for summary in summaries:
    scores = summary.tasks[task].languages
    language_cells = [
      details.get((summary.model, task, language), cells.Detail()).cell(
        format_number(scores.get(language))
      )
      for language in languages
    ]
    rows.append(
      [
        summary.model,
        _summary_cell(details, summary, task, leaderboard.MEAN),
        _summary_cell(details, summary, task, leaderboard.GAP),
        *language_cells,
      ]
    )

  # Models may have been evaluated with different metrics.
  metrics = ' / '.join(
    dict.fromkeys(
      ' and '.join(map(metric_name, summary.tasks[task].metrics))
      for summary in summaries
    )
  )
  mean = 'mean of ' if ' and ' in metrics else ''
  return Table(
    f'{task} ({mean}{metrics})', ['model', 'mean', 'gap', *languages], rows
  )


def _comparisons_table(comparisons: Sequence[leaderboard.Comparison]) -> Table:
  """Returns the table of comparisons with the baseline."""
  return Table(
    f'Comparison with {comparisons[0].baseline}',
    [
      'model',
      'task',
      'metric',
      'language',
      'baseline',
      'score',
      'difference [95 % interval]',
      'p',
      'p (Holm)',
    ],
    map(_comparison_row, comparisons),
  )


def _comparison_row(
  comparison: leaderboard.Comparison,
) -> list[str | cells.Cell]:
  """Returns a model's row in the table of comparisons with the baseline."""
  interval, p_value, adjusted_p = '', '–', '–'
  significance = comparison.significance
  if significance is not None:
    low, high = (
      _format_difference(bound)
      for bound in (significance.low, significance.high)
    )
    interval = f'[{low} … {high}]'
    p_value = f'{significance.p_value:.3f}'
  if comparison.adjusted_p is not None:
    star = ' *' if comparison.adjusted_p < cells.SIGNIFICANT else ''
    adjusted_p = f'{comparison.adjusted_p:.3f}{star}'
  return [
    comparison.model,
    comparison.task,
    metric_name(comparison.metric),
    comparison.language,
    format_number(comparison.first),
    format_number(comparison.second),
    cells.Cell(_format_difference(comparison.difference), interval),
    p_value,
    adjusted_p,
  ]


def _format_difference(value: float) -> str:
  """Formats a difference of scores with its sign."""
  return score_format.format_score(value, decimals=1, signed=True)


def _is_number(cell: str | cells.Cell) -> bool:
  """Returns whether the text of a cell starts with a number."""
  return str(cell).lstrip('+-')[:1].isdigit()
