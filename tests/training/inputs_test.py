"""The identity of what a run reads."""

import pathlib
import types

import pytest

from xlflax import errors
from xlflax.training import inputs


def _loader(identity, signature=''):
  return types.SimpleNamespace(identity=identity, signature=signature)


def test_streams_that_are_read_live_have_no_identity():
  described = inputs.describe('v', {'b': _loader('1'), 'a': _loader('')})
  assert described == {'vocabulary': 'v', 'streams': {'b': '1'}}


def test_other_data_is_refused():
  saved = inputs.describe('v', {'a': _loader('1'), 'b': _loader('2')})
  inputs.check(saved, saved, where=pathlib.Path('c'))
  inputs.check(
    saved, inputs.describe('v', {'a': _loader('1')}), where=pathlib.Path('c')
  )
  other = inputs.describe('w', {'a': _loader('1'), 'b': _loader('3')})
  with pytest.raises(errors.RunDirectoryError) as error:
    inputs.check(saved, other, where=pathlib.Path('c'))
  assert (
    'Got: the vocabulary is another; the examples of stream b are others. '
  ) in str(error.value)
  assert '--other_config=accept' in str(error.value)


def test_caches_are_verified_once(tmp_path, caplog):
  """And again where the record is damaged."""
  assert inputs.verified(tmp_path) == frozenset()
  loaders = {'a': _loader('1', 's'), 'b': _loader('2')}
  inputs.record(tmp_path, inputs.describe('v', loaders), loaders)
  assert inputs.verified(tmp_path) == {'s'}
  path = tmp_path / inputs.FILE
  path.write_text(path.read_text().replace('"s"', '"t"'))
  assert inputs.verified(tmp_path) == frozenset()
  assert 'its content has changed' in caplog.text
