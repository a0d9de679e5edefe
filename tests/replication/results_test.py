"""Results are kept by what their runs depend on."""

import dataclasses
import json

import pytest

from xlflax.foundation import errors
from xlflax.replication import results
from xlflax.replication.conditions import Condition, Size
from xlflax.replication.worlds import Amounts


def result(**fields) -> results.Result:
  settings = dict(
    condition='a/b',
    seed=3,
    settings='0123',
    measures={'transfer': 0.123456789},
    cpu_seconds=1.5,
  )
  return results.Result(**(settings | fields))


def test_a_result_is_found_again(tmp_path):
  store = results.Store(tmp_path)
  store.write(result())
  found = store.read('a/b', 3, '0123')
  assert found == result(measures={'transfer': 0.12346})
  assert store.read('a/b', 4, '0123') is None


def test_other_settings_are_another_result(tmp_path):
  store = results.Store(tmp_path)
  store.write(result())
  assert store.read('a/b', 3, '4567') is None


def test_a_damaged_result_is_told(tmp_path):
  store = results.Store(tmp_path)
  store.write(result())
  (tmp_path / 'a/b/3.json').write_text('{')
  with pytest.raises(errors.AnalysisError, match='delete the file'):
    store.read('a/b', 3, '0123')


def test_digest_depends_on_all_that_a_run_depends_on():
  one = Condition(name='a/b', title='b', steps=10)
  begun = Condition(name='a/a', title='a', steps=10)
  parts = [
    ((one,), Amounts(), Size()),
    ((begun, one), Amounts(), Size()),
    ((dataclasses.replace(one, steps=11),), Amounts(), Size()),
    ((one,), Amounts(pairs=7), Size()),
    ((one,), Amounts(), Size(hidden=64)),
  ]
  found = [results.settings_of(*part) for part in parts]
  assert len(set(found)) == len(found)
  assert results.settings_of(*parts[0]) == found[0]


def test_collected_in_a_fixed_order(tmp_path):
  path = tmp_path / 'all.json'
  results.collect([result(seed=2), result(seed=1)], path)
  assert [one.seed for one in results.read_all(path)] == [1, 2]
  assert len(path.read_text().splitlines()) == 4
  assert json.loads(path.read_text())[0]['measures'] == {'transfer': 0.12346}
  assert results.read_all(tmp_path / 'none.json') == []
