"""Benchmarks and tasks of mteb from the command line."""

import json
import pathlib

import pytest
import yaml

from tests.errors import raises_error
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax import cli, load_run
from xlflax.evaluation import eval_task, result_store
from xlflax.interop import mteb_encoder, mteb_task
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_MODULE = pathlib.Path(__file__).with_name('mteb_tasks_of_tests.py')


@pytest.fixture
def mteb():
  return pytest.importorskip('mteb')


@pytest.fixture
def directory(run_of):
  return run_of(
    type_vocab_size=1, position_offset=1, max_position_embeddings=64
  )[0]


def _evaluate(directory, *flags):
  return cli.main(['evaluate', f'--model_dir={directory}', *flags])


def _read_result(directory, name):
  (results,) = result_store.find_results(directory, f'mteb.{name}').values()
  return results[3]


@pytest.mark.slow
def test_scores_equal_mteb(mteb, directory, tmp_path):
  flags = ['--mteb=OwnPairs,OwnSearch', f'--task_module={_MODULE}']
  pooling = "--gin.mteb_task.MtebTask.pooling='mean_all'"
  assert _evaluate(directory, *flags, pooling) == 0

  run = load_run(str(directory))
  model = mteb_encoder.MtebEncoder(run, pooling='mean_all')
  scores = {}
  for name, parts in (('OwnPairs', ('de', 'en')), ('OwnSearch', ('default',))):
    task = mteb_task._find_task(name)
    expected = mteb.evaluate(model, task, cache=None, co2_tracker=False)
    (task_result,) = expected.task_results
    result = _read_result(directory, name)
    (subset_scores,) = task_result.scores.values()
    assert [values['hf_subset'] for values in subset_scores] == [*parts]
    for part, values in zip(parts, subset_scores, strict=True):
      assert result.metrics[f'main_score/{part}'] == pytest.approx(
        values['main_score'], abs=1e-6
      )
    scores[name] = task_result.get_score()
    assert result.metrics['main_score/mean'] == pytest.approx(
      scores[name], abs=1e-6
    )
    rows = {
      (row['part'], row['score']): row['value']
      for row in result.tables['scores']
    }
    score_name = task.metadata.main_score
    assert rows[parts[0], score_name] == pytest.approx(
      subset_scores[0][score_name], abs=1e-6
    )
    # mteb reads the file as one of its own results.
    (file,) = directory.glob(f'eval/mteb.{name}/*/3/{name}.json')
    stored = mteb.results.TaskResult.from_dict(json.loads(file.read_text()))
    assert stored.get_score() == pytest.approx(scores[name], abs=1e-6)
  assert -1 < scores['OwnPairs'] < 1 and 0 < scores['OwnSearch'] < 1

  summary = json.loads((directory / 'eval/mteb.json').read_text())
  assert summary['tasks'] == ['OwnPairs', 'OwnSearch']
  mean = sum(scores.values()) / 2
  assert summary['steps']['3'] == pytest.approx(
    {
      'mean_task': mean,
      'mean_task_type': mean,
      'Retrieval': scores['OwnSearch'],
      'STS': scores['OwnPairs'],
    },
    abs=1e-6,
  )

  # The model card contains the scores of the exported embeddings.
  folder = tmp_path / 'exported'
  command = ['convert', 'to-hf', str(directory), f'--output={folder}']
  assert cli.main([*command, '--sentence_transformers=mean_all']) == 0
  card = yaml.safe_load((folder / 'README.md').read_text().split('---')[1])
  (model_index,) = card['model-index']
  datasets = {
    entry['dataset']['name']: entry for entry in model_index['results']
  }
  entry = datasets['MTEB OwnPairs']
  assert entry['dataset']['type'] == 'own/OwnPairs'
  assert entry['dataset']['split'] == 'test'
  assert {
    metric['name']: metric['value'] for metric in entry['metrics']
  } == pytest.approx(
    {
      f'cosine_spearman/{part}': value
      for part in ('de', 'en', 'mean')
      for value in [
        _read_result(directory, 'OwnPairs').metrics[f'main_score/{part}']
      ]
    }
  )
  assert datasets['MTEB OwnSearch']['metrics'][0]['type'] == 'ndcg_at_10'


def test_languages_select_subsets(mteb, directory):
  flags = ['--mteb=OwnPairs', f'--task_module={_MODULE}']
  assert _evaluate(directory, *flags, '--languages=en') == 0
  result = _read_result(directory, 'OwnPairs')
  assert set(result.metrics) == {'main_score/en', 'main_score/mean'}
  assert _evaluate(directory, *flags, '--languages=sw') == 2
  with raises_error(errors.ConfigError, got='sw', mentions='--mteb'):
    mteb_task.select_tasks('OwnPairs', ['sw'])


