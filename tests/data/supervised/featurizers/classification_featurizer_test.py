"""Tests of the classification featurizers."""

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.dataset_config import SpecialTokenTemplate
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import (
  classification_featurizer,
  featurizer,
)
from xlflax.utils import errors

_LABELS = ('entailment', 'neutral')


def _example(text='the cat', paired='a dog', label='neutral', **more):
  return labeled_examples.ClassifiedText(
    **{
      'id': '0',
      'language': 'en',
      'text': text,
      'paired_text': paired,
      'label': label,
      **more,
    }
  )


def _maker(**kwargs):
  return classification_featurizer.ClassificationFeaturizer(
    labels=_LABELS, **kwargs
  )


def test_pair_docstring_example(toy_vocabulary):
  spec = toy_vocabulary.spec
  ((row,),) = _maker().make([_example()], toy_vocabulary, length=32)
  a, b = (toy_vocabulary.encode(text) for text in ('the cat', 'a dog'))
  assert row['token_ids'].tolist() == [
    spec.bos_id,
    *a,
    spec.eos_id,
    spec.eos_id,
    *b,
    spec.eos_id,
  ]
  assert row['labels'] == 1
  assert row['side_ids'].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 2)


def test_single_texts_and_language_ids(toy_vocabulary):
  single, pair = _maker().make(
    [
      _example(paired=None, label='entailment'),
      _example(language='de', paired_language='ru'),
    ],
    toy_vocabulary,
    length=32,
  )
  spec = toy_vocabulary.spec
  assert single[0]['token_ids'].tolist() == [
    spec.bos_id,
    *toy_vocabulary.encode('the cat'),
    spec.eos_id,
  ]
  assert single[0]['labels'] == 0
  assert not single[0]['side_ids'].any()
  first = pair[0]['side_ids'] == 0
  ids = {code: spec.languages.index(code) for code in ('de', 'ru')}
  assert set(pair[0]['language_ids'][first]) == {ids['de']}
  assert set(pair[0]['language_ids'][~first]) == {ids['ru']}


def test_batches_are_padded_and_unlabeled_examples_skipped(toy_vocabulary):
  maker = _maker(separator='bert')
  features = maker.make(
    [_example(), _example(label=None)], toy_vocabulary, length=40
  )
  assert [len(rows) for rows in features] == [1, 0]
  batch = featurizer.stack_features(
    features[0], maker.fields(40, toy_vocabulary.spec), num_rows=2
  )
  assert batch['token_ids'].shape == (2, 40)
  assert batch['labels'].tolist() == [1, -1]


@pytest.mark.parametrize(
  ('first', 'second', 'capacity'),
  [
    (5, 10, 9),
    (10, 5, 9),
    (7, 7, 9),
    (7, 7, 8),
    (3, 2, 5),
    (0, 9, 4),
    (9, 0, 4),
    (1, 8, 4),
    (8, 1, 4),
    (20, 19, 1),
  ],
)
def test_longest_text_is_truncated_first(first, second, capacity):
  a, b = first, second
  while a + b > capacity:  # as in BERT and Hugging Face
    if a > b:
      a -= 1
    else:
      b -= 1
  assert classification_featurizer.longest_first(first, second, capacity) == (
    a,
    b,
  )


@pytest.mark.parametrize('separator', list(SpecialTokenTemplate))
def test_long_pairs_fill_the_sequence(toy_vocabulary, separator):
  long = _example('the cat sees the river ' * 9, 'a dog ' * 4)
  (row,) = _maker(separator=separator).text_rows(
    [long], toy_vocabulary, length=24
  )
  assert len(row['token_ids']) == 24
  second = toy_vocabulary.encode('a dog ' * 4)
  second_ids = row['token_ids'][row['side_ids'] == 1].tolist()
  half = (24 - separator.num_special) // 2
  assert second_ids[-1 - min(half, len(second)) : -1] == second[:half]


def test_unknown_labels_are_rejected(toy_vocabulary):
  with raises_error(errors.CorpusError, mentions=('maybe', 'en', 7)):
    _maker().make([_example(label='maybe', id='7')], toy_vocabulary, length=32)


def test_length_below_the_special_tokens_is_rejected(toy_vocabulary):
  with raises_error(errors.ConfigError, mentions=4):
    _maker().text_rows([_example()], toy_vocabulary, length=4)


def test_texts_are_encoded_in_their_languages(toy_corpus, tmp_path):
  from xlflax.data.tokenizers import vocabulary_training

  union = vocabulary_training.train_vocabulary(
    toy_corpus, tmp_path / 'v', size=60, anchors='none'
  )
  (row,) = _maker().text_rows(
    [_example('die Katze', 'the cat', language='de', paired_language='en')],
    union,
    length=64,
  )
  de = union.encode('die Katze', language='de')
  en = union.encode('the cat', language='en')
  assert row['token_ids'].tolist() == [1, *de, 2, 2, *en, 2]
  assert not np.intersect1d(de, en).size


@pytest.fixture
def distillation(tmp_path):
  vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
  np.save(tmp_path / 'de.npy', vectors)
  return vectors, classification_featurizer.DistillationFeaturizer(
    labels=('query', 'document'), vectors={'de': str(tmp_path / 'de.npy')}
  )


def _line(name, language='de'):
  return _example(paired=None, label='query', id=name, language=language)


def test_texts_get_the_vector_of_their_line(toy_vocabulary, distillation):
  vectors, maker = distillation
  features = maker.make(
    [_line('1.0'), _line('3.0'), _line('3.1')], toy_vocabulary, length=16
  )
  fields = maker.fields(16, toy_vocabulary.spec)
  batch = featurizer.stack_features([row for (row,) in features], fields)
  assert batch['vectors'].dtype == np.int32
  np.testing.assert_array_equal(
    batch['vectors'].view(np.float32), vectors[[0, 2, 2]]
  )


@pytest.mark.parametrize(
  'example, values',
  [
    (_line('4.0'), (3, 'de', '4.0')),
    (_line('b.tsv:1.0'), (3, 'de', 'b.tsv:1.0')),
    (_line('1.0', 'fr'), ('fr', 0, 'DistillationFeaturizer.vectors')),
  ],
)
def test_line_without_a_vector_is_rejected(
  toy_vocabulary, distillation, example, values
):
  with raises_error(errors.CorpusError, mentions=values):
    distillation[1].make([example], toy_vocabulary, length=16)


@pytest.mark.parametrize('content', [None, b'no array'])
def test_file_without_vectors_is_rejected(toy_vocabulary, tmp_path, content):
  path = tmp_path / 'de.npy'
  if content is not None:
    path.write_bytes(content)
  maker = classification_featurizer.DistillationFeaturizer(
    labels=('query', 'document'), vectors={'de': str(path)}
  )
  with raises_error(errors.CorpusError, mentions='de.npy'):
    maker.fields(16, toy_vocabulary.spec)
