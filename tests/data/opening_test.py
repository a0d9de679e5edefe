"""Opening loaders; what they read is tested beside each of them."""

import sys

from tests.errors import raises_error
from xlflax.data import opening
from xlflax.data import stream as stream_lib
from xlflax.data.vocabularies import vocabulary as vocabulary_lib
from xlflax.foundation import errors


def test_live_without_tensorflow(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  for name in ('live_loader', 'examples'):
    name = f'xlflax.data.seqio_tasks.{name}'
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(name, raising=False)
  stream = stream_lib.Stream(
    name='s', mixture='m', layout='blocks', length=16, batch_size=4
  )
  with raises_error(
    errors.ConfigError,
    where="stream 's'",
    mentions=('tensorflow', 'TensorFlow', 'SeqIO'),
  ):
    vocabulary = vocabulary_lib.Vocabulary.__new__(vocabulary_lib.Vocabulary)
    opening.open_loader(stream, vocabulary=vocabulary, seed=0)
