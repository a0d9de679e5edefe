"""Files of other programs, made by their own writers, give their text."""

import functools
import gzip
import json
import struct

import numpy as np
import pytest

from tests.data.corpus.records_test import _DOCUMENTS, _LINES, _PAIRS, _SIDES
from xlflax.data.corpus import packed_records
from xlflax.data.corpus.directory import Corpus
from xlflax.foundation import errors


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


def write_mds(stem, rows, **options) -> None:
  streaming = pytest.importorskip('streaming')
  kinds = {str: 'str', int: 'int', float: 'float64', dict: 'json'}
  columns = {name: kinds[type(value)] for name, value in rows[0].items()}
  folder = f'{stem}.mds'
  with streaming.MDSWriter(
    out=folder, columns=columns, size_limit=300, **options
  ) as writer:
    for row in rows:
      writer.write(row)


def write_mds_by_hand(stem, rows) -> None:
  """As the published format says: for where its library is not installed."""
  folder = stem.with_name(f'{stem.name}.mds')
  folder.mkdir()
  shards = []
  for number, row in enumerate(rows):
    kinds = ['str' if isinstance(v, str) else 'json' for v in row.values()]
    cells = [
      value.encode() if isinstance(value, str) else _json(value)
      for value in row.values()
    ]
    sample = b''.join(struct.pack('<I', len(cell)) for cell in cells)
    sample += b''.join(cells)
    data = struct.pack('<III', 1, 12, 12 + len(sample)) + sample
    name = f'shard.{number:05}.mds'
    (folder / name).write_bytes(data)
    shards.append(
      {
        'column_names': list(row),
        'column_encodings': kinds,
        'column_sizes': [None] * len(row),
        'compression': None,
        'raw_data': {'basename': name, 'bytes': len(data)},
        'samples': 1,
        'zip_data': None,
      }
    )
  index = {'shards': shards, 'version': 2}
  (folder / 'index.json').write_text(json.dumps(index))


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


def write_megatron(stem, rows, kind='<u2') -> None:
  """Ids of bytes, of which each document ends with 256."""
  tokenizers = pytest.importorskip('tokenizers')
  letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  made = tokenizers.Tokenizer(
    tokenizers.models.BPE({one: n for n, one in enumerate(letters)}, [])
  )
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  made.add_special_tokens(['<eod>'])
  made.save(str(stem.parents[2] / 'tokenizer.json'))
  (stem.parents[1] / 'corpus.toml').write_text(
    "[[records]]\nfiles = '*.bin'\ntokenizer = '../tokenizer.json'\n"
  )
  ids = [[*made.encode(row['text']).ids, 256] for row in rows]
  lengths = np.array([len(one) for one in ids], '<i4')
  size = np.dtype(kind).itemsize
  begins = (np.cumsum(lengths) - lengths).astype('<i8') * size
  data = np.concatenate([np.array(one, kind) for one in ids]).tobytes()
  stem.with_name(f'{stem.name}.bin').write_bytes(data)
  code = {'<u2': 8, '<i4': 4}[kind]
  stem.with_name(f'{stem.name}.idx').write_bytes(
    b'MMIDIDX\x00\x00'
    + struct.pack('<QBQQ', 1, code, len(ids), len(ids) + 1)
    + lengths.tobytes()
    + begins.tobytes()
    + np.arange(len(ids) + 1, dtype='<i8').tobytes()
  )


WRITERS = {
  'tfrecord': write_tf_records,
  'tfrecord_of_json': functools.partial(write_tf_records, pack=_json),
  'tfrecord.gz': write_packed_tf_records,
  'array_record': write_array_records,
  'array_record_of_examples': functools.partial(
    write_array_records, pack=_example
  ),
  'mds': write_mds,
  'mds_packed': functools.partial(write_mds, compression='zstd:7'),
  'mds_by_hand': write_mds_by_hand,
  'dataset': write_dataset,
  'megatron': write_megatron,
}


def _stem(tmp_path, name: str):
  stem = tmp_path / 'corpus' / name
  stem.parent.mkdir(parents=True)
  return stem


@pytest.mark.parametrize('name', WRITERS)
def test_documents_of_other_programs(tmp_path, name):
  stem = _stem(tmp_path, 'mono/en.made')
  rows = [{'text': text, 'id': n} for n, text in enumerate(_DOCUMENTS)]
  WRITERS[name](stem, rows)
  corpus = Corpus(tmp_path / 'corpus')
  assert list(corpus.monolingual('en')) == _LINES


