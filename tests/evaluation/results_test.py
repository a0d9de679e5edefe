import dataclasses
import json
import types

import pytest

from tests.errors import raises_error
from xlflax.evaluation import base, results, sentence_encoding
from xlflax.foundation import errors
from xlflax.training.checkpointing import run_directory

RESULT = base.EvalResult(metrics={'m/de': 0.5, 'm/mean': 0.25})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Source:
  split: str = 'test'
  text: str = 'a'

  def fingerprint(self):
    return self.text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task(base.EvalTask):
  name: str = 'task'
  source: _Source | None = dataclasses.field(default_factory=_Source)
  layer: int = 1


def _identity(task=None, seed=0, **more):
  model = types.SimpleNamespace()
  return results.result_identity(
    task or _Task(), model=model, vocabulary_hash='v', seed=seed, **more
  )


@pytest.fixture(autouse=True)
def described(monkeypatch):
  monkeypatch.setattr(results.description, 'describe', lambda model: 'model')


def test_a_result_is_found_by_its_settings(tmp_path):
  file = results.write_result(tmp_path, RESULT, step=10, identity=_identity())
  assert file.name == '10.json'
  assert file.parent.parent == tmp_path / 'eval' / 'task'
  assert file.parent.name.startswith('test-')
  assert results.read_finished(tmp_path, _identity(), 10) == RESULT
  changed = _identity() | {'checkpoint': 'another'}
  assert results.result_path(tmp_path, changed, 10) == file
  assert results.read_finished(tmp_path, changed, 10) is None
  assert results.read_result(file) == RESULT
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
    dict(sentence=sentence_encoding.SentenceEncoding(normalize=True)),
  ],
)
def test_results_of_other_splits_text_and_settings_lie_apart(tmp_path, other):
  """Neither replaces the other, and neither joins the other's curve."""
  for step in (10, 20):
    results.write_result(tmp_path, RESULT, step=step, identity=_identity())
  changed = base.EvalResult(metrics={'m/de': 0.9})
  results.write_result(tmp_path, changed, step=20, identity=_identity(**other))
  found = results.find_results(tmp_path, 'task')
  assert found == {
    results.result_group(_identity()): {10: RESULT, 20: RESULT},
    results.result_group(_identity(**other)): {20: changed},
  }


def test_a_task_without_splits(tmp_path):
  group = results.result_group(_identity(_Task(source=None)))
  assert (group.task, group.split) == ('task', 'all')


def test_a_split_that_is_no_file_name():
  group = results.result_group(
    _identity(_Task(source=_Source(split='test[:5%]/x')))
  )
  assert group.split == 'test_5_x'


def test_a_result_with_failures_is_not_finished(tmp_path):
  failed = base.EvalResult(
    metrics={}, failures=(base.Failure(task='t', part='de', message='m'),)
  )
  file = results.write_result(tmp_path, failed, step=1, identity=_identity())
  assert results.read_finished(tmp_path, _identity(), 1) is None
  assert results.read_result(file) == failed


def test_a_result_of_another_run_is_not_used(tmp_path, caplog):
  """Although task, text and seed are the same: in no report, nor again."""
  files = []
  for name in 'ab':
    run_directory.write_json(tmp_path / name / 'model.json', {'run': name})
    files.append(
      results.write_result(
        tmp_path / name, RESULT, step=1, identity=_identity()
      )
    )
  files[1].replace(files[0])
  assert results.read_result(files[0]) is None
  assert results.read_finished(tmp_path / 'a', _identity(), 1) is None
  assert results.find_results(tmp_path / 'a') == {}
  assert caplog.records
  elsewhere = tmp_path / 'elsewhere' / files[0].relative_to(tmp_path / 'a')
  elsewhere.parent.mkdir(parents=True)
  files[0].replace(elsewhere)  # where no run says that it is another's
  assert results.read_result(elsewhere) == RESULT


@pytest.mark.parametrize('text', ['', '{"metrics": {', '[]', '{"step": 1}'])
def test_what_is_no_result_is_none(tmp_path, text):
  (tmp_path / '1.json').write_text(text)
  assert results.read_result(tmp_path / '1.json') is None
  assert results.read_result(tmp_path / 'missing.json') is None


def test_nothing_but_the_result_is_left_in_the_folder(tmp_path):
  file = results.write_result(tmp_path, RESULT, step=1, identity=_identity())
  assert [path.name for path in file.parent.iterdir()] == ['1.json']


def test_find_orders_by_step_after_the_untrained_model(tmp_path):
  for step in (100, 'untrained', 20):
    results.write_result(tmp_path, RESULT, step=step, identity=_identity())
  (found,) = results.find_results(tmp_path).values()
  assert list(found) == ['untrained', 20, 100]
  assert results.find_results(tmp_path, 'other') == {}


def test_the_checkpoint_identity_is_that_of_its_content(tmp_path):
  folder = tmp_path / 'checkpoints' / '5'
  for item in ('params', 'train'):
    (folder / item).mkdir(parents=True)
    assert results.checkpoint_identity(tmp_path, 5) == ''
    (folder / item / 'digests.json').write_text('a')
  first = results.checkpoint_identity(tmp_path, 5)
  (folder / 'params/digests.json').write_text('b')
  assert first and results.checkpoint_identity(tmp_path, 5) != first


def test_predictions_that_have_changed_are_refused(tmp_path):
  """What tables of examples and submissions are made from."""
  identity = _identity()
  result = base.EvalResult(metrics={'a': 1.0}, files={'en.tsv': 'x\n'})
  folder = results.write_result(
    tmp_path, result, step=5, identity=identity
  ).with_suffix('')
  results.check_files(folder)
  (folder / 'en.tsv').write_text('y\n')
  with raises_error(errors.RunDirectoryError, where='5', mentions='en.tsv'):
    results.check_files(folder)
  (folder / 'en.tsv').unlink()
  with raises_error(errors.RunDirectoryError, where='5', mentions='en.tsv'):
    results.check_files(folder)
  results.check_files(tmp_path / 'elsewhere')
