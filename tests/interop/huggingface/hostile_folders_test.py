"""Malicious model folders are rejected quickly with one error."""

import collections
import io
import json
import os
import pickle
import struct
import time
import zipfile

import numpy as np
import pytest
import safetensors.numpy
import torch

from tests.errors import raises_error
from tests.interop.huggingface import handmade
from xlflax.interop.huggingface import (
  config_json,
  huggingface_import,
  sentence_modules,
)
from xlflax.interop.huggingface.cards import card_metadata
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.utils import errors

_SECONDS = 8  # Allows for a busy machine.


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'hf').mkdir()
  return handmade.write_folder(tmp_path / 'hf')


def _assert_rejected(folder, text, *, kind=errors.XlflaxError, **settings):
  start = time.monotonic()
  with pytest.raises(kind, match=text) as caught:
    huggingface_import.check_import(folder, **settings)
  assert time.monotonic() - start < _SECONDS
  assert len(str(caught.value)) < 5_000
  return caught.value


def _edit(folder, name='config.json', **changes):
  path = folder / name
  before = json.loads(path.read_text()) if path.exists() else {}
  path.write_text(json.dumps(before | changes))


def test_unchanged_folder_is_read(folder):
  assert huggingface_import.check_import(folder).config.num_layers == 2


@pytest.mark.parametrize('size', [100, 10**9, 10**12, 10**25])
@pytest.mark.parametrize(
  'option',
  [
    'num_hidden_layers',
    'vocab_size',
    'hidden_size',
    'intermediate_size',
    'type_vocab_size',
  ],
)
def test_sizes_that_differ_from_the_tensors_are_rejected(folder, option, size):
  _edit(folder, **{option: size})
  error = _assert_rejected(
    folder,
    'do not match the shapes|is invalid|do not match the model',
    scan_layers=False,
  )
  assert str(size) in error.got


def test_huge_number_of_layers_is_rejected_quickly(tmp_path):
  (tmp_path / 'config.json').write_text(
    json.dumps({'model_type': 'modernbert', 'num_hidden_layers': 10**400})
  )
  start = time.monotonic()
  with raises_error(
    errors.XlflaxError, where='config.json', mentions='num_layers'
  ):
    config_json.describe_model(tmp_path)
  assert time.monotonic() - start < _SECONDS


@pytest.mark.parametrize('size', [10**9, 10**25])
def test_huge_max_position_embeddings_are_rejected(folder, size):
  _edit(folder, max_position_embeddings=size)
  _assert_rejected(folder, 'max_position_embeddings')


@pytest.mark.parametrize(
  'value', [[], [1], [['a', 'b']], 1, 'x', None, {'a': 'b', 'c': 1}]
)
def test_unusual_values_are_read_or_rejected(folder, value):
  for name, option in (
    ('config.json', 'lang2id'),
    ('config.json', 'id2label'),
    ('config.json', 'architectures'),
    ('tokenizer_config.json', 'mask_token'),
    ('tokenizer_config.json', 'extra_ids'),
  ):
    contents = {p.name: p.read_bytes() for p in folder.iterdir()}
    _edit(folder, name, **{option: value})
    try:
      huggingface_import.check_import(folder)
    except errors.XlflaxError:
      pass
    for path in folder.iterdir():
      path.unlink()
    for path, content in contents.items():
      (folder / path).write_bytes(content)


def test_folders_without_tensors_are_rejected(folder):
  safetensors.numpy.save_file({}, folder / 'model.safetensors')
  _assert_rejected(folder, 'model.safetensors contains no tensors')
  (folder / 'model.safetensors').unlink()
  _edit(folder, 'model.safetensors.index.json', weight_map={})
  _assert_rejected(folder, 'contains no tensors')


def _write_index(folder, file):
  """Moves the tensors away and writes an index that maps them to `file`."""
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').rename(folder.parent / 'elsewhere.safetensors')
  weights = {name: file for name in tensors}
  _edit(folder, 'model.safetensors.index.json', weight_map=weights)


@pytest.mark.parametrize(
  'name',
  ['{outside}', '../elsewhere.safetensors', 'x/../../elsewhere', '/dev/stdin'],
)
def test_shards_outside_the_folder_are_rejected(folder, name):
  outside = str(folder.parent / 'elsewhere.safetensors')
  _write_index(folder, name.format(outside=outside))
  error = _assert_rejected(folder, 'outside the folder')
  assert name.format(outside=outside) in error.got


