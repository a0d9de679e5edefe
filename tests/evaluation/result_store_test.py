import dataclasses
import importlib
import json
import types

import pytest

from tests.errors import raises_error
from xlflax.evaluation import (
  eval_task,
  result_store,
  sentence_embedding,
  task_families,
)
from xlflax.evaluation.metrics import metric
from xlflax.evaluation.tasks import retrieval_task
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, user_modules

RESULT = eval_task.EvalResult(metrics={'m/de': 0.5, 'm/mean': 0.25})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Source:
  split: str = 'test'
  text: str = 'a'

  def fingerprint(self):
    return self.text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task(eval_task.EvalTask):
  name: str = 'task'
  source: _Source | None = dataclasses.field(default_factory=_Source)
  layer: int = 1


def _identity(task=None, seed=0, model=None, **more):
  return result_store.result_identity(
    task or _Task(),
    model=model or types.SimpleNamespace(),
    vocabulary_hash='v',
    seed=seed,
    **more,
  )


@pytest.fixture(autouse=True)
def described(monkeypatch):
  monkeypatch.setattr(
    result_store.config_serialization, 'to_json_config', lambda model: 'model'
  )


def test_results_are_found_by_their_settings(tmp_path):
  file = result_store.write_result(
    tmp_path, RESULT, step=10, identity=_identity()
  )
  assert file.name == '10.json'
  assert file.parent.parent == tmp_path / 'eval' / 'task'
  assert file.parent.name.startswith('test-')
  assert result_store.read_finished(tmp_path, _identity(), 10) == RESULT
  changed = _identity() | {'checkpoint': 'another'}
  assert result_store.result_path(tmp_path, changed, 10) == file
  assert result_store.read_finished(tmp_path, changed, 10) is None
  assert result_store.read_result(file) == RESULT
  record = json.loads(file.read_text())
  assert record['step'] == 10
  assert record['settings'] == _identity()


@pytest.mark.parametrize(
  'other',
  [
    dict(task=_Task(source=_Source(split='validation'))),
    dict(task=_Task(source=_Source(text='b'))),
    dict(task=_Task(layer=2)),
    dict(seed=1),
    dict(parameters='not averaged'),
    dict(sentence=sentence_embedding.SentenceEmbedding(normalize=True)),
  ],
)
def test_results_of_other_splits_text_and_settings_are_separate(
  tmp_path, other
):
  """The results do not replace each other and have separate curves."""
  for step in (10, 20):
    result_store.write_result(tmp_path, RESULT, step=step, identity=_identity())
  changed = eval_task.EvalResult(metrics={'m/de': 0.9})
  result_store.write_result(
    tmp_path, changed, step=20, identity=_identity(**other)
  )
  results = result_store.find_results(tmp_path, 'task')
  assert results == {
    result_store.result_group(_identity()): {10: RESULT, 20: RESULT},
    result_store.result_group(_identity(**other)): {20: changed},
  }


_OWN_BASE = """
import dataclasses
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics.metric import ACCURACY
from PACKAGE import own_helper

@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnBase(eval_task.EvalTask):
  METRICS = (ACCURACY,)
  name: str

  def score(self):
    return 1.0
"""
_OWN_HELPER = 'ONE = 1.0\n'
_OWN_TASK = """
import dataclasses
from PACKAGE import own_base

@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask(own_base.OwnBase):
  name: str = 'rst_own'
"""


def _import_user_task(
  folder, package, *, base=_OWN_BASE, task=_OWN_TASK, helper=_OWN_HELPER
):
  """Writes the modules of a task to a new package and imports them."""
  (folder / package).mkdir()
  sources = {'own_helper': helper, 'own_base': base, 'own_task': task}
  for name, source in sources.items():
    path = folder / package / f'{name}.py'
    path.write_text(source.replace('from PACKAGE', 'from .'))
  eval_task._tasks.pop('rst_own', None)
  return importlib.import_module(f'{package}.own_task').OwnTask()


