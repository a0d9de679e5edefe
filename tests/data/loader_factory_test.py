"""Tests of loader construction. Tests of each loader cover its batches."""

import sys

from tests.errors import raises_error
from xlflax.data import dataset_config, loader_factory
from xlflax.data.tokenizers import base_vocabulary
from xlflax.utils import errors


def test_live_loader_requires_tensorflow(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  for name in ('live_loader', 'seqio_examples'):
    name = f'xlflax.data.seqio_tasks.{name}'
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(name, raising=False)
  dataset = dataset_config.DatasetConfig(
    name='s', mixture='m', layout='blocks', length=16, batch_size=4
  )
  with raises_error(
    errors.ConfigError,
    mentions=("dataset 's'", 'tensorflow', 'TensorFlow', 'SeqIO'),
  ):
    vocabulary = base_vocabulary.Vocabulary.__new__(base_vocabulary.Vocabulary)
    loader_factory.open_loader(dataset, vocabulary=vocabulary, seed=0)