@pytest.mark.parametrize(
  'name', ['.', '', 'a\0b', 'x' * 300, 'fifo.safetensors']
)
def test_invalid_shard_names_are_rejected(folder, name):
  os.mkfifo(folder / 'fifo.safetensors')
  _write_index(folder, name)
  _assert_rejected(folder, '.')


def test_links_out_of_the_folder_are_rejected(folder):
  _write_index(folder, 'link.safetensors')
  (folder / 'link.safetensors').symlink_to('../elsewhere.safetensors')
  _assert_rejected(folder, 'link.safetensors -> ')
  (folder / 'link.safetensors').unlink()
  (folder.parent / 'elsewhere.safetensors').rename(folder / 'model.safetensors')
  # The import would copy the file.
  (folder / 'vocab.txt').symlink_to('/etc/passwd')
  _assert_rejected(folder, 'vocab.txt -> /etc/passwd')


def test_links_of_the_hugging_face_cache_are_read(tmp_path):
  snapshot = tmp_path / 'models--a--b' / 'snapshots' / 'c0ffee'
  snapshot.mkdir(parents=True)
  handmade.write_folder(snapshot)
  blobs = tmp_path / 'models--a--b' / 'blobs'
  blobs.mkdir()
  for i, path in enumerate(list(snapshot.iterdir())):
    path.rename(blobs / str(i))
    path.symlink_to(f'../../blobs/{i}')
  assert huggingface_import.check_import(snapshot).config.num_layers == 2


@pytest.mark.parametrize(
  'index', [10**6, 10**9, 2**32 - 1, 2**33, -1, 1.5, 'x']
)
def test_invalid_token_ids_are_rejected(folder, index):
  vocab = handmade.TOKENIZER['model']['vocab'] | {'b': index}
  model = handmade.TOKENIZER['model'] | {'vocab': vocab}
  _edit(folder, 'tokenizer.json', model=model)
  _assert_rejected(folder, '.', unused_rows='keep')
  token = {'id': index, 'content': '[Q]', 'special': True}
  token |= dict.fromkeys(
    ('single_word', 'lstrip', 'rstrip', 'normalized'), False
  )
  _edit(
    folder, 'tokenizer.json', **handmade.TOKENIZER | {'added_tokens': [token]}
  )
  _assert_rejected(folder, '.', unused_rows='keep')


def test_huge_token_ids_in_vocab_json_are_rejected(folder):
  (folder / 'tokenizer.json').unlink()
  (folder / 'vocab.json').write_text('{"a": 1000000000}')
  (folder / 'merges.txt').write_text('#version: 0.2\n')
  _assert_rejected(folder, '1,000,000,000')
  _edit(folder, model_type='xlm')
  _assert_rejected(folder, '.')


def _with_regex(folder, pattern):
  split = {'type': 'Split', 'behavior': 'Isolated', 'invert': False}
  split['pattern'] = {'Regex': pattern}
  _edit(folder, 'tokenizer.json', pre_tokenizer=split)


def test_invalid_regular_expression_is_rejected(folder):
  _with_regex(folder, '(')
  _assert_rejected(folder, 'tokenizer.json cannot be read')


def test_valid_regular_expressions_are_read(folder):
  for pattern in (r'\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+', ' {2,}'):
    _with_regex(folder, pattern)
    encode = huggingface_import.check_import(folder).vocabulary.encode_batch
    assert encode(['a', 'b']) == [[5], [6]]


def test_tokenizer_panic_raises_one_error(folder):
  _with_regex(folder, '(a+)+$')
  vocabulary = huggingface_import.check_import(folder).vocabulary
  with raises_error(errors.VocabularyError, mentions='PanicException'):
    vocabulary.encode_batch(['a' * 40 + 'b'])


