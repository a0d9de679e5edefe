import csv
import dataclasses
import json
import logging
import pathlib
import re
import shutil
import threading
from typing import Any

import jax
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import evaluate as evaluate_lib
from xlflax.data.corpus import corpus_directory
from xlflax.data.seqio_tasks import corpus_tasks
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, task_sources, text_sources
from xlflax.evaluation.metrics import metric
from xlflax.evaluation.tasks import (
  classification_task,
  head_task,
  perplexity,
  retrieval_task,
  tagging_task,
)
from xlflax.training.checkpointing import (
  config_serialization,
  run_directory,
  saved_run,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_CALLS = []


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Total(eval_task.EvalTask):
  """Scores the sum of all parameters and records the call in _CALLS."""

  METRICS = (metric.Metric('sum', metric.Better.HIGHER),)

  name: str = 'total'
  offset: float = 0.0
  error: str = ''
  notes: tuple[str, ...] = ()

  @property
  def primary_metric(self):
    return 'sum'

  def evaluate(self, eval_model):
    _CALLS.append(self.name)
    if self.error:
      raise errors.CorpusError(self.error)
    total = sum(
      float(leaf.sum()) for leaf in jax.tree.leaves(eval_model.params)
    )
    return eval_task.EvalResult(
      metrics={'sum/mean': total + self.offset}, notes=self.notes
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Text(_Total):
  """Evaluation task with a source of text, which it does not read."""

  name: str = 'text'
  source: text_sources.TextSource | text_sources.PairSource | Any


@pytest.fixture(autouse=True)
def calls():
  _CALLS.clear()
  return _CALLS


@pytest.fixture
def run(make_run, tmp_path):
  return make_run(tmp_path / 'run', [10, 20, 30])


def _evaluate(model_dir, *tasks, **settings):
  return evaluate_lib.evaluate(
    model_dir=str(model_dir),
    tasks=tasks,
    batch_size=8,
    partitioner=partitioning.Partitioner(devices=(jax.devices()[0],)),
    **settings,
  )


@pytest.mark.slow
def test_all_checkpoints_and_the_untrained_model_are_evaluated(run):
  report = _evaluate(run, _Total(), steps='all', untrained=True)
  assert list(report.results['total']) == ['untrained', 10, 20, 30]
  sums = [
    result.metrics['sum/mean'] for result in report.results['total'].values()
  ]
  assert sums[1] * 1.2 / 1.1 == pytest.approx(sums[2], rel=1e-4)
  assert len(set(sums)) == 4
  names = {path.name for path in run.glob('eval/total/all-*/*')}
  assert names == {'untrained.json', '10.json', '20.json', '30.json'}
  assert report.computed == 4
  assert report.failures == ()


@pytest.mark.parametrize('steps, expected', [('last', [30]), ([10], [10])])
def test_selected_checkpoints_are_evaluated(run, steps, expected):
  report = _evaluate(run, _Total(), steps=steps)
  assert list(report.results['total']) == expected


def test_second_call_evaluates_only_missing_checkpoints(run, calls):
  first = _evaluate(run, _Total(), steps=[10, 20])
  again = _evaluate(run, _Total(), steps='all')
  assert len(calls) == 3
  assert again.computed == 1
  assert list(again.results['total']) == [10, 20, 30]
  assert again.results['total'][10] == first.results['total'][10]


@pytest.mark.parametrize(
  'settings', [dict(task=dict(offset=1.0)), dict(seed=1)]
)
def test_other_settings_are_evaluated_again(run, settings):
  _evaluate(run, _Total())
  task = _Total(**settings.pop('task', {}))
  assert _evaluate(run, task, **settings).computed == 1


class _Words:
  """Source without a fingerprint."""

  def load(self):
    return ['a']


def test_results_on_unidentified_text_are_not_reused(run, caplog):
  caplog.set_level(logging.INFO)
  task = _Text(source=_Words())
  assert _evaluate(run, task).computed == 1
  assert not [r for r in caplog.records if 'fingerprint' in r.getMessage()]
  assert _evaluate(run, task).computed == 1
  (record,) = [r for r in caplog.records if 'fingerprint' in r.getMessage()]
  assert_mentions(record.getMessage(), '_Text.source (_Words)', 'step 30')


def test_another_checkpoint_of_the_same_step_is_evaluated_again(run, make_run):
  _evaluate(run, _Total())
  shutil.rmtree(run / 'checkpoints')
  make_run(run, [30])
  assert _evaluate(run, _Total()).computed == 1


def test_truncated_result_is_evaluated_again(run):
  _evaluate(run, _Total())
  (file,) = run.glob('eval/total/all-*/30.json')
  file.write_text(file.read_text()[:50])
  assert _evaluate(run, _Total()).computed == 1
  assert json.loads(file.read_text())['step'] == 30


def test_failed_task_is_reported_and_retried(run):
  tasks = _Total(name='broken', error='This text is broken'), _Total()
  report = _evaluate(run, *tasks)
  (failure,) = report.failures
  assert str(failure) == 'broken: at step 30: This text is broken.'
  assert 'sum/mean' in report.results['total'][30].metrics
  assert _evaluate(run, *tasks).computed == 1


def test_unreadable_checkpoint_does_not_stop_the_evaluation(run):
  shutil.rmtree(run / 'checkpoints' / '20' / 'params')
  (run / 'checkpoints' / '20' / 'params').mkdir()
  report = _evaluate(run, _Total(), steps='all')
  assert list(report.results['total']) == [10, 30]
  (failure,) = report.failures
  assert str(failure).startswith('checkpoint: at step 20: ')


def test_missing_gold_labels_are_logged_once(run, caplog):
  unlabeled = f'fr: 2 of 2 examples {head_task.UNLABELED}'
  task = _Total(notes=(unlabeled, 'fr: length is 8'))
  _evaluate(run, task, steps=[10, 20])
  (message,) = [
    record.getMessage()
    for record in caplog.records
    if record.levelno == logging.WARNING and 'fr' in record.getMessage()
  ]
  assert message == f'total: {unlabeled}.'


def test_csv_contains_results_of_earlier_calls(run):
  _evaluate(run, _Total(), steps=[10])
  _evaluate(run, _Total(), steps=[20])
  with (run / 'eval' / 'summary.csv').open() as stream:
    assert [row['step'] for row in csv.DictReader(stream)] == ['10', '20']


def test_report_page_keeps_results_of_earlier_calls(run):
  """A failed call does not remove earlier results, either."""
  page = run / 'eval/report.html'
  _evaluate(run, _Total(), steps=[10, 20])
  _evaluate(run, _Total(name='other'))
  _evaluate(run, _Total(offset=1.0))
  all_settings = {
    path.name.removeprefix('all-') for path in run.glob('eval/total/all-*')
  }
  (first_settings,) = {
    path.parent.name.removeprefix('all-')
    for path in run.glob('eval/total/all-*/20.json')
  }
  (last_settings,) = all_settings - {first_settings}
  titles = re.findall('<h2>([^<]*)</h2>', page.read_text())
  expected_entries = [
    f'total (settings {first_settings}): sum (higher is better)',
    'other: sum (higher is better)',
  ]
  assert titles[:2] == [
    'Summary',
    f'total (settings {last_settings}): sum (higher is better)',
  ]
  assert set(titles[2:]) == {*expected_entries, 'Figures', 'Notes'}
  _evaluate(run, _Total(name='broken', error='This text is broken'))
  text = page.read_text()
  assert all(f'<h2>{title}</h2>' in text for title in expected_entries)
  assert '<li>failed: broken: at step 30: This text is broken.</li>' in text


def test_shipped_tasks_are_evaluated_on_a_corpus(run, corpus):
  report = _evaluate(
    run,
    retrieval_task.Retrieval(
      source=text_sources.ParallelCorpus(directory=corpus)
    ),
    perplexity.Perplexity(
      source=text_sources.CorpusText(directory=corpus), length=16
    ),
  )
  assert report.failures == ()
  (file,) = run.glob('eval/retrieval/test-*/30.json')
  record = json.loads(file.read_text())
  assert set(record['metrics']) >= {
    'accuracy/de',
    'accuracy/ja',
    'accuracy/mean',
    'best_layer/mean',
  }
  assert len(record['tables']['layers']) == 2 * 2 * 3
  text = (run / 'eval/report.html').read_text()
  assert re.search(r'\d\.\d{3}\W[^\n]*± \d\.\d{3}', text)
  assert report.results['perplexity'][30].metrics['perplexity/en'] > 1


def _add_to_output_bias(params):
  model = params['model']
  return params | {'model': model | {'output_bias': model['output_bias'] + 1}}


@pytest.mark.parametrize('is_trained', [True, False])
def test_perplexity_of_an_untrained_head_causes_a_warning(
  run, corpus, caplog, monkeypatch, is_trained
):
  if is_trained:
    restore = saved_run.SavedRun.restore_params
    monkeypatch.setattr(
      saved_run.SavedRun,
      'restore_params',
      lambda *args, **kwargs: _add_to_output_bias(restore(*args, **kwargs)),
    )
  source = text_sources.CorpusText(directory=corpus, max_lines=2)
  for _ in range(2):  # The second call reads stored results.
    caplog.clear()
    report = _evaluate(
      run,
      perplexity.Perplexity(source=source, length=16),
      _Total(),
      untrained=True,
    )
    messages = [m for m in caplog.messages if '@masked_lm.MaskedLM()' in m]
    assert len(messages) == (not is_trained)
    for message in messages:
      assert_mentions(message, 'perplexity')
  assert not report.results['perplexity']['untrained'].notes


def _corpus_tasks(directory):
  return [
    perplexity.Perplexity(
      source=text_sources.CorpusText(directory=directory), length=16
    ),
    retrieval_task.Retrieval(
      source=text_sources.ParallelCorpus(directory=directory)
    ),
  ]


@pytest.mark.parametrize('kind', ['mono', 'parallel'])
def test_split_without_text_for_a_task_is_rejected(tmp_path, kind):
  (tmp_path / 'test' / kind).mkdir(parents=True)
  (tmp_path / 'valid/mono').mkdir(parents=True)
  (tmp_path / 'valid/mono/en.txt').write_text('a\n')
  file = {'mono': 'en.txt', 'parallel': 'de-en.tsv'}[kind]
  (tmp_path / 'test' / kind / file).write_text('a\tb\n')
  tasks = _corpus_tasks(str(tmp_path))
  tasks = tasks if kind == 'parallel' else tasks[::-1]
  missing = {'mono': 'parallel', 'parallel': 'mono'}[kind]
  for selected_tasks in (tasks, tasks[:1]):
    with raises_error(
      errors.CorpusError,
      where=f'test/{missing}',
      mentions=(repr(tasks[0].name), f'--tasks={tasks[1].name}'),
    ) as caught:
      evaluate_lib.check_tasks(selected_tasks)
    suggests_split = '--split=validation' in caught.value.fix
    assert suggests_split == (missing == 'mono')
  evaluate_lib.check_tasks(tasks[1:])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TotalWithSource(_Total):
  """Task with a source of text or examples that is not read."""

  source: text_sources.TextSource | example_source.ExampleSource


@pytest.mark.parametrize(
  'language, is_unseen', [('de', False), ('de_Latn', False), ('sw', True)]
)
def test_languages_outside_the_vocabulary_are_logged(
  run, tmp_path, caplog, language, is_unseen
):
  (tmp_path / 'text.txt').write_text('one\n')
  source = text_sources.FileText(files={language: str(tmp_path / 'text.txt')})
  _evaluate(run, _TotalWithSource(source=source))
  warnings = [
    record.args
    for record in caplog.records
    if record.levelname == 'WARNING' and record.name == evaluate_lib.__name__
  ]
  assert [arguments[0] for arguments in warnings] == ['sw'] * is_unseen


def test_labeled_languages_outside_the_vocabulary_are_logged(
  run, tmp_path, caplog
):
  path = str(tmp_path / 'text.conll')
  files = {'de': path, 'de-sw': path}
  source = example_source.FileDataset(format='conll', files=files)
  _evaluate(run, _TotalWithSource(source=source))
  [warning] = [
    record.args
    for record in caplog.records
    if record.levelname == 'WARNING' and record.name == evaluate_lib.__name__
  ]
  assert warning[0] == 'sw'


def test_splits_are_stored_and_plotted_separately(run, corpus):
  for split in ('test', 'train'):
    source = text_sources.ParallelCorpus(
      directory=corpus, split=split, max_pairs=4
    )
    report = _evaluate(
      run, retrieval_task.Retrieval(source=source), steps=[10, 20]
    )
    assert report.computed == 2
  assert len(list(run.glob('eval/retrieval/*/10.json'))) == 2
  assert (run / 'eval/retrieval.test.png').exists()
  assert (run / 'eval/retrieval.train.png').exists()
  with (run / 'eval' / 'summary.csv').open() as stream:
    rows = [row for row in csv.DictReader(stream) if row['step'] == '10']
  assert {row['split'] for row in rows} == {'test', 'train'}
  page = (run / 'eval/report.html').read_text()
  for split in ('test', 'train'):
    assert (
      f'retrieval: accuracy (0 to 1, higher is better), {split} split' in page
    )
  summary = page.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  assert 'the baseline string_overlap' in summary
  titles = re.findall('<h2>(retrieval: .*?)</h2>', page)
  assert titles and all('layer 2 of 2' in title for title in titles)
  for name in ('accuracy', 'accuracy_shared', 'string_overlap'):
    assert f'<dt>{name}' in page
  assert page.count('<img') == 4
  assert re.search(r'step\s+20\b', page)


def test_watch_follows_checkpoints_until_training_has_finished(
  make_run, tmp_path
):
  directory = tmp_path / 'run'
  reports = []
  watcher = threading.Thread(
    target=lambda: reports.append(
      _evaluate(
        directory,
        _Total(),
        steps='all',
        watch=True,
        poll_seconds=0.02,
        timeout_seconds=60,
      )
    )
  )
  watcher.start()  # The run does not exist yet.
  make_run(directory)
  make_run(directory, [10])
  while not list(directory.glob('eval/total/all-*/10.json')):
    assert watcher.is_alive()
  make_run(directory, [20, 30])
  saved_run.mark_finished(directory, 30)
  watcher.join(60)
  assert list(reports[0].results['total']) == [10, 20, 30]


def test_watch_ends_without_new_checkpoints(run, caplog):
  report = _evaluate(
    run,
    _Total(),
    steps='last',
    watch=True,
    poll_seconds=0.01,
    timeout_seconds=0.05,
  )
  assert list(report.results['total']) == [30]
  assert caplog.records


def test_watch_raises_if_no_run_appears(tmp_path):
  with pytest.raises(errors.RunDirectoryError):
    _evaluate(
      tmp_path / 'none',
      _Total(),
      watch=True,
      poll_seconds=0.01,
      timeout_seconds=0.05,
    )


def test_checkpoint_deleted_during_evaluation_is_skipped(run, monkeypatch):
  restore = saved_run.SavedRun.restore_params

  def delete_first(self, step, **options):
    if step == 20:
      shutil.rmtree(run / 'checkpoints' / '20')
    return restore(self, step, **options)

  monkeypatch.setattr(saved_run.SavedRun, 'restore_params', delete_first)
  report = _evaluate(run, _Total(), steps='all')
  assert list(report.results['total']) == [10, 30]
  assert report.failures == ()


@pytest.mark.parametrize(
  'tasks, values',
  [
    ([], 'evaluate.tasks'),
    ([_Total(), _Total(offset=1.0)], ('total', 'evaluate.tasks')),
  ],
)
def test_invalid_tasks_are_rejected(run, tasks, values):
  with raises_error(errors.ConfigError, mentions=values):
    _evaluate(run, *tasks)


def test_directory_without_a_run_is_rejected(tmp_path):
  with raises_error(errors.RunDirectoryError, mentions='model.json'):
    _evaluate(tmp_path, _Total())


@pytest.mark.slow
def test_sharded_parameters_give_the_same_scores(run, corpus):
  tasks = (
    retrieval_task.Retrieval(
      source=text_sources.ParallelCorpus(directory=corpus)
    ),
    perplexity.Perplexity(
      source=text_sources.CorpusText(directory=corpus), length=16
    ),
  )
  single_device = _evaluate(run, *tasks)
  shutil.rmtree(run / 'eval')
  eight = evaluate_lib.evaluate(
    model_dir=str(run),
    tasks=tasks,
    batch_size=8,
    partitioner=partitioning.Partitioner(data=2, fsdp=2, tensor=2),
  )
  assert eight.computed == 2
  for task in ('retrieval', 'perplexity'):
    sharded_metrics = eight.results[task][30].metrics
    for name, value in single_device.results[task][30].metrics.items():
      assert sharded_metrics[name] == pytest.approx(value, rel=1e-4), name


def test_evaluation_on_training_text_of_a_task_causes_a_warning(
  run, corpus, caplog
):
  """The corpus has identical training and test text."""
  corpus_tasks.register_corpus(corpus_directory.Corpus(corpus))
  source = task_sources.TaskText(mixture='corpus.mono', languages=('de',))
  with caplog.at_level(logging.WARNING):
    _evaluate(run, _Text(source=source))
  [message] = [
    record.getMessage()
    for record in caplog.records
    if 'identical' in record.getMessage()
  ]
  assert_mentions(message, 'corpus.mono.de', 'train', 'test')


def _warnings_of_unknown_tokens(run, caplog, *tasks):
  with caplog.at_level(logging.WARNING):
    _evaluate(run, *tasks)
  return [
    record.getMessage()
    for record in caplog.records
    if 'unknown' in record.getMessage()
  ]


def test_text_with_unknown_tokens_causes_one_warning_for_each_task(
  run, tmp_path, caplog
):
  path = tmp_path / 'ru.txt'
  path.write_text('Комитет собрался во вторник.\n' * 5)
  source = text_sources.FileText(files={'de': str(path), 'en': str(path)})
  warnings = _warnings_of_unknown_tokens(
    run,
    caplog,
    _Text(name='first', source=source),
    _Text(name='second', source=source),
  )
  assert [message.split(':')[0] for message in warnings] == ['first', 'second']
  assert_mentions(warnings[0], 'de', 'en')


def test_labeled_examples_with_unknown_tokens_cause_a_warning(
  run, tmp_path, caplog
):
  path = tmp_path / 'pos.test'
  path.write_text('1\tКомитет\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n')
  source = example_source.FileDataset(
    format='conllu_tags', files={'de': str(path)}
  )
  [warning] = _warnings_of_unknown_tokens(
    run, caplog, tagging_task.Tagging(source=source)
  )
  assert_mentions(warning, 'de')


def test_known_text_causes_no_warning_about_unknown_tokens(run, corpus, caplog):
  assert not _warnings_of_unknown_tokens(
    run,
    caplog,
    _Text(name='mono', source=text_sources.CorpusText(directory=corpus)),
    _Text(name='pairs', source=text_sources.ParallelCorpus(directory=corpus)),
    _Total(),
  )


def test_identical_files_of_two_languages_are_reported(run, tmp_path, caplog):
  path = tmp_path / 'pos.test'
  path.write_text('1\tAda\t_\tPROPN\t_\t_\t0\troot\t_\t_\n\n')
  files = {'de': str(path), 'en': str(path)}
  source = example_source.FileDataset(format='conllu_tags', files=files)
  with caplog.at_level(logging.WARNING):
    _evaluate(run, tagging_task.Tagging(source=source))
  [message] = [
    record.getMessage()
    for record in caplog.records
    if str(path) in record.getMessage() and '`files`' in record.getMessage()
  ]
  assert_mentions(message, 'de', 'en')


def _record_training_source(run, source):
  """Writes a run's record of the source on which it was fine-tuned."""
  dataset = {
    'class': 'labeled_dataset_config',
    'fields': {'source': config_serialization.to_json_config(source)},
  }
  settings = {'class': 'trainer', 'fields': {'datasets': [dataset]}}
  run_directory.write_run_file(run, 'trainer.json', settings)


def test_evaluation_on_a_training_file_causes_a_warning(run, tmp_path, caplog):
  """A copy of a training file is compared by its content."""
  names = ('train', 'copy', 'other')
  train, copy, other = (str(tmp_path / f'{name}.conll') for name in names)
  for path, word in ((train, 'Ada'), (copy, 'Ada'), (other, 'Eva')):
    pathlib.Path(path).write_text(f'{word} PROPN\n\n')
  source = example_source.FileDataset(
    format='conll', files={'en': train, 'fr': [str(tmp_path / 'deleted')]}
  )
  _record_training_source(run, source)
  for path, warns in ((train, True), (copy, True), (other, False)):
    caplog.clear()
    test_source = example_source.FileDataset(format='conll', files={'en': path})
    _evaluate(run, _Text(source=test_source))
    messages = [text for text in caplog.messages if 'training file' in text]
    assert len(messages) == warns
    for message in messages:
      assert_mentions(message, path)


_SINGLE_TEXTS = {'columns': {'text': 0, 'label': 2}}


@pytest.mark.parametrize(
  ('training_options', 'test_options', 'warns'),
  [
    (_SINGLE_TEXTS, {}, True),
    ({}, _SINGLE_TEXTS, True),
    (_SINGLE_TEXTS, _SINGLE_TEXTS, False),
    ({}, {}, False),
  ],
)
def test_pairs_for_a_head_trained_on_single_texts_cause_a_warning(
  run, tmp_path, caplog, training_options, test_options, warns
):
  """By default, the reader reads pairs."""
  path = tmp_path / 'test.tsv'
  path.write_text('premise\thypothesis\tno\n')
  training_source, test_source = (
    example_source.FileDataset(
      format='tsv', files={'en': file}, options=options
    )
    for file, options in (
      (str(tmp_path / 'deleted'), training_options),
      (str(path), test_options),
    )
  )
  _record_training_source(run, training_source)
  _evaluate(run, classification_task.Classification(source=test_source))
  messages = [text for text in caplog.messages if 'OPTIONS' in text]
  assert len(messages) == warns
  for message in messages:
    columns = training_source.get_columns('en')
    assert_mentions(message, 'classification', str(dict(columns)))
