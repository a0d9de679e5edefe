import dataclasses
import types

import pytest

from tests.evaluation import result_store_test as stored
from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.reports import evaluation_report, run_scores


@pytest.fixture(autouse=True)
def described(monkeypatch):
  monkeypatch.setattr(
    result_store.config_serialization, 'to_json_config', lambda model: 'model'
  )


@pytest.mark.parametrize(
  ('settings', 'difference'),
  [
    ({'source': stored._Source(text='b')}, 'the text'),
    ({'layer': 2}, 'task.layer'),
    ({'layer': 2, 'source': stored._Source(text='b')}, 'the text, task.layer'),
  ],
)
def test_page_names_the_differing_settings(tmp_path, settings, difference):
  names = []
  for task, test_data in (
    (stored._Task(), 'clean'),
    (stored._Task(**settings), 'more'),
  ):
    identity = stored._identity(task)
    result = dataclasses.replace(stored.RESULT, test_data=test_data)
    result_store.write_result(tmp_path, result, step=10, identity=identity)
    names.append(f'task ({test_data})')
  evaluation_report.write_report(_make_store(tmp_path), [])
  page = (tmp_path / 'eval' / 'report.html').read_text()
  assert f'differ in {difference}<' in page.replace('task.source.', '')
  for name in names:
    assert f'<h2>{name}: ' in page


def test_the_page_lists_failures_of_earlier_calls(tmp_path):
  """Failures of this call are stored as well, but listed once."""
  failures = [
    eval_task.Failure(task='task', part=part, message=f'No text in {part}')
    for part in ('fr', 'sw')
  ]
  result = dataclasses.replace(stored.RESULT, failures=tuple(failures))
  identity = stored._identity(stored._Task())
  result_store.write_result(tmp_path, result, step=10, identity=identity)
  latest = dataclasses.replace(failures[1], part='sw at step 10')
  evaluation_report.write_report(_make_store(tmp_path), [], failures=[latest])
  page = (tmp_path / 'eval' / 'report.html').read_text()
  assert page.count('failed: task: fr at step 10: No text in fr') == 1
  assert page.count('failed: task: sw at step 10: No text in sw') == 1


@pytest.mark.parametrize('is_changed', [True, False])
def test_results_of_two_versions_of_a_task_have_a_note(tmp_path, is_changed):
  identity = stored._identity(stored._Task()) | {'code': 'first'}
  result_store.write_result(
    tmp_path, stored.RESULT, step='untrained', identity=identity
  )
  if is_changed:
    identity |= {'code': 'second'}
  result_store.write_result(tmp_path, stored.RESULT, step=10, identity=identity)
  evaluation_report.write_report(_make_store(tmp_path), [])
  page = (tmp_path / 'eval' / 'report.html').read_text()
  versions = 'Results by version: untrained; step 10.'
  assert (versions in page) == is_changed
  run = types.SimpleNamespace(
    name='a', directory=tmp_path, results=result_store.find_results(tmp_path)
  )
  [group] = run.results
  note = run_scores.describe_code_versions(group, [run])
  assert ('a, untrained; a, step 10' in note) == is_changed


def _make_store(directory):
  spec = types.SimpleNamespace(languages=['de'])
  return types.SimpleNamespace(
    directory=directory,
    run=types.SimpleNamespace(
      directory=directory, vocabulary=types.SimpleNamespace(spec=spec)
    ),
    read_all=lambda: result_store.find_results(directory),
    folder=lambda group: directory / 'eval' / group.folder,
  )
