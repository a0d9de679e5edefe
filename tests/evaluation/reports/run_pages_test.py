"""Tests of the report pages of runs."""

import dataclasses
import html
import json
import pathlib
import re

import numpy as np
import pytest
import rich.table

from tests.errors import assert_mentions, raises_error
from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.metrics import bootstrap, example_statistics
from xlflax.evaluation.reports import run_pages, run_scores
from xlflax.utils import errors


def _result(**metrics) -> eval_task.EvalResult:
  return eval_task.EvalResult(
    metrics={name.replace('_', '/'): value for name, value in metrics.items()},
    score_metrics=('accuracy',),
  )


_TEST = result_store.Group('retrieval', 'test', 'aaaa')
_VALID = result_store.Group('retrieval', 'validation', 'aaaa')


def _record(name, *, warnings=(), losses=None, restarts=(), **settings):
  return run_pages.RunRecord(
    name=name,
    settings=settings,
    losses={'loss': losses} if losses else {},
    tokens={},
    environments=(),
    speed={'tokens_per_second': 1234.5, 'run_seconds': 1800.0},
    restarts=restarts,
    steps=(100,),
    results=dict(warnings),
    directory=pathlib.Path(name),
  )


@pytest.fixture
def runs():
  untrained, last = _result(accuracy_de=0.1), _result(accuracy_de=0.75)
  first = {_TEST: {'untrained': untrained, 50: _result(), 100: last}}
  second = {_TEST: {100: _result(accuracy_de=0.5)}, _VALID: {100: last}}
  return [
    _record('mlm', warnings=first.items(), losses={10: 5.0, 100: 2.5}, seed=0),
    _record('tlm', warnings=second.items(), seed=1),
  ]


def test_restarts_show_their_failure_and_phases(tmp_path):
  phases = ('lost', 'agree', 'start', 'restore', 'compile', 'repeat')
  seconds_by_phase = dict(zip(phases, (21.5, 1, 2, 3, 4, 11.5), strict=True))
  seconds_by_phase |= {
    'step': 9,
    'generation': 2,
    'failure': 'Process 3 was killed',
  }
  run = _record('mlm', restarts=[seconds_by_phase])
  text = run_pages.write_comparison(tmp_path, [run]).read_text()
  table = text.split('Restarts and their cost')[1]
  for cell in ('2', 'Process 3 was killed', '21.5', '4.0', '11.5'):
    assert f'>{cell}</td>' in table, table[:800]


def test_comparison_page_of_two_runs(runs, tmp_path):
  page = run_pages.write_comparison(
    tmp_path, runs, command=['xlflax', 'report']
  )
  text = page.read_text()
  assert (
    '<h2>retrieval: accuracy (0 to 1, higher is better), test split, chance '
    'level unknown</h2>' in (text)
  )
  assert 'higher is better), validation split, chance' in text
  # The validation score is not in the table of test scores.
  test = text.split(', test split, chance')[1].split('<h2>')[0]
  assert [cell for cell in ('0.100', '0.750', '0.500') if cell in test] == [
    '0.100', '0.750', '0.500'
  ]  # fmt: skip
  assert 'mlm, untrained' in test and 'mlm, step 100' in test
  assert 'step 50' not in test
  plain = re.sub('<td [^>]*>', '<td>', text)
  assert '<td>seed</td><td>0</td><td>1</td>' in plain
  assert '<pre>xlflax report' in text
  assert text.count('<img') == 1
  lines = (tmp_path / 'report.csv').read_text().splitlines()
  assert lines[0] == 'run,task,split,settings,step,metric,value'
  assert 'tlm,retrieval,validation,aaaa,100,accuracy/de,0.75' in lines


@pytest.mark.parametrize(
  'settings, other_settings, is_comparable',
  [
    ({'seed': 0}, {'seed': 1}, True),
    ({'objectives.seed': 0}, {'objectives.seed': 1}, True),
    ({'vocabulary': 'a'}, {'vocabulary': 'b'}, False),
    ({'objectives.entries[0].weight': 1}, {}, False),
  ],
)
def test_losses_of_other_objectives_or_vocabularies_are_not_ranked(
  tmp_path, settings, other_settings, is_comparable
):
  records = [
    _record(name, losses={10: 5.0}, **values)
    for name, values in (('a', settings), ('b', other_settings))
  ]
  page = run_pages.write_comparison(tmp_path, records).read_text()
  assert ('lower is better' in page) == is_comparable
  assert ('cannot be compared' in page) != is_comparable


@pytest.mark.parametrize('num_runs', [1, 2, 3])
def test_the_explanation_depends_on_the_number_of_runs(tmp_path, num_runs):
  records = [_record(f'run{i}') for i in range(num_runs)]
  page = run_pages.write_comparison(tmp_path, records).read_text()
  assert ('checkpoint of each run' in page) == (num_runs > 1)
  assert ('checkpoints of the run' in page) == (num_runs == 1)
  assert 'paired bootstrap' not in page  # There are no differences.