@pytest.mark.parametrize(
  'name', ['array_record', 'mds', 'mds_by_hand', 'dataset', 'tfrecord_of_json']
)
def test_pairs_of_other_programs(tmp_path, name):
  stem = _stem(tmp_path, 'parallel/en-fr')
  WRITERS[name](
    stem, [{'translation': {'en': en, 'fr': fr}} for en, fr in _PAIRS]
  )
  corpus = Corpus(tmp_path / 'corpus')
  assert list(corpus.parallel('en', 'fr')) == _SIDES


@pytest.mark.parametrize('name', ['mds', 'tfrecord'])
def test_numbers_leave_records_out(tmp_path, name):
  stem = _stem(tmp_path, 'mono/en')
  rows = [
    {'text': 'good', 'score': 0.75, 'id': -3},
    {'text': 'bad', 'score': 0.25, 'id': -3},
    {'text': 'other', 'score': 0.75, 'id': 1 << 40},
  ]
  WRITERS[name](stem, rows)
  (tmp_path / 'corpus/corpus.toml').write_text(
    '[[records]]\nat_least = { score = 0.5 }\nequal = { id = -3 }\n'
  )
  [line] = Corpus(tmp_path / 'corpus').monolingual('en')
  assert line.text == 'good'


@pytest.mark.parametrize('packed', ['', '.gz'])
def test_two_aligned_files(tmp_path, packed):
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
  with pytest.raises(errors.CorpusError, match='other numbers of lines'):
    list(corpus.parallel('en', 'fr'))


def test_an_aligned_file_that_is_missing(tmp_path):
  stem = _stem(tmp_path, 'parallel/en-fr.en')
  stem.write_text('one')
  with pytest.raises(errors.CorpusError, match='No such file') as told:
    Corpus(tmp_path / 'corpus')
  assert 'en-fr.fr' in str(told.value)
  stem.rename(stem.with_name('en-fr.fr'))
  with pytest.raises(errors.CorpusError, match='Unknown file name'):
    Corpus(tmp_path / 'corpus')


def test_a_changed_shard_index_or_tokenizer_is_seen(tmp_path):
  stem = _stem(tmp_path, 'mono/en')
  rows = [{'text': text} for text in _DOCUMENTS]
  write_megatron(stem, rows)
  write_mds_by_hand(stem.with_name('de'), rows)
  corpus = Corpus(tmp_path / 'corpus')
  for code, path in (
    ('de', stem.parent / 'de.mds/shard.00001.mds'),
    ('en', stem.parent / 'en.idx'),
    ('en', tmp_path / 'tokenizer.json'),
  ):
    before = corpus.group_fingerprint(code)
    with open(path, 'ab') as file:
      file.write(b' ')
    assert corpus.group_fingerprint(code) != before


@pytest.mark.parametrize(
  'name, content, what',
  [
    ('en.tfrecord', b'\x09' + bytes(7) + b'crc.' + b'short', 'cut off'),
    ('en.tfrecord', b'\xff' * 30, 'cut off'),
    ('en.tfrecord', b'\x02' + bytes(7) + b'crc.\x0a\x09crc.', 'neither JSON'),
    ('en.array_record', b'nothing' * 9, 'is damaged'),
  ],
)
def test_damage_is_named(tmp_path, name, content, what):
  stem = _stem(tmp_path, f'mono/{name}')
  stem.write_bytes(content)
  with pytest.raises(errors.CorpusError, match=what) as told:
    Corpus(tmp_path / 'corpus')
  assert name in str(told.value)


def test_a_name_without_a_network(tmp_path):
  pytest.importorskip('datasets')
  stem = _stem(tmp_path, 'mono/en.c4.dataset')
  stem.write_text("path = 'nobody/nothing'\nrevision = 'abc'\n")
  with pytest.raises(errors.CorpusError, match='cannot be read') as told:
    Corpus(tmp_path / 'corpus')
  assert 'HF_HUB_OFFLINE' in str(told.value)


@pytest.mark.parametrize('packed', [True, False])
def test_lists_of_an_example(packed):
  """As protocol buffers may have them, of which the first value counts."""
  values = b'\x0a\x02\x05\x07' if packed else b'\x08\x05\x08\x07'
  feature = b'\x1a' + bytes([len(values)]) + values
  entry = b'\x0a\x01n\x12' + bytes([len(feature)]) + feature
  features = b'\x0a' + bytes([len(entry)]) + entry
  record = b'\x0a' + bytes([len(features)]) + features
  assert packed_records.example(record) == {'n': 5}
  with pytest.raises(ValueError, match='neither JSON'):
    packed_records.example(record[:-1])
