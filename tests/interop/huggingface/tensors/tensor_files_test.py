"""Every form of a checkpoint holds the same tensors."""

import json
import pickle
import re

import numpy as np
import pytest
import safetensors.torch
import torch

from xlflax.foundation import errors
from xlflax.interop.huggingface.tensors import tensor_files, torch_pickles


def _state():
  generator = torch.Generator().manual_seed(0)
  table = torch.randn(7, 5, generator=generator)
  return {
    'table': table,
    'shared': table,
    'view': table[2:4, 1:].t(),
    'half': torch.randn(3, generator=generator).half(),
    'brain': torch.randn(2, 2, generator=generator).bfloat16(),
    'parameter': torch.nn.Parameter(torch.ones(4)),
    'ids': torch.arange(6)[None, :],
    'scalar': torch.tensor(3.0),
    'empty': torch.zeros(0, 3),
  }


def _read(folder):
  found = tensor_files.find(folder)
  return {t.name: v for t, v in tensor_files.read(found.values())}, found


def _check(folder, state):
  values, found = _read(folder)
  assert values.keys() == state.keys() == found.keys()
  for name, tensor in state.items():
    want = tensor.detach().float().numpy()
    assert found[name].shape == want.shape
    np.testing.assert_array_equal(values[name].astype(np.float32), want)
  assert values['brain'].dtype.itemsize == 2
  for name, rows in (('table', [[6, 0], [6, 3]]), ('brain', [1]), ('ids', [])):
    rows = np.array(rows, int)
    got = tensor_files.read_rows(found[name], rows)
    np.testing.assert_array_equal(got, values[name][rows])
    assert got.dtype == values[name].dtype


@pytest.mark.parametrize('zipped', [True, False])
def test_files_of_torch_are_read_without_it(tmp_path, zipped):
  torch.save(
    _state(),
    tmp_path / 'pytorch_model.bin',
    _use_new_zipfile_serialization=zipped,
  )
  _check(tmp_path, _state())


def test_safetensors(tmp_path):
  state = {k: v.detach().clone().contiguous() for k, v in _state().items()}
  safetensors.torch.save_file(state, tmp_path / 'model.safetensors')
  _check(tmp_path, state)


def _shards(folder, form='safetensors'):
  state = {k: v.detach().clone().contiguous() for k, v in _state().items()}
  weight_map = {}
  for i, name in enumerate(state):
    weight_map[name] = f'model-{i % 2 + 1:05}-of-00002.{form}'
  for file in set(weight_map.values()):
    part = {n: state[n] for n, f in weight_map.items() if f == file}
    if form == 'bin':
      torch.save(part, folder / file)
    else:
      safetensors.torch.save_file(part, folder / file)
  name = {'bin': 'pytorch_model.bin', 'safetensors': 'model.safetensors'}
  index = folder / f'{name[form]}.index.json'
  index.write_text(json.dumps({'weight_map': weight_map}))
  return state, index


@pytest.mark.parametrize('form', ['safetensors', 'bin'])
def test_shards(tmp_path, form):
  state, _ = _shards(tmp_path, form)
  _check(tmp_path, state)


def test_an_index_that_does_not_fit_lists_everything(tmp_path):
  _, index = _shards(tmp_path)
  content = json.loads(index.read_text())
  weights = content['weight_map']
  del weights['ids']
  weights['ghost'] = weights['table']
  weights['half'] = weights['table']
  index.write_text(json.dumps(content))
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find(tmp_path)
  message = str(caught.value)
  assert 'ghost is in the index, but not in' in message
  assert 'ids of model-' in message and 'is not in the index' in message
  assert 'half is in model-00002-of-00002.safetensors, not, as' in message


def test_missing_and_damaged_shards_are_all_listed(tmp_path):
  _shards(tmp_path)
  (tmp_path / 'model-00001-of-00002.safetensors').unlink()
  damaged = tmp_path / 'model-00002-of-00002.safetensors'
  damaged.write_bytes(damaged.read_bytes()[:-3])
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find(tmp_path)
  message = str(caught.value)
  assert 'model-00001-of-00002.safetensors: there is no such file' in message
  assert re.search(r'model-00002-of-00002\.safetensors: Error', message)
  assert 'incomplete or damaged' in message


def test_other_objects_in_a_pickle_are_refused(tmp_path):
  class Evil:
    def __reduce__(self):
      return print, ('run',)

  torch.save({'a': torch.ones(2), 'b': Evil()}, tmp_path / 'pytorch_model.bin')
  with pytest.raises(errors.CheckpointError, match=r'names \w+\.print'):
    tensor_files.find(tmp_path)
  (tmp_path / 'pytorch_model.bin').write_bytes(pickle.dumps([1, 2]))
  with pytest.raises(errors.CheckpointError, match='no file of torch.save'):
    tensor_files.find(tmp_path)
  torch.save({'a': torch.ones(2), 'epoch': 3}, tmp_path / 'pytorch_model.bin')
  with pytest.raises(errors.CheckpointError, match='more than tensors: epoch'):
    tensor_files.find(tmp_path)


def test_an_empty_folder_is_no_checkpoint(tmp_path):
  with pytest.raises(errors.CheckpointError, match='no checkpoint'):
    tensor_files.find(tmp_path)


@pytest.mark.parametrize(
  ('offset', 'shape', 'strides', 'message'),
  [
    (-3, (2,), (1,), 'impossible'),
    (0, (4,), (-1,), 'impossible'),
    (3, (2, 2), (-2, 1), 'impossible'),
    (0, (-1,), (1,), 'impossible'),
    (0, (2, 2), (1,), 'impossible'),
    (0, (2,), (True,), 'impossible'),
    (0, (2,), (1 << 60,), 'impossible'),
    (3, (4,), (1,), 'outside'),
    (0, (10**9,), (0,), 'far larger'),
  ],
)
def test_views_that_would_read_foreign_memory(offset, shape, strides, message):
  """What a `.bin` says of its tensors is not believed."""
  numbers = np.arange(6, dtype=np.float32)
  storage = torch_pickles.Storage('0', np.dtype(np.float32), 6)
  with pytest.raises(ValueError, match=message):
    torch_pickles.Stored(storage, offset, shape, strides).view(numbers)


def test_views_that_are_right():
  numbers = np.arange(6, dtype=np.float32)
  storage = torch_pickles.Storage('0', np.dtype(np.float32), 6)
  view = torch_pickles.Stored(storage, 1, (2, 2), (1, 2)).view(numbers)
  np.testing.assert_array_equal(view, [[1, 3], [2, 4]])
  for shape in ((), (0, 3)):
    got = torch_pickles.Stored(storage, 2, shape, (1,) * len(shape)).view(
      numbers
    )
    assert got.shape == shape