@pytest.mark.parametrize('metric', ['perplexity', 'accuracy'])
@pytest.mark.parametrize('vocabulary', ['a', 'b', None])
def test_perplexities_of_different_vocabularies_have_a_note(metric, vocabulary):
  result = eval_task.EvalResult(
    metrics={f'{metric}/de': 5.0, f'{metric}/mean': 5.0}
  )
  records = [
    _record(name, warnings={_TEST: {100: result}}.items(), vocabulary=value)
    for name, value in (('x', vocabulary and 'a'), ('y', vocabulary))
  ]
  title = run_scores.build_table(_TEST, records, {}).title
  has_note = metric == 'perplexity' and vocabulary != 'a'
  assert ('cannot be compared' in title) == has_note


def test_languages_not_better_than_untrained_are_listed(tmp_path):
  results = {
    _TEST: {
      'untrained': _result(accuracy_de=0.5, accuracy_fr=0.5, accuracy_ru=0.5),
      100: _result(accuracy_de=0.4, accuracy_fr=0.5, accuracy_ru=0.6),
    }
  }
  page = run_pages.write_comparison(
    tmp_path, [_record('mlm', warnings=results.items())]
  ).read_text()
  summary = page.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  assert_mentions(summary, 'de (0.500 compared with 0.400)', 'fr (0.500)')
  assert 'ru' not in summary.replace('untrained', '').split()


def test_languages_not_better_than_a_baseline_are_listed(tmp_path):
  result = _result(accuracy_de=0.4, accuracy_fr=0.5)
  result.metrics.update(
    {'string_overlap/de': 0.6, 'string_overlap/fr': 0.2, 'chance/de': 0.1}
  )
  run = _record('mlm', warnings={_TEST: {100: result}}.items())
  page = run_pages.write_comparison(tmp_path, [run]).read_text()
  summary = page.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  assert_mentions(summary, 'worse', 'string_overlap', 'de')
  assert 'fr' not in summary.split()


def test_baselines_of_a_metric_that_is_not_the_main_one_are_compared(tmp_path):
  """The main metric of tagging is F1, but the majority has an accuracy."""
  result = eval_task.EvalResult(
    metrics={'f1/en': 0.0, 'accuracy/en': 0.25, 'majority/en': 0.25},
    score_metrics=('f1',),
  )
  run = _record('pos', warnings={_TEST: {100: result}})
  page = run_pages.write_comparison(tmp_path, [run]).read_text()
  summary = page.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  assert_mentions(summary, 'accuracy at step 100', 'equal', 'majority')
  explained = page.partition('<h2>Metrics</h2>')[2]
  assert_mentions(explained, 'majority')


def test_results_on_several_test_sets_are_distinguished(tmp_path):
  clean, more = (
    dataclasses.replace(_result(accuracy_de=score), test_data=directory)
    for score, directory in ((0.25, 'clean'), (0.75, 'more'))
  )
  for result in (clean, more):
    result.metrics['string_overlap/de'] = 0.9
  run = _record(
    'bag',
    warnings={
      _TEST: {100: clean},
      _TEST._replace(settings='bbbb'): {100: more},
    },
  )
  page = run_pages.write_comparison(tmp_path, [run]).read_text()
  summary = page.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  first, second = re.findall('<li>(.*?)</li>', summary, re.DOTALL)
  assert 'clean' in first and 'more' not in first
  assert 'more' in second and 'clean' not in second
  titles = re.findall('<h2>(retrieval.*?)</h2>', page)
  assert ['clean' in title for title in titles] == [True, False]
  assert ['more' in title for title in titles] == [False, True]


def test_results_on_several_splits_are_distinguished(tmp_path):
  result = _result(accuracy_de=0.25)
  result.metrics['string_overlap/de'] = 0.9
  run = _record('bag', warnings={_TEST: {100: result}, _VALID: {100: result}})
  page = run_pages.write_comparison(tmp_path, [run]).read_text()
  summary = page.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  first, second = re.findall('<li>(.*?)</li>', summary, re.DOTALL)
  assert 'test' in first and 'validation' in second


