"""Tables of a report, and their CSV and Markdown."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from xlflax.evaluation import task_families
from xlflax.evaluation.reports import cells, leaderboard, score_table


class Table:
  """A titled table of displayed values.

  Attributes:
    title: Title of the table.
    frame: Values, strings or `cells.Cell`. The first column names the rows.
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
    """Names of the columns."""
    return list(self.frame.columns)

  @property
  def rows(self) -> list[list[str | cells.Cell]]:
    return self.frame.to_numpy().tolist()

  @property
  def text_columns(self) -> list[bool]:
    """Whether each column has no number."""
    columns = self.frame.to_numpy().T
    return [not any(map(_is_number, column)) for column in columns]

  def to_markdown(self) -> str:
    """Returns a heading and a table in GitHub's Markdown."""
    alignment = ['---'] + ['---:'] * (len(self.head) - 1)
    lines: list[Sequence[str | cells.Cell]] = [self.head, alignment, *self.rows]
    grid = '\n'.join(
      '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
      for line in lines
    )
    return f'## {self.title}\n\n{grid}\n'

  def transposed(self) -> 'Table':
    """Returns the table with its columns as rows."""
    first, *others = zip(self.head, *self.rows, strict=True)
    return Table(self.title, list(map(str, first)), others)


def tables(
  summaries: Sequence[leaderboard.Summary],
  comparisons: Sequence[leaderboard.Comparison],
  details: cells.Details,
  scores: Sequence[score_table.ScoreTable],
) -> list[Table]:
  """Averages, transfer gaps, costs, one table a task, comparisons."""
  out = [_averages(summaries, details), _gaps(summaries, details)]
  if any(table.cost for table in scores):
    out.append(Table('Cost', cells.COST_HEAD, map(cells.cost_row, scores)))
  out += [_task(task, summaries, details) for task in task_names(summaries)]
  if comparisons:
    out.append(_comparisons(comparisons))
  return [table for table in out if table.rows and len(table.head) > 1]


def scores_csv(scores: Sequence[score_table.ScoreTable]) -> str:
  """Returns `model,task,metric,language,score` lines; scores are in points."""
  columns = ['model', 'task', 'metric', 'language', 'score']
  return to_csv(
    columns,
    (
      (
        table.model,
        one.task,
        one.metric,
        one.language,
        round(score_table.points(one.metric, one.score), 6),
      )
      for table in scores
      for one in table.scores
    ),
  )


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Returns CSV with a header.

  Numbers keep all their digits. None is an empty cell, NaN is `nan`.
  """
  values = [['' if value is None else value for value in row] for row in rows]
  frame = pd.DataFrame(values, columns=list(columns), dtype=object)
  return frame.to_csv(index=False, lineterminator='\n', na_rep='nan')


def task_names(summaries: Sequence[leaderboard.Summary]) -> list[str]:
  """The tasks of all models, each once."""
  return list(dict.fromkeys(task for one in summaries for task in one.tasks))


def language_names(
  task: str, summaries: Sequence[leaderboard.Summary]
) -> list[str]:
  """A task's languages over all models, each once."""
  return list(
    dict.fromkeys(
      language
      for one in summaries
      if task in one.tasks
      for language in one.tasks[task].languages
    )
  )


def metric_name(metric: str) -> str:
  """As a reader knows it: exact_match -> exact match, f1 -> F1."""
  return task_families.find_metric(metric).title


def number(value: float | None) -> str:
  """One digit behind the point; a dash for none."""
  return '–' if value is None else f'{value:.1f}'


def _shown(details: cells.Details, one, task: str, language: str) -> cells.Cell:
  """The cell of a mean or gap, with what the task lacks."""
  value: float | None = None
  found = one if task == leaderboard.ALL else one.tasks.get(task)
  if found is not None:
    mean = one.average if found is one else found.score
    value = found.gap if language == leaderboard.GAP else mean
  detail = details.get((one.model, task, language), cells.Detail())
  cell = (detail if value is not None else cells.Detail()).cell(number(value))
  missing = found.missing if found and language == leaderboard.MEAN else ''
  note = ' '.join(filter(None, (cell.note, missing)))
  return dataclasses.replace(cell, note=note)


def _averages(summaries, details) -> Table:
  tasks = task_names(summaries)
  groups = list(dict.fromkeys(name for one in summaries for name in one.xtreme))
  labels = ['XTREME' if name == 'all' else f'XTREME {name}' for name in groups]
  return Table(
    'Averages',
    ['model', 'mean', *labels, *tasks],
    (
      [
        one.model,
        _shown(details, one, leaderboard.ALL, leaderboard.MEAN),
        *(number(one.xtreme.get(name)) for name in groups),
        *(_shown(details, one, task, leaderboard.MEAN) for task in tasks),
      ]
      for one in summaries
    ),
  )


def _gaps(summaries, details) -> Table:
  tasks = [
    task
    for task in task_names(summaries)
    if any(
      task in one.tasks and one.tasks[task].gap is not None for one in summaries
    )
  ]
  head = ['model', 'mean', *tasks] if tasks else ['model']
  return Table(
    'Transfer gap (lower is better)',
    head,
    (
      [
        one.model,
        *(
          _shown(details, one, task, leaderboard.GAP)
          for task in ((leaderboard.ALL, *tasks) if tasks else ())
        ),
      ]
      for one in summaries
    ),
  )


def _task(task: str, summaries, details: cells.Details) -> Table:
  """A row for each model: mean, gap, and the score in each language."""
  languages = language_names(task, summaries)
  rows = []
  for one in summaries:
    if task in one.tasks:
      found = one.tasks[task]
      rows.append(
        [
          one.model,
          _shown(details, one, task, leaderboard.MEAN),
          _shown(details, one, task, leaderboard.GAP),
          *(
            details.get((one.model, task, code), cells.Detail()).cell(
              number(found.languages.get(code))
            )
            for code in languages
          ),
        ]
      )
  kinds = dict.fromkeys(
    ' and '.join(map(metric_name, one.tasks[task].metrics))
    for one in summaries
    if task in one.tasks
  )
  kind = ' / '.join(kinds)
  mean = 'mean of ' if ' and ' in kind else ''
  return Table(
    f'{task} ({mean}{kind})', ['model', 'mean', 'gap', *languages], rows
  )


def _comparisons(found: Sequence[leaderboard.Comparison]) -> Table:
  return Table(
    f'Against {found[0].baseline}',
    [
      'model',
      'task',
      'metric',
      'language',
      found[0].baseline,
      'score',
      'difference',
      '95 % interval',
      'p',
      'p (Holm)',
    ],
    map(_comparison_row, found),
  )


def _comparison_row(one: leaderboard.Comparison) -> list[str]:
  interval, chance, adjusted = '–', '–', '–'
  if one.significance is not None:
    low, high = one.significance.low, one.significance.high
    interval = f'{low:+.1f} … {high:+.1f}'
    chance = f'{one.significance.p_value:.3f}'
  if one.adjusted_p is not None:
    star = ' *' if one.adjusted_p < cells.SIGNIFICANT else ''
    adjusted = f'{one.adjusted_p:.3f}{star}'
  return [
    one.model,
    one.task,
    metric_name(one.metric),
    one.language,
    number(one.first),
    number(one.second),
    f'{one.difference:+.1f}',
    interval,
    chance,
    adjusted,
  ]


def _is_number(cell: str | cells.Cell) -> bool:
  return str(cell).lstrip('+-')[:1].isdigit()
