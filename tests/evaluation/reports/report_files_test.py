import csv
import dataclasses
import json
import math
import re

import matplotlib.image
import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.evaluation import plots
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.reports import (
  leaderboard,
  report_files,
  score_table,
  text,
)
from xlflax.utils import errors


def _score(task, metric, language, value, size=None):
  examples = None
  if size:
    right = (np.arange(size) < value * size).astype(float)
    examples = (example_statistics.Statistics(right),) * 2  # seeds
  return score_table.Score(task, metric, language, value, examples)


def _table(model, shift=0.0):
  return score_table.ScoreTable(
    model,
    (
      _score('xnli', 'accuracy', 'en', 0.75 + shift, 100),
      _score('xnli', 'accuracy', 'de', 0.5 + shift, 100),
      _score('xnli', 'accuracy', 'sw', 0.25 + shift, 100),
      _score('mlqa', 'f1', 'en', 0.7),
      _score('mlqa', 'exact_match', 'en', 0.5),
      _score('mlqa', 'exact_match', 'zh', 0.1),
      _score('mlqa', 'f1', 'zh', 0.3),
      _score('translation', 'bleu', 'en-ja', 20.0),
      _score('word_alignment', 'aer', 'en-de', 0.3 + shift),
      _score('broken', 'accuracy', 'de', math.nan),
    ),
    notes=('a note & more',),
  )


def test_summary_computed_by_hand():
  summary = leaderboard.summarize_model(_table('m'))
  assert list(summary.tasks) == [
    'xnli',
    'mlqa',
    'translation',
    'word_alignment',
  ]
  assert summary.tasks['xnli'].score == pytest.approx(50)
  assert summary.tasks['xnli'].gap == pytest.approx(37.5)
  mlqa = summary.tasks['mlqa']
  assert mlqa.languages == pytest.approx({'en': 60, 'zh': 20})
  assert (mlqa.score, mlqa.gap) == pytest.approx((40, 40))
  assert mlqa.metric_means == pytest.approx({'exact_match': 30, 'f1': 50})
  assert summary.average == pytest.approx((50 + 40 + 20) / 3)
  assert summary.gap == pytest.approx((37.5 + 40) / 2)
  assert summary.xtreme == {}
  german = leaderboard.summarize_model(_table('m'), source='de')
  assert german.tasks['xnli'].gap == pytest.approx(0)


def test_compare_models():
  comparisons = leaderboard.compare_models(
    [_table('a'), _table('b', 0.2)], samples=200
  )
  by_key = {
    (comparison.task, comparison.metric, comparison.language): comparison
    for comparison in comparisons
  }
  # Non-finite scores are omitted, and xnli also has a mean and a gap.
  assert len(comparisons) == 9 + 2
  xnli = by_key['xnli', 'accuracy', 'sw']
  assert xnli.difference == pytest.approx(20) and xnli.better
  assert xnli.significance.p_value < 0.05
  assert xnli.adjusted_p >= xnli.significance.p_value
  tested = [
    comparison
    for comparison in comparisons
    if comparison.significance is not None
  ]
  assert len(tested) == 5  # All tasks and metrics are one family of tests.
  most_significant = min(
    tested, key=lambda comparison: comparison.significance.p_value
  )
  assert most_significant.adjusted_p == pytest.approx(
    5 * most_significant.significance.p_value
  )
  mean = by_key['xnli', 'accuracy', 'mean']
  assert (mean.first, mean.second) == pytest.approx((50, 70)) and mean.better
  gap = by_key['xnli', 'accuracy', 'gap']
  assert (gap.first, gap.second) == pytest.approx((37.5, 37.5))
  assert xnli.significance.runs == (2, 2)
  worse = by_key['word_alignment', 'aer', 'en-de']
  assert worse.difference == pytest.approx(20) and worse.better is False
  assert worse.significance is None
  assert by_key['mlqa', 'f1', 'zh'].better is None
  with raises_error(errors.CorpusError, mentions=(100, 10)):
    leaderboard.compare_models(
      [
        _table('a'),
        score_table.ScoreTable(
          'b', (_score('xnli', 'accuracy', 'en', 0.5, 10),)
        ),
      ]
    )