def test_languages_of_the_vocabulary_are_model_inputs(mteb, make_run, tmp_path):
  """The model of the fixtures has language embeddings for de, en and ja."""
  directory = make_run(tmp_path / 'run', steps=(3,))
  flags = ['--mteb=OwnPairs', f'--task_module={_MODULE}']
  assert _evaluate(directory, *flags) == 0
  run = load_run(str(directory))
  encoder = mteb_encoder.MtebEncoder(run, languages=('de', 'en', 'ja'))
  expected = mteb.evaluate(
    encoder, mteb_task._find_task('OwnPairs'), cache=None, co2_tracker=False
  )
  for values in expected.task_results[0].scores['test']:
    part = values['hf_subset']
    assert _read_result(directory, 'OwnPairs').metrics[
      f'main_score/{part}'
    ] == pytest.approx(values['main_score'], abs=1e-6)


def test_benchmarks_are_found_by_name_and_alias(mteb):
  name = 'MTEB(Multilingual, v2)'
  benchmark = mteb.get_benchmark(name)
  tasks = mteb_task.select_tasks(name)
  assert [task['task'] for task in tasks] == [
    task.metadata.name for task in benchmark.tasks
  ]
  sts = next(task for task in tasks if task['task'] == 'STS22.v2')
  assert (sts['task_type'], sts['score_name']) == ('STS', 'cosine_spearman')
  assert sts['name'] == 'mteb.STS22.v2' and sts['splits'] == ('test',)
  selected_tasks = mteb_task.select_tasks(f'{name},Tatoeba')
  assert len(selected_tasks) >= len(tasks)
  assert mteb_task.select_tasks('MTEB(Multilingual)') == tasks
  german = mteb_task.select_tasks(name, ['de'])
  assert 0 < len(german) < len(tasks)
  (part,) = [task for task in german if task['task'] == 'STS22.v2']
  assert 'de' in part['subsets'] and 'ar' not in part['subsets']


def test_unavailable_data_does_not_stop_other_tasks(mteb, directory, capsys):
  flags = ['--mteb=OwnUnreachable,OwnPairs', f'--task_module={_MODULE}']
  assert _evaluate(directory, *flags) == 2
  assert 'own/OwnUnreachable' in capsys.readouterr().err
  assert 'main_score/de' in _read_result(directory, 'OwnPairs').metrics
  # The means over an incomplete benchmark are left out.
  assert not (directory / 'eval/mteb.json').exists()


@pytest.mark.parametrize(
  ('name', 'suggestion'),
  [('MTEB(Multilingual, v3)', 'MTEB(Multilingual, v2)'), ('STS22.v9', 'STS22')],
)
def test_unknown_names_are_rejected(mteb, directory, name, suggestion):
  with raises_error(errors.ConfigError, got=name, mentions='--mteb') as caught:
    mteb_task.select_tasks(name)
  assert suggestion in caught.value.fix
  assert _evaluate(directory, f'--mteb={name}') == 2


def test_missing_mteb_package_is_reported(monkeypatch, directory):
  monkeypatch.setattr(mteb_task.importlib.util, 'find_spec', lambda name: None)
  with raises_error(errors.ConfigError, mentions='--mteb'):
    mteb_task.check_installed()
  assert _evaluate(directory, '--mteb=STS22.v2') == 2


def test_conflicting_options_are_rejected(directory):
  for flag in ('--tasks=retrieval', '--corpus=corpus', '--suite=glue'):
    assert _evaluate(directory, '--mteb=STS22.v2', flag) == 2


def _task(name, task_type):
  return mteb_task.MtebTask(
    name=name, task=name, splits=('test',), task_type=task_type
  )


def test_aggregated_tasks_are_scored_by_mteb(mteb, directory):
  flags = ['--mteb=OwnSearch,OwnAggregate', f'--task_module={_MODULE}']
  assert _evaluate(directory, *flags) == 0
  scores = [
    _read_result(directory, name).metrics['main_score/mean']
    for name in ('OwnSearch', 'OwnAggregate')
  ]
  assert scores[1] == pytest.approx(scores[0])


def test_image_benchmarks_are_rejected(mteb):
  with raises_error(errors.ConfigError, mentions='--mteb=MIEB(lite)'):
    mteb_task.select_tasks('MIEB(lite)')


def test_means_over_tasks_and_task_types():
  tasks = [_task('a', 'STS'), _task('b', 'STS'), _task('c', 'Retrieval')]
  results = {
    name: eval_task.EvalResult(metrics={'main_score/mean': score})
    for name, score in (('a', 0.2), ('b', 0.4), ('c', 0.9))
  }
  assert mteb_task.summarize_scores(tasks, results) == pytest.approx(
    {
      'mean_task': 0.5,
      'mean_task_type': (0.3 + 0.9) / 2,
      'Retrieval': 0.9,
      'STS': 0.3,
    }
  )
  del results['b']
  assert mteb_task.summarize_scores(tasks, results) == {}
