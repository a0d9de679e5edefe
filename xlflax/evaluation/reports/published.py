"""Scores from publications, for comparison on report pages."""

import importlib.resources
import tomllib
from collections.abc import Collection

from xlflax.evaluation.reports import text

AVERAGE = 'average'


def build_table(tasks: Collection[str]) -> text.Table:
  """Returns a table of published scores with their sources.

  Each row is the score of a model on a task of the report.

  Args:
    tasks: Tasks in the report. Tasks without published scores are omitted. A
      published average is included if the report contains all tasks over which
      it was computed.
  """
  file = importlib.resources.files('xlflax.tasks') / 'published_scores.toml'
  publications = tomllib.loads(file.read_text(encoding='utf-8'))['tables']
  report_tasks = set(tasks)
  rows = [
    (task, model, score, publication['what'], publication['source'])
    for publication in publications
    for model, scores in publication['models'].items()
    for task, score in scores.items()
    if task in report_tasks
    or (task == AVERAGE and report_tasks >= scores.keys() - {task})
  ]
  order = [*tasks, AVERAGE]
  rows.sort(key=lambda row: order.index(row[0]))
  head = ('task', 'model', 'score', 'setting', 'source')
  return text.Table('Published scores', head, rows)
