"""Tests of SeqIO preprocessors."""

import pytest
import seqio
import tensorflow as tf

from tests.errors import raises_error
from xlflax.data.seqio_tasks import preprocessors
from xlflax.data.seqio_tasks.seqio_vocabulary import (
  DeferredVocabulary,
  SeqioVocabulary,
)
from xlflax.utils import errors


def _dataset(**columns) -> tf.data.Dataset:
  return tf.data.Dataset.from_tensor_slices(columns)


def _examples(dataset) -> list[dict]:
  return [
    {
      key: value.decode() if isinstance(value, bytes) else value.tolist()
      for key, value in example.items()
    }
    for example in dataset.as_numpy_iterator()
  ]


def test_tokenize_encodes_only_strings(toy_vocabulary):
  features = {'targets': seqio.Feature(SeqioVocabulary(toy_vocabulary))}
  texts = ['the cat', '', 'a bird', 'кошка', 'the dog']
  before = _dataset(targets=texts, starts_document=[True, False] * 2 + [True])
  after = preprocessors.tokenize_features(before, features, batch_size=2)
  assert after.element_spec['targets'].dtype == tf.int32
  assert after.element_spec['targets'].shape.as_list() == [None]
  assert _examples(after) == [
    {'targets': toy_vocabulary.encode(text), 'starts_document': start}
    for text, start in zip(texts, [True, False, True, False, True], strict=True)
  ]


def test_tokenize_keeps_token_ids(toy_vocabulary):
  features = {'targets': seqio.Feature(SeqioVocabulary(toy_vocabulary))}
  after = preprocessors.tokenize_features(_dataset(targets=[[7, 8]]), features)
  assert _examples(after) == [{'targets': [7, 8]}]


def test_tokenize_rejects_a_deferred_vocabulary():
  features = {'targets': seqio.Feature(DeferredVocabulary())}
  with raises_error(errors.VocabularyError, mentions=('--vocabulary', 'DIR')):
    preprocessors.tokenize_features(_dataset(targets=['a']), features)


def test_rename_keeps_only_the_named_features():
  after = preprocessors.rename_features(
    _dataset(text=['a'], url=['b']), {'targets': 'text'}
  )
  assert _examples(after) == [{'targets': 'a'}]


def test_rename_of_a_missing_feature_is_rejected():
  with raises_error(errors.CorpusError, got='text', mentions='body'):
    preprocessors.rename_features(_dataset(text=['a']), {'targets': 'body'})


def test_translation_drops_pairs_with_empty_sides():
  before = _dataset(de=['ja', 'nein', ''], en=['yes', ' ', 'no'])
  after = preprocessors.name_translation_sides(before, ('de', 'en'))
  assert _examples(after) == [{'inputs': 'ja', 'targets': 'yes'}]


def test_split_lines_marks_document_starts():
  after = preprocessors.split_lines(
    _dataset(text=['a\n\n b\n', 'c', ' \n'], url=['x', 'y', 'z'])
  )
  assert _examples(after) == [
    {'text': 'a', 'starts_document': True},
    {'text': 'b', 'starts_document': False},
    {'text': 'c', 'starts_document': True},
  ]


@pytest.mark.parametrize(
  'step',
  [
    preprocessors.split_lines,
    preprocessors.mark_documents,
    lambda dataset: preprocessors.rename_features(dataset, {'targets': 'text'}),
  ],
)
def test_examples_without_names_are_rejected(step):
  lines = tf.data.Dataset.from_tensor_slices(['a', 'b'])
  with raises_error(errors.CorpusError, mentions="{'text': line}"):
    step(lines)


@pytest.mark.parametrize(
  'step', [preprocessors.split_lines, preprocessors.mark_documents]
)
def test_examples_without_text_are_rejected(step):
  with raises_error(errors.CorpusError, got='body', mentions='text'):
    step(_dataset(body=['a']))


def test_mark_documents_keeps_existing_marks():
  after = preprocessors.mark_documents(_dataset(text=['a']))
  assert _examples(after) == [{'text': 'a', 'starts_document': True}]
  marked = _dataset(text=['a'], starts_document=[False])
  assert _examples(preprocessors.mark_documents(marked)) == [
    {'text': 'a', 'starts_document': False}
  ]
