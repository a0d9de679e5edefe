"""Tests of record files that other libraries have written."""

import functools
import gzip
import json

import pytest

from tests.data.corpus.record_reader_test import (
  _DOCUMENTS,
  _LINES,
  _PAIRS,
  _SIDES,
)
from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import binary_records
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.utils import errors


def _example(row) -> bytes:
  train = pytest.importorskip('tensorflow').train
  features = {
    name: train.Feature(bytes_list=train.BytesList(value=[value.encode()]))
    if isinstance(value, str)
    else train.Feature(float_list=train.FloatList(value=[value]))
    if isinstance(value, float)
    else train.Feature(int64_list=train.Int64List(value=[value]))
    for name, value in row.items()
  }
  example = train.Example(features=train.Features(feature=features))
  return example.SerializeToString()


def _json(row) -> bytes:
  return json.dumps(row).encode()


def write_tf_records(stem, rows, pack=_example) -> None:
  tf = pytest.importorskip('tensorflow')
  with tf.io.TFRecordWriter(f'{stem}.tfrecord') as writer:
    for row in rows:
      writer.write(pack(row))


def write_packed_tf_records(stem, rows) -> None:
  tf = pytest.importorskip('tensorflow')
  with tf.io.TFRecordWriter(f'{stem}.tfrecord.gz', 'GZIP') as writer:
    for row in rows:
      writer.write(_json(row))


def write_array_records(stem, rows, pack=_json) -> None:
  module = pytest.importorskip('array_record.python.array_record_module')
  writer = module.ArrayRecordWriter(f'{stem}.array_record', 'group_size:1')
  for row in rows:
    writer.write(pack(row))
  writer.close()


def write_dataset(stem, rows) -> None:
  pytest.importorskip('datasets')
  folder = stem.parents[2] / 'local'
  folder.mkdir(exist_ok=True)
  (folder / 'train.jsonl').write_bytes(
    b''.join(_json(row) + b'\n' for row in rows)
  )
  stem.with_name(f'{stem.name}.dataset').write_text(
    f"path = 'json'\ndata_files = '{folder}/*.jsonl'\n"
  )


WRITERS = {
  'tfrecord': write_tf_records,
  'tfrecord_of_json': functools.partial(write_tf_records, pack=_json),
  'tfrecord.gz': write_packed_tf_records,
  'array_record': write_array_records,
  'array_record_of_examples': functools.partial(
    write_array_records, pack=_example
  ),
  'dataset': write_dataset,
}


def _stem(tmp_path, name: str):
  stem = tmp_path / 'corpus' / name
  stem.parent.mkdir(parents=True)
  return stem


@pytest.mark.parametrize('name', WRITERS)
def test_documents_of_other_libraries_are_read(tmp_path, name):
  stem = _stem(tmp_path, 'mono/en.made')
  rows = [{'text': text, 'id': n} for n, text in enumerate(_DOCUMENTS)]
  WRITERS[name](stem, rows)
  corpus = Corpus(tmp_path / 'corpus')
  assert list(corpus.monolingual('en')) == _LINES


@pytest.mark.parametrize(
  'name', ['array_record', 'dataset', 'tfrecord_of_json']
)
def test_pairs_of_other_libraries_are_read(tmp_path, name):
  stem = _stem(tmp_path, 'parallel/en-fr')
  WRITERS[name](
    stem, [{'translation': {'en': en, 'fr': fr}} for en, fr in _PAIRS]
  )
  corpus = Corpus(tmp_path / 'corpus')
  assert list(corpus.parallel('en', 'fr')) == _SIDES


def test_records_are_filtered_by_numbers(tmp_path):
  stem = _stem(tmp_path, 'mono/en')
  rows = [
    {'text': 'good', 'score': 0.75, 'id': -3},
    {'text': 'bad', 'score': 0.25, 'id': -3},
    {'text': 'other', 'score': 0.75, 'id': 1 << 40},
  ]
  write_tf_records(stem, rows)
  (tmp_path / 'corpus/corpus.toml').write_text(
    '[[records]]\nmin_values = { score = 0.5 }\nfilter_equals = { id = -3 }\n'
  )
  [line] = Corpus(tmp_path / 'corpus').monolingual('en')
  assert line.text == 'good'


@pytest.mark.parametrize('packed', ['', '.gz'])
def test_aligned_files_are_read_as_pairs(tmp_path, packed):
  stem = _stem(tmp_path, 'parallel/en-fr.news.en')
  write = gzip.compress if packed else bytes
  sides = zip(*_SIDES, strict=True)
  for code, lines in zip(('en', 'fr'), sides, strict=True):
    path = stem.with_name(f'en-fr.news.{code}{packed}')
    path.write_bytes(write('\n'.join(lines).encode()))
  corpus = Corpus(tmp_path / 'corpus')
  assert list(corpus.parallel('en', 'fr')) == _SIDES
  [before] = corpus.group_fingerprint('en', 'fr')
  path.write_bytes(write(b'une maison'))
  [after] = corpus.group_fingerprint('en', 'fr')
  assert (before.path, before.size > after.size) == (after.path, True)
  with raises_error(errors.CorpusError, mentions=1):
    list(corpus.parallel('en', 'fr'))


def test_missing_aligned_file_is_an_error(tmp_path):
  stem = _stem(tmp_path, 'parallel/en-fr.en')
  stem.write_text('one')
  with raises_error(errors.CorpusError, where='en-fr.fr'):
    Corpus(tmp_path / 'corpus')
  stem.rename(stem.with_name('en-fr.fr'))
  with raises_error(errors.CorpusError, got='en-fr.fr', where='en-fr.fr'):
    Corpus(tmp_path / 'corpus')


@pytest.mark.parametrize(
  'name, content, values',
  [
    ('en.tfrecord', b'\x09' + bytes(7) + b'crc.' + b'short', 'en.tfrecord'),
    ('en.tfrecord', b'\xff' * 30, 'en.tfrecord'),
    (
      'en.tfrecord',
      b'\x02' + bytes(7) + b'crc.\x0a\x09crc.',
      ('JSON', 'en.tfrecord'),
    ),
    ('en.array_record', b'nothing' * 9, 'en.array_record'),
  ],
)
def test_damaged_record_files_are_rejected(tmp_path, name, content, values):
  stem = _stem(tmp_path, f'mono/{name}')
  stem.write_bytes(content)
  with raises_error(errors.CorpusError, mentions=values):
    Corpus(tmp_path / 'corpus')


def test_dataset_on_the_hub_requires_network_access(tmp_path):
  pytest.importorskip('datasets')
  stem = _stem(tmp_path, 'mono/en.c4.dataset')
  stem.write_text("path = 'nobody/nothing'\nrevision = 'abc'\n")
  with pytest.raises(errors.CorpusError) as caught:
    Corpus(tmp_path / 'corpus')
  assert_mentions(caught.value, 'HF_HUB_OFFLINE')


@pytest.mark.parametrize('packed', [True, False])
def test_first_value_of_a_tf_example_list_is_used(packed):
  """Covers packed and unpacked lists of protocol buffers."""
  values = b'\x0a\x02\x05\x07' if packed else b'\x08\x05\x08\x07'
  feature = b'\x1a' + bytes([len(values)]) + values
  entry = b'\x0a\x01n\x12' + bytes([len(feature)]) + feature
  features = b'\x0a' + bytes([len(entry)]) + entry
  record = b'\x0a' + bytes([len(features)]) + features
  assert binary_records.parse_tf_example(record) == {'n': 5}
  with raises_error(ValueError, mentions='JSON'):
    binary_records.parse_tf_example(record[:-1])
