import json

import pytest

from xlflax.evaluation import base, results

RESULT = base.EvalResult(metrics={'m/de': 0.5, 'm/mean': 0.25})
IDENTITY = {'task': 'a', 'seed': 0}


def test_a_result_is_found_by_its_settings(tmp_path):
  file = results.path(tmp_path, 'task', 10)
  results.write(file, RESULT, step=10, identity=IDENTITY)
  assert file == tmp_path / 'eval' / 'task' / '10.json'
  assert results.read_finished(file, IDENTITY) == RESULT
  assert results.read_finished(file, IDENTITY | {'seed': 1}) is None
  assert results.read(file) == RESULT
  record = json.loads(file.read_text())
  assert record['step'] == 10
  assert record['settings'] == IDENTITY


def test_a_result_with_failures_is_not_finished(tmp_path):
  file = tmp_path / '1.json'
  failed = base.EvalResult(
    metrics={}, failures=(base.Failure(task='t', part='de', message='m'),)
  )
  results.write(file, failed, step=1, identity=IDENTITY)
  assert results.read_finished(file, IDENTITY) is None
  assert results.read(file) == failed


@pytest.mark.parametrize('text', ['', '{"metrics": {', '[]', '{"step": 1}'])
def test_what_is_no_result_is_none(tmp_path, text):
  (tmp_path / '1.json').write_text(text)
  assert results.read(tmp_path / '1.json') is None
  assert results.read(tmp_path / 'missing.json') is None


def test_nothing_but_the_result_is_left_in_the_folder(tmp_path):
  results.write(
    results.path(tmp_path, 't', 1), RESULT, step=1, identity=IDENTITY
  )
  names = [path.name for path in (tmp_path / 'eval' / 't').iterdir()]
  assert names == ['1.json']


def test_find_orders_by_step_after_the_untrained_model(tmp_path):
  for step in (100, 'untrained', 20):
    results.write(
      results.path(tmp_path, 't', step), RESULT, step=step, identity=IDENTITY
    )
  assert list(results.find(tmp_path, 't')) == ['untrained', 20, 100]
  assert results.find(tmp_path, 'other') == {}


def test_the_checkpoint_identity_is_that_of_its_record(tmp_path):
  folder = tmp_path / 'checkpoints' / '5'
  folder.mkdir(parents=True)
  assert results.checkpoint_identity(tmp_path, 5) == ''
  (folder / '_CHECKPOINT_METADATA').write_text('a')
  first = results.checkpoint_identity(tmp_path, 5)
  (folder / '_CHECKPOINT_METADATA').write_text('b')
  assert first and results.checkpoint_identity(tmp_path, 5) != first
