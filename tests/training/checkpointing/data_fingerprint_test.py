"""Tests of the fingerprint of a run's inputs."""

import pathlib
import types

import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.data import dataset_config
from xlflax.training.checkpointing import data_fingerprint, run_directory
from xlflax.utils import errors


def _loader(identity, signature=''):
  return types.SimpleNamespace(
    identity=identity, signature=signature, dataset=types.SimpleNamespace()
  )


def _pairs(order, *languages):
  return types.SimpleNamespace(
    identity='',
    signature='',
    dataset=types.SimpleNamespace(
      layout=dataset_config.ExampleLayout.DUAL,
      pairs=types.SimpleNamespace(order=order),
    ),
    statistics=lambda: [types.SimpleNamespace(languages=x) for x in languages],
  )


@pytest.mark.parametrize(
  ('order', 'expected'),
  [
    (dataset_config.PairOrder.UNCHANGED, {'de', 'fr'}),
    (dataset_config.PairOrder.REVERSED, {'en'}),
    (dataset_config.PairOrder.RANDOM, {'de', 'en', 'fr'}),
  ],
)
def test_target_languages_are_recorded(tmp_path, order, expected):
  assert data_fingerprint.recorded_languages(tmp_path) is None
  loader = _pairs(order, ('en', 'de'), ('en', 'fr'))
  data_fingerprint.record_inputs(
    tmp_path, data_fingerprint.describe_inputs('v', {}), {'a': loader}
  )
  assert data_fingerprint.recorded_languages(tmp_path) == expected
  data_fingerprint.record_inputs(
    tmp_path, data_fingerprint.describe_inputs('v', {}), {'a': _loader('1')}
  )
  assert data_fingerprint.recorded_languages(tmp_path) is None
  for content in ('{}', None):
    path = tmp_path / data_fingerprint.FILE
    path.unlink() if content is None else path.write_text(content)
    with raises_error(errors.RunDirectoryError, mentions='--repair'):
      data_fingerprint.recorded_languages(tmp_path)


def test_changed_data_is_rejected():
  saved = data_fingerprint.describe_inputs(
    'v', {'a': _loader('1'), 'b': _loader('2')}
  )
  data_fingerprint.check_inputs(saved, saved, where=pathlib.Path('c'))
  data_fingerprint.check_inputs(
    saved,
    data_fingerprint.describe_inputs('v', {'a': _loader('1')}),
    where=pathlib.Path('c'),
  )
  other = data_fingerprint.describe_inputs(
    'w', {'a': _loader('1'), 'b': _loader('3')}
  )
  with raises_error(
    errors.RunDirectoryError, mentions='--on_config_mismatch=continue'
  ):
    data_fingerprint.check_inputs(saved, other, where=pathlib.Path('c'))


def test_caches_are_verified_once(tmp_path, caplog):
  """A damaged record causes another verification."""
  assert data_fingerprint.verified_signatures(tmp_path) == frozenset()
  loaders = {'a': _loader('1', 's'), 'b': _loader('2')}
  data_fingerprint.record_inputs(
    tmp_path, data_fingerprint.describe_inputs('v', loaders), loaders
  )
  assert data_fingerprint.verified_signatures(tmp_path) == {'s'}
  path = tmp_path / data_fingerprint.FILE
  path.write_text(path.read_text().replace('"s"', '"t"'))
  assert data_fingerprint.verified_signatures(tmp_path) == frozenset()
  assert caplog.records


def test_record_of_another_run_is_ignored(tmp_path, caplog):
  """Its signatures are not used, and reading its languages is an error."""
  loader = _pairs(dataset_config.PairOrder.UNCHANGED, ('en', 'de'))
  loader.signature = 's'
  for name in 'ab':
    run_directory.write_model(tmp_path / name, tiny.make_model())
    data_fingerprint.record_inputs(
      tmp_path / name, data_fingerprint.describe_inputs('v', {}), {'a': loader}
    )
    assert data_fingerprint.verified_signatures(tmp_path / name) == {'s'}
  (tmp_path / 'b' / data_fingerprint.FILE).replace(
    tmp_path / 'a' / data_fingerprint.FILE
  )
  assert data_fingerprint.verified_signatures(tmp_path / 'a') == frozenset()
  assert_mentions(caplog.text, 'inputs.json')
  with raises_error(errors.RunDirectoryError, where='inputs.json'):
    data_fingerprint.recorded_languages(tmp_path / 'a')


def _vocabulary(size, content):
  return types.SimpleNamespace(
    spec=types.SimpleNamespace(size=size), hash=content * 16
  )


@pytest.mark.parametrize('other', [_vocabulary(400, 'abcd'), None])
def test_different_vocabulary_is_rejected(tmp_path, other):
  """Covers another size, and the same size with other content."""
  own_vocabulary = _vocabulary(4000, '0123')
  data_fingerprint.check_vocabulary(
    own_vocabulary, tmp_path, where='v'
  )  # No vocabulary is recorded yet.
  run_directory.write_model(
    tmp_path, tiny.make_model(), vocabulary=own_vocabulary
  )
  data_fingerprint.check_vocabulary(own_vocabulary, tmp_path, where='v')
  other = other or _vocabulary(4000, 'abcd')
  with pytest.raises(errors.VocabularyError) as error:
    data_fingerprint.check_vocabulary(other, tmp_path, where='v')
  assert f'{other.spec.size:,}' in error.value.got
  assert 'abcdabcdabcd' in error.value.got
  assert '4,000' in error.value.expected
  assert '012301230123' in error.value.expected
