"""Tests of vocabularies as SeqIO vocabularies."""

import copy

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.errors import assert_mentions, raises_error
from xlflax.data import task_report
from xlflax.data.seqio_tasks import corpus_tasks
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks.seqio_vocabulary import (
  DeferredVocabulary,
  SeqioVocabulary,
  resolve_deferred,
)
from xlflax.data.tokenizers.vocabulary_training import train_vocabulary
from xlflax.utils import errors


def _task(vocabulary) -> seqio.Task:
  return seqio.Task(
    'some_task',
    seqio.FunctionDataSource(
      lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
        {'targets': ['the cat']}
      ),
      splits=['train'],
    ),
    output_features={'targets': seqio.Feature(vocabulary, add_eos=False)},
    preprocessors=[seqio.preprocessors.tokenize],
  )


def test_encode_tf_accepts_a_string_or_a_batch(toy_vocabulary):
  wrapped = SeqioVocabulary(toy_vocabulary)
  texts = ['the cat', '', 'кошка']
  rows = [toy_vocabulary.encode(text) for text in texts]
  assert wrapped.encode_tf(tf.constant('the cat')).numpy().tolist() == rows[0]
  batch = wrapped.encode_tf(tf.constant(texts))
  assert batch.dtype == tf.int32
  assert batch.to_list() == rows


def test_decode_stops_at_eos(toy_vocabulary):
  wrapped = SeqioVocabulary(toy_vocabulary)
  ids = [*toy_vocabulary.encode('the cat'), 2, *toy_vocabulary.encode('dog')]
  assert wrapped.decode(ids) == 'the cat'
  assert wrapped.decode_tf(tf.constant([ids, ids])).numpy().tolist() == [
    b'the cat',
    b'the cat',
  ]


def test_sizes_and_special_ids(toy_vocabulary):
  wrapped = SeqioVocabulary(toy_vocabulary)
  assert (
    wrapped.vocab_size,
    wrapped.pad_id,
    wrapped.bos_id,
    wrapped.eos_id,
    wrapped.unk_id,
  ) == (180, 0, 1, 2, 3)


def test_deferred_vocabulary_must_be_resolved(toy_vocabulary):
  task = _task(DeferredVocabulary())
  with raises_error(errors.VocabularyError, mentions=('--vocabulary', 'DIR')):
    _ = task.output_features['targets'].vocabulary.vocab_size
  resolved = resolve_deferred(task, toy_vocabulary)
  example = next(iter(resolved.get_dataset(split='train', shuffle=False)))
  assert example['targets'].numpy().tolist() == toy_vocabulary.encode('the cat')
  assert task.output_features['targets'].vocabulary == DeferredVocabulary()


def test_different_vocabulary_is_rejected(tmp_path, toy_corpus, toy_vocabulary):
  other = train_vocabulary(toy_corpus, tmp_path, size=150)
  same = resolve_deferred(_task(SeqioVocabulary(other)), other)
  assert same.output_features['targets'].vocabulary.vocabulary == other
  with pytest.raises(errors.VocabularyError) as caught:
    resolve_deferred(_task(SeqioVocabulary(other)), toy_vocabulary)
  assert_mentions(caught.value.got, '150 tokens', other.hash[:12])
  assert_mentions(caught.value.expected, '180 tokens', toy_vocabulary.hash[:12])
  assert_mentions(str(caught.value), 'some_task')


def test_different_seqio_vocabulary_is_described(
  tmp_path, toy_corpus, toy_vocabulary
):
  other = train_vocabulary(toy_corpus, tmp_path, size=150)
  path = tmp_path / 'other.model'
  path.write_bytes(other.model)
  for vocabulary, values in (
    (seqio.SentencePieceVocabulary(str(path)), (path, '150 tokens')),
    (seqio.ByteVocabulary(), ('ByteVocabulary', '259 tokens')),
  ):
    with pytest.raises(errors.VocabularyError) as caught:
      resolve_deferred(_task(vocabulary), toy_vocabulary)
    assert_mentions(caught.value.got, *values)
    assert_mentions(caught.value.fix, 'DIR/sentencepiece.model', '--vocabulary')


@pytest.mark.parametrize('content', [None, b'not a model'])
def test_unreadable_sentencepiece_model_is_reported(
  tmp_path, toy_vocabulary, content
):
  path = tmp_path / 'other.model'
  if content is not None:
    path.write_bytes(content)
  task = _task(seqio.SentencePieceVocabulary(str(path)))
  with raises_error(errors.VocabularyError, mentions=('some_task', path)):
    resolve_deferred(task, toy_vocabulary)