def test_changed_code_of_a_user_task_is_evaluated_again(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(tmp_path)
  first = _identity(_import_user_task(tmp_path, 'rst_first'))
  result_store.write_result(tmp_path, RESULT, step=1, identity=first)
  assert result_store.read_finished(tmp_path, first, 1) == RESULT
  moved = _identity(_import_user_task(tmp_path, 'rst_moved'))
  assert result_store.read_finished(tmp_path, moved, 1) == RESULT
  for package, sources in (
    ('rst_task', {'task': _OWN_TASK + '\n# Changed.\n'}),
    ('rst_base', {'base': _OWN_BASE.replace('1.0', '2.0')}),
    ('rst_import', {'helper': 'ONE = 2.0\n'}),
  ):
    changed = _identity(_import_user_task(tmp_path, package, **sources))
    assert result_store.read_finished(tmp_path, changed, 1) is None
    # The new result replaces the previous one.
    assert result_store.result_path(
      tmp_path, changed, 1
    ) == result_store.result_path(tmp_path, first, 1)


def test_code_of_a_user_model_is_part_of_the_identity():
  assert 'model_code' not in _identity()
  assert _identity(model=_Source())['model_code'].keys() >= {__name__}


def test_package_code_is_not_part_of_the_identity():

  assert user_modules.digest_code(retrieval_task.Retrieval) is None
  assert 'code' in _identity(_Task())


def test_the_direction_of_a_metric_is_stored_with_the_result(tmp_path):
  """A report without the task's module shows the direction."""
  declared = metric.Metric('spread_of_a_stored_result', metric.Better.LOWER)
  result = dataclasses.replace(RESULT, declarations=(declared,))
  file = result_store.write_result(
    tmp_path, result, step=10, identity=_identity()
  )
  better = metric.Better
  assert task_families.find_metric(declared.name).better is better.NEITHER
  result_store.read_result(file)
  assert task_families.find_metric(declared.name).better is better.LOWER


def test_group_names_contain_the_differing_properties():
  group = result_store.Group('retrieval', 'test', 'a1')
  other_text = group._replace(settings='b2')
  other_split = group._replace(split='validation')
  other_task = group._replace(task='perplexity')

  def name_groups(test_data_by_group, **options):
    results = {
      group: [dataclasses.replace(RESULT, test_data=test_data)]
      for group, test_data in test_data_by_group.items()
    }
    return [*result_store.name_groups(results, **options).values()]

  assert name_groups({group: 'clean', other_task: 'more'}) == [
    'retrieval',
    'perplexity',
  ]
  assert name_groups({group: 'clean', other_text: 'more'}) == [
    'retrieval (clean)',
    'retrieval (more)',
  ]
  # The test data is the same, or it is not recorded.
  for test_data in ('clean', ''):
    assert name_groups({group: 'clean', other_text: test_data}) == [
      'retrieval (settings a1)',
      'retrieval (settings b2)',
    ]
  by_group = {group: 'clean', other_text: 'more', other_split: 'clean'}
  assert name_groups(by_group) == [
    'retrieval (test split, clean)',
    'retrieval (test split, more)',
    'retrieval (validation split)',
  ]
  assert name_groups(by_group, has_split=False) == [
    'retrieval (clean)',
    'retrieval (more)',
    'retrieval',
  ]


def test_group_of_a_task_without_splits(tmp_path):
  group = result_store.result_group(_identity(_Task(source=None)))
  assert (group.task, group.split) == ('task', 'all')


def test_split_is_converted_to_a_file_name():
  group = result_store.result_group(
    _identity(_Task(source=_Source(split='test[:5%]/x')))
  )
  assert group.split == 'test_5_x'


def test_a_result_with_failures_is_not_finished(tmp_path):
  failed = eval_task.EvalResult(
    metrics={}, failures=(eval_task.Failure(task='t', part='de', message='m'),)
  )
  file = result_store.write_result(
    tmp_path, failed, step=1, identity=_identity()
  )
  assert result_store.read_finished(tmp_path, _identity(), 1) is None
  assert result_store.read_result(file) == failed


def test_results_of_other_runs_are_not_used(tmp_path, caplog):
  """This holds even if task, text and seed are equal."""
  files = []
  for name in 'ab':
    run_directory.write_json(tmp_path / name / 'model.json', {'run': name})
    files.append(
      result_store.write_result(
        tmp_path / name, RESULT, step=1, identity=_identity()
      )
    )
  files[1].replace(files[0])
  assert result_store.read_result(files[0]) is None
  assert result_store.read_finished(tmp_path / 'a', _identity(), 1) is None
  assert result_store.find_results(tmp_path / 'a') == {}
  assert caplog.records
  elsewhere = tmp_path / 'elsewhere' / files[0].relative_to(tmp_path / 'a')
  elsewhere.parent.mkdir(parents=True)
  # Without model.json, the run of the result is unknown.
  files[0].replace(elsewhere)
  assert result_store.read_result(elsewhere) == RESULT


@pytest.mark.parametrize('text', ['', '{"metrics": {', '[]', '{"step": 1}'])
def test_invalid_result_files_are_none(tmp_path, text):
  (tmp_path / '1.json').write_text(text)
  assert result_store.read_result(tmp_path / '1.json') is None
  assert result_store.read_result(tmp_path / 'missing.json') is None


def test_write_result_leaves_no_temporary_files(tmp_path):
  file = result_store.write_result(
    tmp_path, RESULT, step=1, identity=_identity()
  )
  assert [path.name for path in file.parent.iterdir()] == ['1.json']


def test_find_results_sorts_by_step(tmp_path):
  for step in (100, 'untrained', 20):
    result_store.write_result(tmp_path, RESULT, step=step, identity=_identity())
  (task_results,) = result_store.find_results(tmp_path).values()
  assert list(task_results) == ['untrained', 20, 100]
  assert result_store.find_results(tmp_path, 'other') == {}


def test_checkpoint_identity_depends_on_its_content(tmp_path):
  folder = tmp_path / 'checkpoints' / '5'
  for item in ('params', 'train'):
    (folder / item).mkdir(parents=True)
    assert result_store.checkpoint_identity(tmp_path, 5) == ''
    (folder / item / 'digests.json').write_text('a')
  first = result_store.checkpoint_identity(tmp_path, 5)
  (folder / 'params/digests.json').write_text('b')
  assert first and result_store.checkpoint_identity(tmp_path, 5) != first


def test_changed_prediction_files_are_rejected(tmp_path):
  """Example tables and submissions are created from these predictions."""
  identity = _identity()
  result = eval_task.EvalResult(metrics={'a': 1.0}, files={'en.tsv': 'x\n'})
  folder = result_store.write_result(
    tmp_path, result, step=5, identity=identity
  ).with_suffix('')
  result_store.check_files(folder)
  (folder / 'en.tsv').write_text('y\n')
  with raises_error(errors.RunDirectoryError, where='5', mentions='en.tsv'):
    result_store.check_files(folder)
  (folder / 'en.tsv').unlink()
  with raises_error(errors.RunDirectoryError, where='5', mentions='en.tsv'):
    result_store.check_files(folder)
  result_store.check_files(tmp_path / 'elsewhere')
