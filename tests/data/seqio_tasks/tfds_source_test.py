"""Tests of TFDS sources."""

import pytest
import seqio

from tests.errors import raises_error
from xlflax.data.seqio_tasks import seqio_examples as task_examples
from xlflax.data.seqio_tasks import tfds_source
from xlflax.utils import errors


def test_registration_does_not_load_the_dataset(registry, monkeypatch):
  def fail(*args, **kwargs):
    raise AssertionError('looked up')

  monkeypatch.setattr(seqio.utils.tfds, 'builder', fail)
  tfds_source.add_monolingual('x1', 'no_such_dataset/en:1.0.0', language='en')
  task = tfds_source.add_parallel(
    'x2',
    'no_such_dataset/xx:1.0.0',
    languages=('de', 'en'),
    splits={'train': 'train[:1%]'},
  )
  assert tuple(task.splits) == ('train',)
  assert registry.task_languages('x2') == ('de', 'en')


@pytest.mark.usefixtures('registry')
def test_fingerprint_contains_the_split_slice(monkeypatch):
  """All slices have the same files, so the files do not distinguish them."""
  monkeypatch.setattr(
    tfds_source.TfdsSource, 'list_shards', lambda self, split: []
  )
  for name, part in {'x3': 'train[:1%]', 'x4': 'train[1%:]'}.items():
    tfds_source.add_monolingual(
      name, 'some/en:1.0.0', language='en', splits={'train': part}
    )
    fingerprint = task_examples.task_fingerprint(name, 'train')
    assert fingerprint['source'] == f'TfdsSource {part}'


def test_unprepared_dataset_is_rejected(tmp_path):
  """The dataset is known to TFDS but missing from the data directory."""
  source = tfds_source.TfdsSource(
    'wiki40b/de:1.3.0', splits={'train': 'train'}, data_dir=str(tmp_path)
  )
  with raises_error(
    errors.CorpusError, where='wiki40b/de:1.3.0', mentions='train'
  ):
    source.list_shards('train')


def test_unknown_dataset_error_mentions_data_dir(tmp_path):
  source = tfds_source.TfdsSource(
    'no_such_dataset/en:1.0.0',
    splits={'train': 'train'},
    data_dir=str(tmp_path),
  )
  for method in (
    source.num_input_examples,
    source.get_dataset,
    source.list_shards,
  ):
    with raises_error(
      errors.CorpusError, mentions=('no_such_dataset/en:1.0.0', 'TFDS_DATA_DIR')
    ):
      method('train')
