"""Tests that means of suites are marked with their number of languages."""

import csv
import io
import json
import types

import pytest
import rich.console

from xlflax.data.supervised.sources import example_source, xtreme
from xlflax.evaluation import eval_task
from xlflax.evaluation.reports import report_files
from xlflax.evaluation.tasks import classification_task, mining_task
from xlflax.suites import (
  paper_table,
  suite_export,
  suite_report,
  suite_result_store,
  table_export,
)

_LANGUAGES = ('en', 'de', 'fr', 'ru', 'zh')


def _result(task='nli', label='a', languages=_LANGUAGES, **scores):
  values = {f'accuracy/{part}': (score,) for part, score in scores.items()}
  mean = sum(scores.values()) / len(scores)
  return suite_report.TaskResult(
    task=task,
    family='f',
    label=label,
    step=10,
    main=('accuracy',),
    values=values | {'accuracy/mean': (mean,)},
    languages={'accuracy': languages},
  )


def _report(*results, **fields):
  return suite_report.SuiteReport(
    suite='s',
    source_language='en',
    results=results,
    tasks=tuple(dict.fromkeys(result.task for result in results)),
    **fields,
  )


def _print(print_tables, *arguments) -> str:
  stream = io.StringIO()
  print_tables(*arguments, rich.console.Console(file=stream, width=100))
  return stream.getvalue()


def test_incomplete_means_are_marked_in_all_formats(tmp_path):
  report = _report(
    _result(en=0.9, de=0.6, fr=0.3),
    _result('complete', languages=('en', 'de'), en=0.9, de=0.6),
  )
  printed = _print(suite_export.print_tables, report)
  assert '60.0 (3 of 5 languages)' in printed
  assert '75.0 (' not in printed

  suite_export.write(report, tmp_path)
  (model,) = json.loads((tmp_path / 'suite.json').read_text())['models']
  task = model['tasks']['nli']
  assert (task['score'], task['num_languages'], task['num_expected']) == (
    pytest.approx(60),
    3,
    5,
  )
  mean = task['scores']['accuracy/mean']
  assert (mean['num_languages'], mean['num_expected']) == (3, 5)
  assert 'num_languages' not in task['scores']['accuracy/de']

  with (tmp_path / 'suite.csv').open() as file:
    rows = {(row['task'], row['part']): row for row in csv.DictReader(file)}
  counts = {
    key: (row['num_languages'], row['num_expected'])
    for key, row in rows.items()
  }
  assert counts['nli', 'mean'] == ('3', '5')
  assert counts['complete', 'mean'] == ('2', '2')
  assert counts['nli', 'de'] == ('', '')

  folder = tmp_path / 'report'
  markdown = (folder / report_files.MARKDOWN).read_text()
  assert '60.0 (3 of 5 languages)' in markdown
  # The gap is also a difference from a mean over a part of the languages.
  assert '45.0 (3 of 5 languages)' in markdown
  page = (folder / report_files.PAGE).read_text()
  assert '60.0 <small>(3 of 5 languages)' in page


def test_head_and_tail_means_are_marked():
  report = _report(
    _result(languages=(), en=0.9, de=0.6, fr=0.3),
    _result(label='b', languages=(), en=0.9, de=0.6, fr=0.3, ru=0.2),
    head_languages=('en', 'de'),
  )
  printed = _print(suite_export.print_tables, report)
  assert '30.0 (1 of 2)' in printed  # tail: fr, without ru
  assert '60.0 (3 of 4)' in printed
  assert '75.0 (' not in printed
  first, second = report.to_json()['models']
  counts = first['head_tail_languages']['nli']
  assert counts['tail'] == {'num_languages': 1, 'num_expected': 2}
  assert counts['head'] == {'num_languages': 2, 'num_expected': 2}
  assert second['head_tail_languages']['nli']['all']['num_languages'] == 4


def test_incomplete_means_are_omitted_from_paper_tables(tmp_path):
  published = tmp_path / 'table.csv'
  published.write_text(
    'row,section,name,run,setting,reference,x\nr,,R,a,s,,70\n'
  )
  table = paper_table.PaperTable(
    source='table 1',
    published=str(published),
    scores={'s': {'x': ('nli', 'accuracy/mean')}},
  )
  complete = _report(_result(languages=('en', 'de'), en=0.9, de=0.6))
  key = ('a', 'nli', 'accuracy/mean')
  assert table_export.measured_points(table, complete) == {
    key: pytest.approx(75)
  }
  incomplete = _report(_result(en=0.9, de=0.6))
  assert not table_export.measured_points(table, incomplete)
  (line,) = table_export.describe_missing_scores(table, incomplete)
  assert '2 of 5' in line and 'fr, ru, zh' in line


def test_languages_of_a_result_are_stored(tmp_path):
  result = _result(en=0.9)
  suite_result_store.write(result, tmp_path)
  record = json.loads((tmp_path / 'results/a@10/nli.json').read_text())
  assert record['languages'] == {'accuracy': list(_LANGUAGES)}


def _test(name, parts, missing=()):
  source = example_source.FileDataset(
    format='tsv', files=dict.fromkeys(parts, 'none'), missing=missing
  )
  return classification_task.Classification(name=name, source=source)


def _result_of(parts, metric):
  metrics = {f'{metric}/{part}': 0.5 for part in parts}
  return eval_task.EvalResult(metrics=metrics | {f'{metric}/mean': 0.5})


def test_each_metric_has_the_languages_of_its_evaluation_task(tmp_path):
  """Failed languages are expected. Languages of another task are not."""
  first = _test('a', ('en', 'de'), missing=('fr',))
  second = _test('b', ('ru', 'zh'))
  report = types.SimpleNamespace(
    tasks=(first, second),
    results={
      'a': {10: _result_of(['en', 'de'], 'accuracy')},
      'b': {10: _result_of(['ru'], 'macro_f1')},
    },
    folders={'a': tmp_path, 'b': tmp_path},
    failures=(),
  )
  result = suite_report.TaskResult(task='t', family='f', label='a', step=10)
  result = result.with_report(report, 10)
  assert result.coverage('accuracy') == (2, 3)
  assert result.coverage('macro_f1') == (1, 2)
  assert result.coverage('other') == (0, 0)


def test_expected_languages_of_english_pairs(tmp_path):
  task = mining_task.BitextMining(
    name='bucc',
    source=example_source.BitextMiningFiles(
      files={'de-en': ('a', 'b')}, missing=('fr-en',)
    ),
  )
  report = types.SimpleNamespace(
    tasks=(task,),
    results={'bucc': {10: _result_of(['de'], 'f1')}},
    folders={'bucc': tmp_path},
    failures=(),
  )
  result = suite_report.TaskResult(task='t', family='f', label='a', step=10)
  result = result.with_report(report, 10)
  assert result.languages == {'f1': ('de', 'fr')}
  assert result.coverage('f1') == (1, 2)


@pytest.mark.parametrize(
  ('task', 'present', 'num_missing'),
  [('xnli', ('en', 'de', 'fr'), 12), ('bucc2018', ('de',), 3)],
)
def test_sources_record_missing_languages(tmp_path, task, present, num_missing):
  definition = xtreme.find_xtreme_task(task)
  for language in present:
    for pattern in definition.files[xtreme.TEST]:
      path = tmp_path / pattern.format(language)
      path.parent.mkdir(exist_ok=True)
      path.write_text('')
  source = xtreme.xtreme_examples(str(tmp_path), task)
  assert len(source.missing_languages()) == num_missing
  assert not set(source.missing_languages()) & set(source.languages())
