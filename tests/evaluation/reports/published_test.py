"""Tests of published scores in reports."""

import importlib.resources
import re
import tomllib

from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation.reports import published, report_files, score_table
from xlflax.tasks import glue

_FILE = importlib.resources.files('xlflax.tasks') / 'published_scores.toml'


def test_all_scores_have_a_source_and_an_existing_task():
  known_names = {*xtreme_tasks.TASKS, *glue.TASKS, published.AVERAGE}
  for table in tomllib.loads(_FILE.read_text())['tables']:
    assert table['source'] and table['what']
    for scores in table['models'].values():
      assert scores.keys() <= known_names
      for score in scores.values():
        assert re.fullmatch(r'\d\d\.\d+( / \d\d\.\d+)?', score)


def test_averages_equal_the_means_of_the_scores():
  """XTREME averages over tasks, and over F1 and exact match if both exist."""
  tables = tomllib.loads(_FILE.read_text())['tables']
  averages = {
    model: scores
    for table in tables
    for model, scores in table['models'].items()
  }
  # The published average is 0.2 below the mean of its scores.
  del averages['VECO, plugged out']
  checked = 0
  for model, scores in averages.items():
    # One score is missing.
    if published.AVERAGE not in scores or model == 'mBERT':
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


def test_report_shows_only_published_scores_of_its_tasks(tmp_path):
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
