"""Malicious T5X checkpoints, written without T5X."""

import json

import flax.serialization
import numpy as np
import pytest

from xlflax.interop.t5x import checkpoint_files
from xlflax.utils import errors


def _write_zarr(folder, shape, *, chunks=None):
  """Writes the metadata of an array of zeros without chunks."""
  folder.mkdir(parents=True)
  described = {
    'zarr_format': 2,
    'shape': shape,
    'chunks': chunks or shape,
    'dtype': '<f4',
    'compressor': None,
    'fill_value': 0,
    'order': 'C',
    'filters': None,
  }
  (folder / '.zarray').write_text(json.dumps(described))


def _write(folder, target):
  folder.mkdir(exist_ok=True)
  content = {'version': 3, 'optimizer': {'target': target, 'state': {}}}
  (folder / 'checkpoint').write_bytes(
    flax.serialization.msgpack_serialize(content)
  )
  return folder


def _leaf(path, driver='zarr'):
  return {'driver': driver, 'kvstore': {'driver': 'file', 'path': path}}


def test_arrays_next_to_the_checkpoint_are_read(tmp_path):
  _write_zarr(tmp_path / 'checkpoint_1' / 'target.a', [4, 3])
  folder = _write(
    tmp_path / 'checkpoint_1',
    {'a': _leaf('gs://elsewhere/target.a/'), 'b': np.ones(2, np.float32)},
  )
  t5x_tensors = checkpoint_files.find_t5x_tensors(folder)
  assert {name: t.shape for name, t in t5x_tensors.items()} == {
    'a': (4, 3),
    'b': (2,),
  }
  assert t5x_tensors['a'].read().sum() == 0


@pytest.mark.parametrize('path', ['x/..', '..', '.', '/', ''])
def test_arrays_outside_the_checkpoint_are_rejected(tmp_path, path):
  _write_zarr(tmp_path / 'outside', [4, 3])
  (tmp_path / '.zarray').write_bytes(
    (tmp_path / 'outside' / '.zarray').read_bytes()
  )
  folder = _write(tmp_path / 'checkpoint_1', {'a': _leaf(path)})
  with pytest.raises(errors.CheckpointError):
    checkpoint_files.find_t5x_tensors(folder)


def test_links_out_of_the_checkpoint_are_rejected(tmp_path):
  _write_zarr(tmp_path / 'outside', [4, 3])
  folder = _write(tmp_path / 'checkpoint_1', {'a': _leaf('target.a')})
  (folder / 'target.a').symlink_to(tmp_path / 'outside')
  with pytest.raises(errors.CheckpointError, match='outside the folder'):
    checkpoint_files.find_t5x_tensors(folder)


@pytest.mark.parametrize('driver', ['json', 'http', 'n5', 'auto'])
def test_other_drivers_are_rejected(tmp_path, driver):
  folder = _write(tmp_path / 'checkpoint_1', {'a': _leaf('a', driver)})
  with pytest.raises(errors.CheckpointError, match=f"driver '{driver}'"):
    checkpoint_files.find_t5x_tensors(folder)


@pytest.mark.parametrize('shape', [[10**6, 10**6], [1 << 62], [10**9, 1, 1]])
def test_huge_arrays_without_chunks_are_rejected(tmp_path, shape):
  folder = tmp_path / 'checkpoint_1'
  _write_zarr(folder / 'target.a', shape, chunks=[1 for _ in shape])
  _write(folder, {'a': _leaf('target.a')})
  with pytest.raises(errors.CheckpointError):
    checkpoint_files.find_t5x_tensors(folder)


def test_deeply_nested_content_is_rejected(tmp_path):
  folder = tmp_path / 'checkpoint_1'
  folder.mkdir()
  (folder / 'checkpoint').write_bytes(b'\x81\xa1a' * 100_000 + b'\xc0')
  with pytest.raises(errors.CheckpointError):
    checkpoint_files.find_t5x_tensors(folder)
