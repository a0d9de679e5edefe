"""Published scores of published models, for the page beside one's own."""

import importlib.resources
import tomllib
from collections.abc import Collection

from xlflax.evaluation.reports import text

AVERAGE = 'average'


def table(tasks: Collection[str]) -> text.Table:
  """A row for each model and task of a report; each has its source.

  Args:
    tasks: of the report; those that no source has are left out. An average is
      shown with the tasks that it is of.
  """
  file = importlib.resources.files('xlflax.tasks') / 'published_scores.toml'
  tables = tomllib.loads(file.read_text(encoding='utf-8'))['tables']
  known = set(tasks)
  rows = [
    (task, model, score, one['what'], one['source'])
    for one in tables
    for model, scores in one['models'].items()
    for task, score in scores.items()
    if task in known or (task == AVERAGE and known >= scores.keys() - {task})
  ]
  order = [*tasks, AVERAGE]
  rows.sort(key=lambda row: order.index(row[0]))
  head = ('task', 'model', 'score', 'of what', 'source')
  return text.Table('Published scores', head, rows)
