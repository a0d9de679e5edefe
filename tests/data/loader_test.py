import sys

import jax.numpy as jnp
import pytest

from xlflax import errors
from xlflax.data import loader as loader_lib
from xlflax.data import stream as stream_lib


def _stream(layout, **settings):
  return stream_lib.Stream(
    name='s', mixture='m', layout=layout, length=16, batch_size=4, **settings
  )


def test_spec_has_the_keys_of_the_layout():
  one = {'token_ids', 'segment_ids', 'positions', 'language_ids'}
  assert loader_lib.batch_spec(_stream('blocks')).keys() == one
  assert loader_lib.batch_spec(_stream('pairs')).keys() == one | {'side_ids'}
  both = loader_lib.batch_spec(_stream('sides'))
  assert both.keys() == one | {f'paired_{key}' for key in one}
  assert {(v.shape, v.dtype) for v in both.values()} == {
    ((4, 16), jnp.dtype('int32'))
  }


@pytest.mark.parametrize(
  'layout, languages',
  [
    ('blocks', ('en',)),
    ('adjacent', ('en',)),
    ('sentences', ('en',)),
    ('pairs', ('de', 'en')),
    ('sides', ('de', 'en')),
  ],
)
def test_layouts_and_their_tasks(layout, languages):
  stream = _stream(layout)
  loader_lib.check_sides(stream, 't', languages)
  other = ('en',) if len(languages) == 2 else ('de', 'en')
  with pytest.raises(
    errors.ConfigError,
    match=f'Layout.{layout.upper()} '
    "needs a .* task. Got: t .*stream 's', mixture 'm'",
  ):
    loader_lib.check_sides(stream, 't', other)


@pytest.mark.parametrize(
  'step, start, stop', [(-1, 0, 4), (0, 0, 5), (0, -1, 2), (0, 2, 2), (0, 3, 1)]
)
def test_rows_that_no_batch_has(step, start, stop):
  with pytest.raises(ValueError, match='in batches of 4'):
    loader_lib.check_range(_stream('blocks'), step, start, stop)


def test_live_without_tensorflow(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  for name in ('live_loader', 'examples'):
    name = f'xlflax.data.seqio_tasks.{name}'
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(name, raising=False)
  with pytest.raises(
    errors.ConfigError,
    match='Reading text live needs '
    "TensorFlow and SeqIO. Got: no module 'tensorflow'.*"
    r'Install xlflax\[data\], or give the directory',
  ):
    loader_lib.open_loader(_stream('blocks'), vocabulary=None, seed=0)