def test_all_files_are_written(tmp_path):
  tables = [_table('a|b <i>'), _table('c', 0.1)]
  paths = report_files.write_report(tmp_path, tables, samples=50)
  assert sorted(tmp_path.iterdir()) == sorted(paths)
  for path in paths:
    if path.suffix == '.png':
      assert matplotlib.image.imread(path).std() > 0.05
  record = json.loads(
    (tmp_path / report_files.JSON).read_text(encoding='utf-8')
  )
  assert record['models'][0]['tasks']['xnli']['score'] == pytest.approx(50)
  rows = list(
    csv.DictReader((tmp_path / report_files.CSV).open(encoding='utf-8'))
  )
  assert len(rows) == 20
  assert rows[0] == {
    'model': 'a|b <i>',
    'task': 'xnli',
    'metric': 'accuracy',
    'language': 'en',
    'score': '75.0',
  }
  markdown = (tmp_path / report_files.MARKDOWN).read_text(encoding='utf-8')
  row = (
    r'\| a\\\|b <i> \| 50.0 ± \d+\.\d \| 37.5 ± \d+\.\d '
    r'\|( (75|50|25).0 ± \d+\.\d \|){3}\n'
  )
  assert re.search(row, markdown)
  assert '## mlqa (mean of F1 and exact match)' in markdown
  widths = [
    line.replace('\\|', '').count('|')
    for line in markdown.split('## xnli')[1].splitlines()[2:5]
  ]
  assert len(set(widths)) == 1


def test_page_needs_no_network(tmp_path):
  report_files.write_report(tmp_path, [_table('a <i>')])
  page = (tmp_path / report_files.PAGE).read_text(encoding='utf-8')
  assert 'a &lt;i&gt;' in page and 'a <i>' not in page
  assert 'a note &amp; more' in page
  sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
  assert len(sources) == 6
  assert all(source.startswith('data:image/png;base64,') for source in sources)


def test_tables_round_trip_through_files(tmp_path):
  report_files.write_report(tmp_path, [_table('a')])
  (score_table,) = report_files.read_report(tmp_path)
  assert score_table.to_json() == _table('a').to_json()
  assert math.isnan(score_table.scores[-1].score)
  old = score_table.examples('xnli', 'accuracy', 'de')
  assert [run.value for run in old] == pytest.approx([0.5, 0.5])


def test_missing_tasks_are_marked(tmp_path):
  small = score_table.ScoreTable(
    'small', (_score('xnli', 'accuracy', 'de', 0.5),)
  )
  report_files.write_report(tmp_path, [_table('a'), small], samples=10)
  markdown = (tmp_path / report_files.MARKDOWN).read_text(encoding='utf-8')
  assert (
    '| small | – (1 of 4 tasks; test sets of this task: 1 of 3) '
    '| 50.0 (1 of 3 languages) | – | – | – |'
  ) in markdown
  assert (
    '| a | – (3 of 4 tasks; test sets of these tasks: 6 of 6) | 50.0 ±'
  ) in markdown


@pytest.mark.parametrize(
  'tasks, expected, missing',
  [
    (['xnli'], 1, '(1 of 1 task; test sets of this task: 1 of 2)'),
    ([], 9, '(0 of 9 tasks)'),
  ],
)
def test_missing_test_sets_are_described(tasks, expected, missing):
  scores = tuple(_score(task, 'accuracy', 'de', 0.5) for task in tasks)
  num_languages = {'xnli': 2} | {f't{i}': 2 for i in range(expected - 1)}
  table = score_table.ScoreTable('a', scores, expected=num_languages)
  summary = leaderboard.summarize_model(table, num_languages=num_languages)
  assert summary.missing == missing


def test_missing_tasks_of_a_model_are_counted():
  """There is no mean over some of the tasks or over some languages of a task."""
  right = (example_statistics.Statistics(np.arange(20) < 10),)
  scores = [
    score_table.Score(task, 'accuracy', f'l{i}', 0.5, right)
    for task, number in (('udpos', 2), ('tatoeba', 5))
    for i in range(number)
  ]
  expected = {'udpos': 33, 'tatoeba': 36} | {f't{i}': 9 for i in range(7)}
  table = score_table.ScoreTable('a', tuple(scores), expected=expected)
  num_languages_by_task = leaderboard.count_languages([table])
  summary = leaderboard.summarize_model(
    table, num_languages=num_languages_by_task
  )
  assert (summary.average, summary.gap, summary.xtreme) == (None, None, {})
  assert summary.missing == '(2 of 9 tasks; test sets of these tasks: 7 of 69)'
  assert summary.tasks['udpos'].missing == '(2 of 33 languages)'
  assert (
    leaderboard.count_languages(
      [score_table.ScoreTable.from_json(table.to_json())]
    )
    == num_languages_by_task
  )
  other = dataclasses.replace(table, model='b')
  compared = leaderboard.compare_models([table, other], samples=20)
  assert {comparison.task for comparison in compared} == {'udpos', 'tatoeba'}


