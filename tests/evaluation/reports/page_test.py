"""Tests of the HTML of report pages."""

import shlex

import pytest

from xlflax.evaluation import eval_task, task_families
from xlflax.evaluation.reports import page, text

_WORDS = (
  'xlflax', 'finetune', '--gin.FORMAT=\'tags\'', '--grid', 'SEED=0,1',
  "--eval_gin=FILES={'fr': 'a b'}", '--note=it\'s "$5"',
)  # fmt: skip


def test_format_command_round_trips_through_the_shell():
  line = page.format_command(_WORDS)
  assert shlex.split(line.replace('\\\n', '')) == list(_WORDS)
  assert line.splitlines()[:3] == [
    'xlflax finetune \\',
    '    --gin.FORMAT="\'tags\'" \\',
    '    --grid SEED=0,1 \\',
  ]


@pytest.mark.parametrize(('columns', 'turned'), [(8, True), (3, False)])
def test_wide_tables_of_numbers_are_transposed(columns, turned):
  table = text.Table(
    'T',
    ['', *(f'c{i}' for i in range(columns))],
    [['first', *map(str, range(columns))], ['second', *['–'] * columns]],
  )
  html = page.render_page(
    'T', '', [table], {}, ['a note'], command=['a', '--b']
  )
  head = html.split('<thead>')[1].split('</thead>')[0]
  assert ('>second</th>' in head) == turned
  assert ('>c0</th>' in head) != turned
  assert '<li>a note</li>' in html and '<pre>a \\\n    --b</pre>' in html


def test_tables_of_words_are_not_transposed():
  table = text.Table('T', ['', *'abcdefgh'], [['x', *'abcdefgh']])
  html = page.render_page('T', '', [table], {}, [])
  assert '>a</th>' in html and '<pre>' not in html


def test_images_are_inverted_in_dark_mode():
  html = page.render_page('T', '', [], {}, [])
  dark = html.partition('(prefers-color-scheme: dark)')[2]
  assert 'img { filter: invert(' in dark


def test_cells_wrap_before_the_interval():
  rows = [['de', '0.5 ± 0.1', '50 [40, 60]', '-']]
  table = text.Table('T', ['', 'a', 'b', 'c'], rows)
  html = page.render_page('T', '', [table], {}, [], summary=['a result'])
  for score, interval in (('0.5', '± 0.1'), ('50', '[40, 60]')):
    assert f'{score} <span class="interval">{interval}</span></td>' in html
  assert html.index('<li>a result</li>') < html.index('<table>')


@pytest.mark.parametrize('num_rows', [60, 61])
def test_only_long_tables_have_a_scroll_bar_and_a_hint(num_rows):
  table = text.Table('T', ['', 'a'], [[str(i), '1'] for i in range(num_rows)])
  html = page.render_page('T', '', [table], {}, [])
  assert (f'see all {num_rows} rows' in html) == (num_rows > 60)
  assert ('class="wide long"' in html) == (num_rows > 60)


def test_metrics_are_described():
  table = text.Table(
    'T',
    ['', 'accuracy_unshared, step 10', 'other, step 10'],
    [['de', '0.5', '0.4']],
  )
  html = page.render_page(
    'T', '', [table], {}, [], metrics=['accuracy_unshared', 'unknown']
  )
  description = task_families.find_metric('accuracy_unshared').description
  assert description
  assert html.count(description) == 2  # the tooltip of the column and the list
  assert f'title="{description}" tabindex="0">accuracy_unshared' in html
  assert '<dt>accuracy_unshared (' in html and '<dt>unknown' not in html
  assert '<dl>' not in page.render_page('T', '', [table], {}, [])


def test_all_metrics_of_shipped_tasks_are_described():
  task_families.task_names()
  shipped_tasks = [
    task
    for task in eval_task.known_tasks().values()
    if task.__module__.startswith('xlflax.')
  ]
  names = {metric.name for task in shipped_tasks for metric in task.METRICS}
  assert 'accuracy_unshared' in names
  for name in names:
    assert task_families.find_metric(name).description.endswith('.'), name
