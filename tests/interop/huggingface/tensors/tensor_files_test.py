"""Reading tensors of all checkpoint formats."""

import json
import pathlib
import re
import sys

import numpy as np
import pytest
import safetensors.torch
import torch

from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.utils import errors


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
  tensors = tensor_files.find_tensors(folder)
  return {
    t.name: v for t, v in tensor_files.read_tensors(tensors.values())
  }, tensors


def _check(folder, state):
  values, tensors = _read(folder)
  assert values.keys() == state.keys() == tensors.keys()
  for name, tensor in state.items():
    want = tensor.detach().float().numpy()
    assert tensors[name].shape == want.shape
    np.testing.assert_array_equal(values[name].astype(np.float32), want)
  assert values['brain'].dtype.itemsize == 2
  for name, rows in (('table', [[6, 0], [6, 3]]), ('brain', [1]), ('ids', [])):
    rows = np.array(rows, int)
    got = tensor_files.read_rows(tensors[name], rows)
    np.testing.assert_array_equal(got, values[name][rows])
    assert got.dtype == values[name].dtype


@pytest.mark.parametrize('zipped', [True, False])
def test_files_written_by_torch_are_read(tmp_path, zipped):
  torch.save(
    _state(),
    tmp_path / 'pytorch_model.bin',
    _use_new_zipfile_serialization=zipped,
  )
  _check(tmp_path, _state())


def test_safetensors_are_read(tmp_path):
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
def test_shards_are_read(tmp_path, form):
  state, _ = _shards(tmp_path, form)
  _check(tmp_path, state)


def test_all_mismatches_of_the_index_are_listed(tmp_path):
  _, index = _shards(tmp_path)
  content = json.loads(index.read_text())
  weights = content['weight_map']
  del weights['ids']
  weights['ghost'] = weights['table']
  weights['half'] = weights['table']
  index.write_text(json.dumps(content))
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find_tensors(tmp_path)
  problems = caught.value.got.split('; ')
  assert [problem.split()[0] for problem in problems] == [
    'ghost',
    'half',
    'ids',
  ]
  assert 'model-00002-of-00002.safetensors' in problems[1]


def test_missing_and_damaged_shards_are_all_listed(tmp_path):
  _shards(tmp_path)
  (tmp_path / 'model-00001-of-00002.safetensors').unlink()
  damaged = tmp_path / 'model-00002-of-00002.safetensors'
  damaged.write_bytes(damaged.read_bytes()[:-3])
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find_tensors(tmp_path)
  message = str(caught.value)
  assert 'model-00001-of-00002.safetensors: ' in message
  assert re.search(r'model-00002-of-00002\.safetensors: Error', message)


def test_pickles_that_call_functions_are_rejected(tmp_path):
  marker = tmp_path / 'executed'

  class Hostile:
    def __reduce__(self):
      return pathlib.Path.touch, (marker,)

  torch.save(
    {'a': torch.ones(2), 'b': Hostile()}, tmp_path / 'pytorch_model.bin'
  )
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find_tensors(tmp_path)
  assert 'pytorch_model.bin' in caught.value.got
  assert not marker.exists()


@pytest.mark.parametrize(
  'content', [[1, 2], {'a': torch.ones(2), 'epoch': 3}, {1: torch.ones(2)}]
)
def test_torch_files_with_other_content_are_rejected(tmp_path, content):
  torch.save(content, tmp_path / 'pytorch_model.bin')
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find_tensors(tmp_path)
  assert caught.value.where == str(tmp_path)


def test_torch_files_require_torch(tmp_path, monkeypatch):
  torch.save({'a': torch.ones(2)}, tmp_path / 'pytorch_model.bin')
  monkeypatch.setitem(sys.modules, 'torch', None)
  with pytest.raises(errors.CheckpointError) as caught:
    tensor_files.find_tensors(tmp_path)
  assert 'safetensors' in caught.value.fix
  assert caught.value.where == str(tmp_path / 'pytorch_model.bin')


def test_empty_folder_is_rejected(tmp_path):
  with pytest.raises(errors.CheckpointError, match='model.safetensors'):
    tensor_files.find_tensors(tmp_path)
