import numpy as np
import pytest

from xlflax.data import dataset_config
from xlflax.data.batching import collate as text_rows
from xlflax.data.dataset_config import PositionIds, SpecialTokenTemplate
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors

SPEC = vocabulary_spec.VocabularySpec(
  size=32,
  pad_id=0,
  bos_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('en', 'fr', 'zh_Hans'),
)


class _Vocabulary:
  spec = SPEC
  needs_language = False

  def language_id(self, code):
    if code not in SPEC.languages:
      raise errors.VocabularyError('unknown', got=code)
    return SPEC.languages.index(code)


def test_text_row_docstring_example():
  row = featurizer.text_row([np.array([7, 8]), np.array([9])], [0, 1], SPEC)
  assert {key: value.tolist() for key, value in row.items()} == {
    'token_ids': [1, 7, 8, 2, 2, 9, 2],
    'segment_ids': [1] * 7,
    'positions': [0, 1, 2, 3, 4, 5, 6],
    'language_ids': [0, 0, 0, 0, 1, 1, 1],
    'side_ids': [0, 0, 0, 0, 1, 1, 1],
  }
  assert all(value.dtype == np.int32 for value in row.values())


@pytest.mark.parametrize('separator', list(SpecialTokenTemplate))
@pytest.mark.parametrize('positions', list(PositionIds))
def test_pair_features_equal_those_of_pretraining(separator, positions):
  texts = [np.array([7, 8, 9]), np.array([10, 11])]
  dataset = dataset_config.DatasetConfig(
    name='pairs',
    mixture='m',
    layout='pairs',
    length=12,
    batch_size=1,
    pairs=dataset_config.PairOptions(separator=separator, positions=positions),
  )
  expected = text_rows.build_batch(
    [text_rows.Row([tuple(texts)], (1, 2))], dataset, SPEC
  )
  row = featurizer.text_row(
    texts, [1, 2], SPEC, separator=separator, positions=positions
  )
  batch = featurizer.stack_features([row], featurizer.text_fields(12, SPEC))
  assert batch.keys() == expected.keys()
  for key in batch:
    np.testing.assert_array_equal(batch[key], expected[key])
  assert len(row['token_ids']) == 5 + featurizer.num_special(2, separator)


def test_single_text_features_equal_those_of_pretraining():
  dataset = dataset_config.DatasetConfig(
    name='s', mixture='m', layout='sentences', length=6, batch_size=1
  )
  expected = text_rows.build_batch(
    [text_rows.Row([(np.array([7, 8]),)], (1,))], dataset, SPEC
  )
  row = featurizer.text_row([np.array([7, 8])], [1], SPEC)
  batch = featurizer.stack_features([row], featurizer.text_fields(6, SPEC))
  for key in expected:
    np.testing.assert_array_equal(batch[key], expected[key])
  assert len(row['token_ids']) == 2 + featurizer.num_special(
    1, SpecialTokenTemplate.XLMR
  )


def test_stack_features_pads_rows_and_adds_empty_rows():
  fields = {'ids': featurizer.Field((3,), 9), 'label': featurizer.Field((), -1)}
  batch = featurizer.stack_features(
    [{'ids': np.array([1, 2]), 'label': np.int32(5)}], fields, num_rows=2
  )
  assert batch['ids'].tolist() == [[1, 2, 9], [9, 9, 9]]
  assert batch['label'].tolist() == [5, -1]
  assert batch['ids'].dtype == np.int32


def test_language_id_of_known_and_unknown_languages():
  vocabulary = _Vocabulary()
  assert featurizer.language_id(vocabulary, 'fr') == 1
  assert featurizer.language_id(vocabulary, 'zh') == 2  # the only variant
  assert featurizer.language_id(vocabulary, 'sw') == 0
  vocabulary.needs_language = True
  assert featurizer.language_id(vocabulary, 'zh') == 2
  with pytest.raises(errors.VocabularyError):
    featurizer.language_id(vocabulary, 'sw')
