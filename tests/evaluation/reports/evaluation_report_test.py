import dataclasses
import types

import pytest

from tests.evaluation import result_store_test as stored
from xlflax.evaluation import result_store
from xlflax.evaluation.reports import evaluation_report


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
def test_the_page_names_the_settings_that_differ(
  tmp_path, settings, difference
):
  names = []
  for task, test_data in (
    (stored._Task(), 'clean'),
    (stored._Task(**settings), 'more'),
  ):
    identity = stored._identity(task)
    result = dataclasses.replace(stored.RESULT, test_data=test_data)
    result_store.write_result(tmp_path, result, step=10, identity=identity)
    names.append(f'task ({test_data})')
  spec = types.SimpleNamespace(languages=['de'])
  store = types.SimpleNamespace(
    directory=tmp_path,
    run=types.SimpleNamespace(
      directory=tmp_path, vocabulary=types.SimpleNamespace(spec=spec)
    ),
    read_all=lambda: result_store.find_results(tmp_path),
    folder=lambda group: tmp_path / 'eval' / group.folder,
  )
  evaluation_report.write_report(store, [])
  page = (tmp_path / 'eval' / 'report.html').read_text()
  assert f'differ in {difference}<' in page.replace('task.source.', '')
  for name in names:
    assert f'<h2>{name}: ' in page
