"""A report's tables, as CSV, Markdown and HTML."""

import csv
import dataclasses
import html
import io
from collections.abc import Iterable, Iterator, Sequence

from xlflax.evaluation import families
from xlflax.evaluation.reports import cells, leaderboard, score_table


class Table:
  """A titled grid; the first column is text, the others numbers."""

  def __init__(
    self,
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str | cells.Cell]],
  ):
    self.title = title
    self.head = list(head)
    self.rows = [list(row) for row in rows]

  def markdown(self) -> str:
    """A heading and a table of GitHub's Markdown."""
    marks = ['---'] + ['---:'] * (len(self.head) - 1)
    lines: list[Sequence[str | cells.Cell]] = [self.head, marks, *self.rows]
    grid = '\n'.join(
      '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
      for line in lines
    )
    return f'## {self.title}\n\n{grid}\n'

  @property
  def holds_numbers(self) -> bool:
    """Whether every column but the first has a number."""
    return all(
      any(map(_is_number, column))
      for column in [*zip(*self.rows, strict=True)][1:]
    )

  def turned(self) -> 'Table':
    """The table with its columns as rows."""
    first, *others = zip(self.head, *self.rows, strict=True)
    return Table(self.title, list(map(str, first)), others)

  def html(self) -> str:
    """A heading and a table that scrolls where it is too wide."""
    words = [
      not any(map(_is_number, column))
      for column in zip(*self.rows, strict=True)
    ]
    head = _cells('th', self.head, words)
    body = '\n'.join(_cells('td', row, words) for row in self.rows)
    return (
      f'<h2>{html.escape(self.title)}</h2>\n<div class="wide"><table>'
      f'<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )


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
  """A line `model,task,metric,language,score` (points) for each number."""
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(('model', 'task', 'metric', 'language', 'score'))
  writer.writerows(
    (
      table.model,
      one.task,
      one.metric,
      one.language,
      round(score_table.points(one.metric, one.score), 6),
    )
    for table in scores
    for one in table.scores
  )
  return text.getvalue()


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
  return families.metric(metric).title


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
          for task in (leaderboard.ALL, *tasks)
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


def _cells(
  tag: str, row: Sequence[str | cells.Cell], words: Sequence[bool]
) -> str:
  """A line of the table; columns of words have the class `text`."""

  def parts() -> Iterator[str]:
    for one, is_text in zip(row, words or [True] * len(row), strict=True):
      inside = one.html() if isinstance(one, cells.Cell) else html.escape(one)
      kind = ' class="text"' if is_text else ''
      key = ' tabindex="0"' if tag == 'th' else ''
      yield f'<{tag}{kind}{key}>{inside}</{tag}>'

  return '<tr>' + ''.join(parts()) + '</tr>'