def test_seqio_sentencepiece_with_the_same_model_is_accepted(
  tmp_path, toy_vocabulary
):
  path = tmp_path / 'sentencepiece.model'
  path.write_bytes(toy_vocabulary.model)
  task = _task(seqio.SentencePieceVocabulary(str(path)))
  assert (
    resolve_deferred(task, toy_vocabulary).output_features
    == task.output_features
  )


def test_sentencepiece_model_with_other_ids_is_rejected(
  tmp_path, toy_vocabulary
):
  """The ids of XLM-R, for example, are not those of its model."""
  path = tmp_path / 'sentencepiece.model'
  path.write_bytes(toy_vocabulary.model)
  task = _task(seqio.SentencePieceVocabulary(str(path)))
  moved = copy.copy(toy_vocabulary)
  moved.kind = 'sentencepiece_moved'
  moved.model_ids = np.arange(toy_vocabulary.spec.size)
  resolve_deferred(task, moved)
  moved.model_ids = moved.model_ids + 1
  with raises_error(
    errors.VocabularyError, mentions=('Vocabulary.load', 'SeqioVocabulary')
  ):
    resolve_deferred(task, moved)


@pytest.fixture(scope='module')
def union(tmp_path_factory, toy_corpus):
  return train_vocabulary(
    toy_corpus, tmp_path_factory.mktemp('union'), size=60, anchors='none'
  )


def test_features_are_encoded_in_their_language(union):
  wrapped = SeqioVocabulary(union, language='ru')
  ids = union.encode('кошка', language='ru')
  assert wrapped.encode('кошка') == ids
  assert wrapped.encode_tf(tf.constant(['кошка'])).to_list() == [ids]
  assert wrapped.decode(ids) == 'кошка'
  assert wrapped.piece(ids[0]) == union.piece(ids[0])
  # Equality ignores the language, since tasks of a mixture must have equal
  # vocabularies.
  assert wrapped == SeqioVocabulary(union, language='de')
  assert hash(wrapped) == hash(SeqioVocabulary(union))
  with raises_error(
    errors.VocabularyError, mentions=('language=CODE', 'add_monolingual_task')
  ):
    SeqioVocabulary(union).encode('the cat')


def test_languages_come_from_the_feature_or_the_argument(union):
  expected = union.encode('the cat', language='en')
  for vocabulary, given_languages in (
    (DeferredVocabulary('en'), ()),
    (DeferredVocabulary(), ('en',)),
    (SeqioVocabulary(union, language='en'), ('de',)),
    (SeqioVocabulary(union), ('en',)),
  ):
    task = resolve_deferred(_task(vocabulary), union, languages=given_languages)
    (example,) = task.get_dataset(split='train', shuffle=False)
    assert example['targets'].numpy().tolist() == expected


def test_corpus_tasks_and_mixtures_encode_in_their_languages(
  registry, toy_corpus, toy_sentences, union
):
  corpus_tasks.register_corpus(toy_corpus, prefix='u1')
  example = next(
    task_reader.read_tokenized_examples('u1.parallel.de_en', union)
  )
  for side, code in (('inputs', 'de'), ('targets', 'en')):
    assert example[side].tolist() == union.encode(
      toy_sentences[code][0], language=code
    )
  output = '\n'.join(
    task_report.describe_preprocessing('u1.mono.en', union, num_examples=1)
  )
  assert 'tokens:  en:▁' in output
  assert f'decoded: {toy_sentences["en"][0]!r}' in output
  for code in ('de', 'ru'):
    registry.add_monolingual_task(
      f'u1.own.{code}',
      registry.get_task(f'u1.mono.{code}').source,
      language=code,
      vocabulary=union,
    )
  mixture = registry.add_mixture('u1.own', ['u1.own.de', 'u1.own.ru'])
  ids = [
    example['targets']
    for example in mixture.get_dataset(
      split='train', shuffle=False, num_epochs=1, sequence_length=None
    ).as_numpy_iterator()
  ]
  texts = {union.decode(row.tolist()) for row in ids}
  assert {toy_sentences[code][0] for code in ('de', 'ru')} <= texts


def test_task_of_unknown_language_is_rejected(registry, union):
  task = _task(DeferredVocabulary())
  seqio.TaskRegistry.add(
    'u2',
    task.source,
    preprocessors=[registry.tokenize],
    output_features=dict(task.output_features),
  )
  with raises_error(errors.VocabularyError, mentions='set_task_languages'):
    next(task_reader.read_tokenized_examples('u2', union))
  registry.set_task_languages('u2', ['en'])
  assert next(task_reader.read_tokenized_examples('u2', union))[
    'targets'
  ].tolist() == (union.encode('the cat', language='en'))