def test_intervals_of_means_and_gaps():
  """Languages whose examples are translations are resampled together."""
  right = np.random.default_rng(0).random(200) < 0.6
  first_statistics = (example_statistics.Statistics(right.astype(float)),)
  table = score_table.ScoreTable(
    'a',
    tuple(
      score_table.Score(
        'xnli', 'accuracy', language, right.mean(), first_statistics
      )
      for language in ('en', 'de', 'sw')
    ),
  )
  intervals = leaderboard.score_intervals(table)
  expected = 100 * 1.96 * right.std() / np.sqrt(200)
  for key in (('xnli', 'de'), ('xnli', 'mean'), ('all tasks', 'mean')):
    assert intervals[key].half_width == pytest.approx(expected, rel=0.1)
  assert (
    intervals['xnli', 'gap'].half_width
    == intervals['all tasks', 'gap'].half_width
    == 0
  )


def test_write_curves(tmp_path):
  steps = {step: _table('x', step / 1000) for step in (20, 10, 30)}
  paths = report_files.write_curves(tmp_path, {'a': steps})
  assert [path.name for path in paths] == ['xnli.curves.png', 'mlqa.curves.png']
  curves = report_files._curves('xnli', steps, 'en')
  assert curves['source'] == [
    (10, pytest.approx(76)),
    (20, pytest.approx(77)),
    (30, pytest.approx(78)),
  ]
  assert curves['gap'][0] == (10, pytest.approx(37.5))
  assert curves['transfer'][0] == (10, pytest.approx(38.5))
  assert not report_files.write_curves(tmp_path, {'a': {10: steps[10]}})


def test_labels_are_not_cut_off():
  names = [f'a rather long name {i}' for i in range(30)]
  canvas = plots.bar_chart(
    'title',
    'score',
    {
      model: {name: 50.0 for name in names}
      for model in ('first', 'second model with a long name')
    },
  )
  canvas.draw_without_rendering()
  canvas_extent = canvas.get_window_extent()
  labels = [
    label
    for axes in canvas.axes
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels())
  ]
  assert len(labels) > 30
  for label in (*labels, *canvas.legends[0].get_texts()):
    box = label.get_window_extent()
    assert box.x0 >= canvas_extent.x0 and box.x1 <= canvas_extent.x1
    assert box.y0 >= canvas_extent.y0 and box.y1 <= canvas_extent.y1


def test_duplicate_model_names_and_scores_are_rejected(tmp_path):
  for tables in ([], [_table('a'), _table('a')]):
    with raises_error(errors.ConfigError, mentions='ScoreTable'):
      report_files.write_report(tmp_path, tables)
  with raises_error(errors.ConfigError, got='xnli accuracy en', mentions='a'):
    score_table.ScoreTable('a', 2 * (_score('xnli', 'accuracy', 'en', 1),))


def test_score_units_and_labels():
  assert score_table.to_points('accuracy', 0.5) == 50
  assert score_table.to_points('bleu', 50) == 50
  assert score_table.is_lower_better('perplexity')
  assert not score_table.is_averaged('aer')
  assert report_files._score_label(['perplexity']) == 'perplexity'
  assert report_files._score_label(['las']) == 'LAS (points)'
  assert text.metric_name('exact_match') == 'exact match'


@pytest.mark.parametrize('kind', ['bars', 'curves'])
def test_long_names_of_models_are_not_cut_off(tmp_path, kind):
  names = [
    f'the quite long name of model {i} after pretraining' for i in range(5)
  ]
  if kind == 'bars':
    canvas = plots.bar_chart('t', 'v', {name: {'en': 50.0} for name in names})
  else:
    canvas = plots.transfer_curves(
      't',
      'v',
      'en',
      {
        name: {
          key: [(0, 1.0), (1, 2.0)] for key in ('transfer', 'source', 'gap')
        }
        for name in names
      },
    )
  plots.save_figure(canvas, tmp_path / 'x.png', dpi=100)
  image = matplotlib.image.imread(tmp_path / 'x.png')[..., :3]
  assert image.min() < 0.5
  for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
    assert edge.min() > 0.99
