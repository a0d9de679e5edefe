"""Tests of lists of the training data of several trials."""

import types

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.data.supervised.sources import concatenated_source, example_source
from xlflax.finetuning import grid_data
from xlflax.utils import errors


@pytest.fixture
def files(tmp_path):
  """Paths of files with English, German and French examples."""
  files = {}
  for name, num_examples in (('en', 3), ('de_1', 2), ('de_2', 4), ('fr', 1)):
    path = tmp_path / f'{name}.tsv'
    path.write_text(''.join(f'text {i}\tyes\n' for i in range(num_examples)))
    files[name] = str(path)
  return files


def _source(**files):
  return example_source.FileDataset(
    format='tsv', files=files, options={'columns': {'text': 0, 'label': 1}}
  )


def _trainer(source, **fields):
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='labeled',
    source=source,
    featurizer=classification_featurizer.ClassificationFeaturizer(
      labels=('yes',)
    ),
    length=8,
    batch_size=2,
    **fields,
  )
  return types.SimpleNamespace(datasets=[dataset])


def test_training_data_lists_files_and_numbers_of_examples(files):
  german = files['de_1'], files['de_2']
  source = concatenated_source.ConcatDataset(
    sources=(_source(en=files['en'], de=german), _source(fr=files['fr']))
  )
  trainers = [_trainer(source) for _ in range(2)]
  data = grid_data.read_training_data(trainers)
  assert [(row.dataset, row.language, row.num_examples) for row in data] == [
    ('labeled', 'en', 3),
    ('labeled', 'de', 6),
    ('labeled', 'fr', 1),
  ]
  assert [row.source for row in data] == [
    files['en'],
    ', '.join(german),
    files['fr'],
  ]


def test_only_used_examples_are_counted(files):
  source = _source(en=files['en'], fr=files['fr'])
  (row,) = grid_data.read_training_data(
    [_trainer(source, splits=('en',), max_examples=2)]
  )
  assert (row.language, row.num_examples) == ('en', 2)


def test_trials_with_different_data_are_listed(files):
  trainers = [_trainer(_source(en=files[name])) for name in ('en', 'fr', 'en')]
  data = grid_data.read_training_data(trainers)
  assert [row.source for row in data] == [files['en'], files['fr']]


def test_unlabeled_text_is_listed_without_a_number():
  dataset = types.SimpleNamespace(name='mono', mixture='corpus.mono')
  trainer = types.SimpleNamespace(datasets=[dataset])
  (row,) = grid_data.read_training_data([trainer, trainer])
  assert (row.source, row.num_examples) == ('corpus.mono', None)


def test_missing_file_is_rejected(files, tmp_path):
  with raises_error(errors.CorpusError, mentions=('missing.tsv',)):
    grid_data.read_training_data(
      [_trainer(_source(en=str(tmp_path / 'missing.tsv')))]
    )
