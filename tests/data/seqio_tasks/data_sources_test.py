"""Tests of SeqIO sources over corpus text."""

import pytest
import tensorflow as tf

from tests.errors import raises_error
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.plain_text import text_source as text_rows
from xlflax.data.seqio_tasks import data_sources
from xlflax.utils import errors


def test_monolingual_source_reads_lines(toy_corpus):
  source = data_sources.monolingual_source(toy_corpus, 'ru')
  assert source.splits == ('train', 'validation')
  assert source.num_input_examples('train') == 100
  examples = list(
    data_sources.numpy_examples(source.get_dataset('train', shuffle=False))
  )
  assert [
    (e['text'].decode(), bool(e['starts_document'])) for e in examples
  ] == list(toy_corpus.monolingual('ru'))


def test_parallel_source_reads_pairs(toy_corpus):
  source = data_sources.create_text_source(
    text_rows.parallel_rows(toy_corpus, ('de', 'en'))
  )
  examples = list(
    data_sources.numpy_examples(source.get_dataset('test', shuffle=False))
  )
  assert [
    (e['inputs'].decode(), e['targets'].decode()) for e in examples
  ] == list(toy_corpus.parallel('de', 'en', 'test'))


def test_corpus_errors_contain_file_and_line(tmp_path):
  (tmp_path / 'parallel').mkdir()
  (tmp_path / 'parallel' / 'de-en.tsv').write_text('a\tb\n' * 2000 + 'bad\n')
  rows = text_rows.parallel_rows(Corpus(tmp_path), ('de', 'en'))
  source = data_sources.create_text_source(rows)
  dataset = source.get_dataset('train', shuffle=False).batch(10)
  with raises_error(
    errors.CorpusError, where='de-en.tsv:2001', mentions=('bad', 1)
  ):
    for _ in data_sources.numpy_examples(dataset):
      pass


def test_unrelated_tensorflow_errors_are_not_converted():
  dataset = tf.data.Dataset.range(1).map(
    lambda x: tf.debugging.check_numerics(x / 0, 'no number')
  )
  with pytest.raises(tf.errors.InvalidArgumentError, match='no number'):
    list(data_sources.numpy_examples(dataset))


def test_fingerprint_covers_the_files_of_the_split(toy_corpus):
  source = data_sources.monolingual_source(toy_corpus, 'en')
  assert source.text.fingerprint('validation') == toy_corpus.group_fingerprint(
    'en', split='validation'
  )
