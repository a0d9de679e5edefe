"""Published scores have a source and are shown with their own tasks only."""

import importlib.resources
import re
import tomllib

from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation.reports import published, report_files, score_table
from xlflax.tasks import glue

_FILE = importlib.resources.files('xlflax.tasks') / 'published_scores.toml'


def test_every_number_has_a_source_and_a_task_that_there_is():
  known_names = {*xtreme_tasks.TASKS, *glue.TASKS, published.AVERAGE}
  for table in tomllib.loads(_FILE.read_text())['tables']:
    assert table['source'] and table['what']
    for scores in table['models'].values():
      assert scores.keys() <= known_names
      for score in scores.values():
        assert re.fullmatch(r'\d\d\.\d+( / \d\d\.\d+)?', score)


def test_averages_are_those_of_the_numbers():
  """XTREME's mean over tasks, of F1 and exact match where both are there."""
  tables = tomllib.loads(_FILE.read_text())['tables']
  averages = {
    model: scores
    for table in tables
    for model, scores in table['models'].items()
  }
  del averages['VECO, plugged out']  # prints 0.2 less than its scores give
  checked = 0
  for model, scores in averages.items():
    if published.AVERAGE not in scores or model == 'mBERT':  # lacks a number
      continue
    means = [
      sum(map(float, parts)) / len(parts)
      for task, score in scores.items()
      if task != published.AVERAGE
      for parts in [score.split(' / ')]
    ]
    mean = sum(means) / len(means)
    assert abs(mean - float(scores[published.AVERAGE])) < 0.11, model
    checked += 1
  assert checked == 3


def test_a_report_shows_those_of_its_tasks(tmp_path):
  scores = (score_table.Score('xnli', 'accuracy', 'en', 0.5),)
  report_files.write_report(tmp_path, [score_table.ScoreTable('m', scores)])
  text = (tmp_path / report_files.MARKDOWN).read_text()
  assert '| xnli | XLM-R large | 79.2 | XTREME' in text
  assert 'in table 2 of Luo et al. 2021' in text
  assert 'tatoeba' not in text and published.AVERAGE not in {
    row[0] for row in published.build_table(['xnli']).rows
  }
  assert not published.build_table(['reviews']).rows
  full_table = published.build_table(list(xtreme_tasks.TASKS))
  assert ('average', 'mBERT') in {
    row[:2] for row in map(tuple, full_table.rows)
  }