@pytest.mark.parametrize(
  'modules',
  [
    1,
    [1],
    [{}],
    [{'idx': 0, 'path': 5, 'type': 'Transformer'}],
    [{'idx': 0, 'path': '../..', 'type': 'x.Transformer'}],
    [{'idx': 0, 'path': '/etc', 'type': 'x.Transformer'}],
    [
      {'idx': 0, 'path': '', 'type': 'x.Transformer'},
      {'idx': 1, 'path': '../other', 'type': 'x.Pooling'},
    ],
  ],
)
def test_invalid_sentence_modules_are_rejected(folder, modules):
  (folder / sentence_modules.MODULES).write_text(json.dumps(modules))
  _assert_rejected(folder, '.')


def test_invalid_readme_is_tolerated(folder):
  for text in (
    b'---\nlicense: mit\n- x\n---\n',
    b'---\n- x\n---\n',
    b'\xff\xfe\n---\n',
    b'---\nlicense: mit\xff\n---\n',
  ):
    (folder / 'README.md').write_bytes(text)
    assert set(card_metadata.read_card_metadata(folder)) <= {
      'license',
      'language',
    }


def _nested(depth):
  """Returns opcodes of `depth` nested tuples with two references each."""
  return b')' + b'2\x86' * depth


def _pickled(body):
  return b'\x80\x02' + body + b'.'


@pytest.mark.parametrize(
  'content',
  [
    # keys whose hash or representation takes exponential time
    _pickled(b'}' + _nested(60) + b'K\x01s'),
    _pickled(b'}(' + _nested(60) + b'K\x01u'),
    _pickled(b'}X\x01\x00\x00\x00a' + _nested(60) + b's'),
    _pickled(_nested(60) + b'Q'),
    _pickled(b'ccollections\nOrderedDict\n' + _nested(1) + b'R'),
    _pickled(b'ctorch\nFloatStorage\n(K\x01tb'),  # the state of a dtype
    _pickled(b'cbuiltins\neval\n)R'),
    _pickled(b'\x8f(' + _nested(60) + b'\x90'),  # a set
    pickle.dumps(eval),
    pickle.dumps(collections.Counter(a=1)),
    b'\x80\x02' + b'(' * 100_000 + b'.',
  ],
)
def test_malicious_pickles_are_rejected(folder, content):
  (folder / 'model.safetensors').unlink()
  valid = io.BytesIO()
  torch.save({'a': torch.ones(2)}, valid)
  path = folder / 'pytorch_model.bin'
  with zipfile.ZipFile(valid) as source, zipfile.ZipFile(path, 'w') as target:
    for name in source.namelist():
      is_pickle = name.endswith('/data.pkl')
      target.writestr(name, content if is_pickle else source.read(name))
  _assert_rejected(folder, 'pytorch_model.bin')


def test_damaged_torch_files_are_rejected(folder):
  (folder / 'model.safetensors').unlink()
  path = folder / 'pytorch_model.bin'
  torch.save({'a': torch.ones(1000)}, path)
  content = path.read_bytes()
  for damaged in (b'', content[:100], content[:-100], pickle.dumps([1, 2])):
    path.write_bytes(damaged)
    _assert_rejected(folder, 'pytorch_model.bin')


def test_invalid_safetensors_headers_are_rejected(folder):
  path = folder / 'model.safetensors'
  for shape, offsets in (([10**12], [0, 4]), ([0, 10**15], [0, 0])):
    entry = {'dtype': 'F32', 'shape': shape, 'data_offsets': offsets}
    header = json.dumps({'a': entry}).encode()
    path.write_bytes(struct.pack('<Q', len(header)) + header + bytes(4))
    _assert_rejected(folder, 'model.safetensors')
  for length in (2**62, 2**64 - 1):
    path.write_bytes(struct.pack('<Q', length) + b'{}')
    _assert_rejected(folder, 'model.safetensors')


def test_torch_files_are_read(folder):
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').unlink()
  state = collections.OrderedDict(
    (name, torch.nn.Parameter(torch.from_numpy(v)))
    for name, v in tensors.items()
  )
  state._metadata = {'': {'version': 1}}
  for zipped in (True, False):
    torch.save(
      state, folder / 'pytorch_model.bin', _use_new_zipfile_serialization=zipped
    )
    found_tensors = tensor_files.find_tensors(folder)
    assert found_tensors.keys() == tensors.keys()
    for tensor, value in tensor_files.read_tensors(found_tensors.values()):
      np.testing.assert_array_equal(value, tensors[tensor.name])
