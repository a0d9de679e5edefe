"""Tests of table cells, their annotations, and merged reports."""

import json

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax import cli
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.reports import (
  cells,
  joined,
  leaderboard,
  page,
  report_files,
  score_table,
  text,
)
from xlflax.utils import errors

_COST = score_table.Cost(
  parameters=2_000_000,
  training_seconds=1800,
  cpu_seconds=10,
  device_seconds=2.4,
  device='A',
)


def _table(model, share, *, task='xnli', folder='', cost=_COST, run=''):
  right = (np.arange(100) < 100 * share).astype(float)
  return score_table.ScoreTable(
    model,
    tuple(
      score_table.Score(
        task,
        metric,
        'de',
        share,
        (example_statistics.Statistics(right),),
        f'{folder}/a b.tsv' if folder else '',
      )
      for metric in ('f1', 'exact_match')
    ),
    cost=cost,
    run=run,
  )


def test_cell_as_text_and_html():
  cell = cells.Cell('5 < 6', '± 1', 'a/b.tsv', '"x"')
  assert str(cell) == '5 < 6 ± 1'
  table = text.Table('T', ['name', 'score'], [['a & b', cell]])
  rendered = page.render_page('T', '', [table], {}, [])
  assert (
    '<span title="&#34;x&#34;"><a href="a/b.tsv">5 &lt; 6</a> '
    '<small>± 1</small></span>'
  ) in rendered
  assert '<td class="text">a &amp; b</td>' in rendered


def test_links_are_relative_to_the_page(tmp_path):
  assert cells.resolve_link(str(tmp_path / 'a b/x.tsv'), tmp_path / 'page') == (
    '../a%20b/x.tsv'
  )
  assert cells.resolve_link('gs://b/x.tsv', tmp_path) == 'gs://b/x.tsv'
  assert cells.resolve_link('', tmp_path) == ''


def test_page_shows_interval_mark_link_and_cost(tmp_path):
  tables = [
    _table('a', 0.5, folder=str(tmp_path / 'preds')),
    _table('b', 0.9, cost=None),
  ]
  report_files.write_report(tmp_path / 'out', tables, samples=200)
  content = (tmp_path / 'out' / report_files.PAGE).read_text(encoding='utf-8')
  assert '<a href="../preds/a%20b.tsv">50.0</a> <small>± ' in content
  row = next(line for line in content.splitlines() if '90.0' in line)
  assert cells.BETTER in content.split('>90.0 <')[1].split('</td>')[0], row
  for cell in ('2.0', '0.50', '10', '2'):
    assert f'<td>{cell}</td>' in content
  assert '<td class="text">A</td>' in content
  turned = report_files.write_report(
    tmp_path / 'b', tables, baseline='b', samples=200
  )
  assert (
    '## Comparison with b'
    in (tmp_path / 'b' / report_files.MARKDOWN).read_text()
  )
  assert turned
  with raises_error(errors.ConfigError, got='c'):
    report_files.write_report(tmp_path / 'c', tables, baseline='c')


def test_reports_of_several_suites_are_merged(tmp_path, capsys):
  for name, tables in {
    'one': [_table('a', 0.5), _table('b', 0.6)],
    'two': [_table('a', 0.7, task='mlqa')],
  }.items():
    report_files.write_report(tmp_path / name / 'report', tables, samples=20)
  command = ['report', str(tmp_path / 'one'), str(tmp_path / 'two')]
  assert cli.main([*command, f'--output={tmp_path}/out', '--baseline=b']) == 0
  assert 'leaderboard.html' in capsys.readouterr().out
  record = json.loads((tmp_path / 'out' / report_files.JSON).read_text())
  assert [list(model['tasks']) for model in record['models']] == [
    ['xnli', 'mlqa'],
    ['xnli'],
  ]
  assert {comparison['baseline'] for comparison in record['comparisons']} == {
    'b'
  }
  assert record['tables'][0]['cost']['cpu_seconds'] == 20
  with pytest.raises(errors.ConfigError):
    joined.merge_reports([tmp_path / 'one', tmp_path / 'one'])
  with raises_error(errors.RunDirectoryError, mentions='report/scores.json'):
    joined.merge_reports([tmp_path])


def test_merging_rejects_different_runs_with_the_same_name(tmp_path):
  for run in ('1', '2'):
    table = _table('a', 0.5, task=run, run=run)
    report_files.write_report(tmp_path / run / 'report', [table], samples=20)
  with raises_error(errors.ConfigError, mentions=(1, 2)):
    joined.merge_reports([tmp_path / '1', tmp_path / '2'])


def test_costs_are_added():
  total_cost = _COST + score_table.Cost(parameters=2_000_000, cpu_seconds=5)
  assert (total_cost.cpu_seconds, total_cost.training_seconds) == (15, 1800)
  assert total_cost.device == 'A, cpu'


def test_a_comparison_shows_each_number_once():
  tables = [_table('a', 0.5), _table('b', 0.9)]
  comparisons = leaderboard.compare_models(tables, samples=200)
  summaries = [
    leaderboard.summarize_model(
      table, source='en', num_languages=leaderboard.count_languages(tables)
    )
    for table in tables
  ]
  table = text.build_tables(summaries, comparisons, {}, tables)[-1]
  assert 'a' in table.title.split()
  rows = [
    dict(zip(table.head, row, strict=True))
    for row in table.rows
    if row[1] == 'xnli'
  ]
  assert rows
  for row in rows:
    assert (row['model'], row['baseline'], row['score']) == (
      'b',
      '50.0',
      '90.0',
    )
  differences = [row['difference [95 % interval]'] for row in rows]
  assert all(cell.text == '+40.0' for cell in differences)
  assert any('…' in cell.note for cell in differences)
