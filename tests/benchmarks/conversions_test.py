"""Tests of the synthetic models of the conversion benchmark."""

import pytest

from benchmarks import conversions
from xlflax.interop.huggingface import huggingface_import
from xlflax.interop.huggingface.tensors import tensor_files


@pytest.mark.parametrize('sparse', [False, True])
def test_synthetic_model_has_the_requested_size(tmp_path, sparse):
  sizes = conversions.make_folder(tmp_path / 'hf', 0.01, sparse=sparse)
  assert 0.6e7 < sizes['file'] < 1.4e7
  checked = huggingface_import.check_import(tmp_path / 'hf')
  tensors = tensor_files.find_tensors(tmp_path / 'hf')
  word = tensors['roberta.embeddings.word_embeddings.weight']
  ((_, values),) = tensor_files.read_tensors([word])
  assert values.nbytes == sizes['largest'] > 0.5 * sizes['file']
  assert bool(values.any()) is not sparse
  assert len(checked.vocabulary) == len(values)
  path = tmp_path / 'hf' / tensor_files.SAFETENSORS
  if sparse:
    assert path.stat().st_blocks * 512 < sizes['file'] / 10
