"""The identity of what a run reads."""

import pathlib
import types

import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.data import stream as stream_lib
from xlflax.foundation import errors
from xlflax.training.checkpointing import inputs, run_directory


def _loader(identity, signature=''):
  return types.SimpleNamespace(
    identity=identity, signature=signature, stream=types.SimpleNamespace()
  )


def _pairs(order, *languages):
  return types.SimpleNamespace(
    identity='',
    signature='',
    stream=types.SimpleNamespace(
      layout=stream_lib.Layout.SIDES, pairs=types.SimpleNamespace(order=order)
    ),
    statistics=lambda: [types.SimpleNamespace(languages=x) for x in languages],
  )


@pytest.mark.parametrize(
  ('order', 'written'),
  [
    (stream_lib.SideOrder.AS_IS, {'de', 'fr'}),
    (stream_lib.SideOrder.REVERSED, {'en'}),
    (stream_lib.SideOrder.RANDOM, {'de', 'en', 'fr'}),
  ],
)
def test_languages_that_a_run_learns_to_write(tmp_path, order, written):
  assert inputs.recorded_languages(tmp_path) is None
  loader = _pairs(order, ('en', 'de'), ('en', 'fr'))
  inputs.record_inputs(tmp_path, inputs.describe_inputs('v', {}), {'a': loader})
  assert inputs.recorded_languages(tmp_path) == written
  inputs.record_inputs(
    tmp_path, inputs.describe_inputs('v', {}), {'a': _loader('1')}
  )
  assert inputs.recorded_languages(tmp_path) is None
  for content in ('{}', None):
    path = tmp_path / inputs.FILE
    path.unlink() if content is None else path.write_text(content)
    with raises_error(errors.RunDirectoryError, mentions='--repair'):
      inputs.recorded_languages(tmp_path)


def test_other_data_is_refused():
  saved = inputs.describe_inputs('v', {'a': _loader('1'), 'b': _loader('2')})
  inputs.check_inputs(saved, saved, where=pathlib.Path('c'))
  inputs.check_inputs(
    saved,
    inputs.describe_inputs('v', {'a': _loader('1')}),
    where=pathlib.Path('c'),
  )
  other = inputs.describe_inputs('w', {'a': _loader('1'), 'b': _loader('3')})
  with raises_error(
    errors.RunDirectoryError, mentions='--on_config_mismatch=continue'
  ):
    inputs.check_inputs(saved, other, where=pathlib.Path('c'))


def test_caches_are_verified_once(tmp_path, caplog):
  """And again where the record is damaged."""
  assert inputs.verified_signatures(tmp_path) == frozenset()
  loaders = {'a': _loader('1', 's'), 'b': _loader('2')}
  inputs.record_inputs(tmp_path, inputs.describe_inputs('v', loaders), loaders)
  assert inputs.verified_signatures(tmp_path) == {'s'}
  path = tmp_path / inputs.FILE
  path.write_text(path.read_text().replace('"s"', '"t"'))
  assert inputs.verified_signatures(tmp_path) == frozenset()
  assert caplog.records


def test_a_record_of_another_run_is_not_used(tmp_path, caplog):
  """Else its caches would count as compared, and its languages as trained."""
  loader = _pairs(stream_lib.SideOrder.AS_IS, ('en', 'de'))
  loader.signature = 's'
  for name in 'ab':
    run_directory.write_model(tmp_path / name, tiny.make_model())
    inputs.record_inputs(
      tmp_path / name, inputs.describe_inputs('v', {}), {'a': loader}
    )
    assert inputs.verified_signatures(tmp_path / name) == {'s'}
  (tmp_path / 'b' / inputs.FILE).replace(tmp_path / 'a' / inputs.FILE)
  assert inputs.verified_signatures(tmp_path / 'a') == frozenset()
  assert_mentions(caplog.text, 'inputs.json')
  with raises_error(errors.RunDirectoryError, where='inputs.json'):
    inputs.recorded_languages(tmp_path / 'a')


def _vocabulary(size, content):
  return types.SimpleNamespace(
    spec=types.SimpleNamespace(size=size), hash=content * 16
  )


@pytest.mark.parametrize('other', [_vocabulary(400, 'abcd'), None])
def test_another_vocabulary_is_refused(tmp_path, other):
  """Of another size, or of this size and another content; wherever it lies."""
  own = _vocabulary(4000, '0123')
  inputs.check_vocabulary(own, tmp_path, where='v')  # nothing is recorded
  run_directory.write_model(tmp_path, tiny.make_model(), vocabulary=own)
  inputs.check_vocabulary(own, tmp_path, where='v')
  other = other or _vocabulary(4000, 'abcd')
  with pytest.raises(errors.VocabularyError) as error:
    inputs.check_vocabulary(other, tmp_path, where='v')
  text = str(error.value)
  assert 'not the one that the model was trained with' in text
  assert f'Got: {other.spec.size:,} entries, abcdabcdabcd' in text
  assert f'Expected: 4,000 entries, 012301230123, as {tmp_path}' in text