def test_read_run_of_a_training_directory(tmp_path):
  lines = [
    {
      'step': 10,
      'train': {
        'loss': 5.0,
        'mlm/loss': 3.0,
        'tlm/loss': 2.0,
        'mlm/loss/en': 1,
        'mlm/loss/de': 4.0,
        'mlm/accuracy/en': 0.5,
        'mlm/tokens': 2500,
        'mlm/tokens/de': 1500,
        'tlm/loss/en': 2.0,
      },
      'speed': {'tokens_per_second': 7.0},
      'environment': {'jax': '0.10.2', 'device': 'H200', 'devices': '8'},
    },
    {'step': 10, 'eval': {'retrieval/accuracy/mean': 0.5}},
    {'step': 20, 'train': {'loss': None, 'mlm/tokens': 500}},
    # A user-defined hook may add metrics to the group.
    {'step': 20, 'speed': {'read_seconds': 2.0}},
  ]
  text = '\n'.join(map(json.dumps, lines)) + '\n{"step": 3'
  (tmp_path / 'metrics.jsonl').write_text(text)
  run = run_pages.read_run(tmp_path, name='a')
  assert run.losses['loss'] == {10: 5.0}
  assert run.losses['mlm/loss/de'] == {10: 4.0}
  assert 'mlm/accuracy/en' not in run.losses
  assert run_pages._loss_panels([run]) == {
    'all objectives': {'a': [(10, 5.0)]},
    'objective mlm': {'a': [(10, 3.0)]},
    'objective tlm': {'a': [(10, 2.0)]},
  }
  assert run_pages._language_loss_panels([run]) == {
    'objective mlm': {'en': [(10, 1.0)], 'de': [(10, 4.0)]}
  }
  page = run_pages.write_comparison(tmp_path / 'out', [run])
  text = page.read_text()
  assert 'Training loss by language' in text
  table = text.split('Tokens read</h2>')[1].split('</table>')[0]
  cells = re.findall(r'<td[^>]*>([^<]*)</td>', table)
  assert cells == ['a, mlm', '3,000', '1,500']
  table = text.split('Environment</h2>')[1].split('</table>')[0]
  cells = re.findall(r'<td[^>]*>([^<]*)</td>', table)
  assert cells[:4] == ['a', '10', 'H200', '8'] and '0.10.2' in cells
  assert run.speed == {'tokens_per_second': 7.0, 'read_seconds': 2.0}


def test_directory_without_a_run_is_rejected(tmp_path):
  with raises_error(errors.RunDirectoryError, got=tmp_path):
    run_pages.read_run(tmp_path, name='a')


def test_convert_rich_table():
  table = rich.table.Table(title='t')
  table.add_column('a')
  table.add_column('b')
  table.add_row('1', '2')
  html_table = run_pages.convert_rich_table(table)
  assert (html_table.title, html_table.head, html_table.rows) == (
    't',
    ['a', 'b'],
    [['1', '2']],
  )


def test_two_runs_are_resampled_once_for_their_comparison(
  tmp_path, monkeypatch
):
  num_comparisons = 0
  score_difference = bootstrap.score_difference

  def count_comparison(*arguments, **options):
    nonlocal num_comparisons
    num_comparisons += 1
    return score_difference(*arguments, **options)

  monkeypatch.setattr(bootstrap, 'score_difference', count_comparison)
  records = []
  for name, hits in (('mlm', [1, 0, 0] * 20), ('tlm', [1, 1, 0] * 20)):
    run = dataclasses.replace(
      _record(name), directory=tmp_path / name, results={}
    )
    folder = run.directory / 'eval' / _TEST.folder / '100'
    folder.mkdir(parents=True)
    statistic = example_statistics.Statistics(np.array(hits, float))
    files = eval_task.statistics_files('de', {'accuracy': statistic})
    for file, content in files.items():
      (folder / file).write_text(content)
    result = _result(accuracy_de=float(np.mean(hits)))
    records.append(dataclasses.replace(run, results={_TEST: {100: result}}))
  page = run_pages.write_comparison(tmp_path / 'out', records).read_text()
  text = html.unescape(page)
  # The differences are in a column, or in a row if the table is transposed.
  explanation = text[: text.index('paired bootstrap')]
  assert '"tlm - mlm"' in explanation and 'last column' not in explanation
  assert '+0.333' in text and 'tlm is significantly better than mlm' in text
  assert num_comparisons == 1


def test_unknown_tokens_are_noted(tmp_path):
  records = []
  for name, rates in (('mlm', {'unknown_rate/ru': 0.4375}), ('tlm', {})):
    result = eval_task.EvalResult(
      metrics={'perplexity/ru': 3.0} | rates, score_metrics=('perplexity',)
    )
    records.append(
      dataclasses.replace(
        _record(name, vocabulary='same'), results={_TEST: {100: result}}
      )
    )
  text = run_pages.write_comparison(tmp_path / 'out', records).read_text()
  [note] = run_scores.describe_unknown_tokens(_TEST, records)
  assert note in html.unescape(text)
  assert (
    note
    not in run_pages.write_comparison(
      tmp_path / 'single', records[:1]
    ).read_text()
  )


def test_differences_of_shortened_settings_are_visible():
  """Differences are at the end of long values, in files, and in hidden rows."""
  long = '/mnt/experiments/multilingual/encoders/xlmr-base-seed'
  runs = [
    _record(
      f'run{i}',
      corpus=f'{long}{i}',
      same='a',
      **{f'z{n:02}': i * n for n in range(70)},
    )
    for i in (1, 2)
  ]
  rows = run_pages._differences_table(runs).rows
  assert rows[0][0] == 'corpus' and rows[0][1] != rows[0][2]
  assert len(rows) == 60 and rows[-1][0] == 'and 11 more'
  assert 'same' not in [row[0] for row in rows]
