"""ONNX export, compared with the exported model."""

import numpy as np
import pytest

from tests.errors import raises_error
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  onnx_files,
)
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']


def test_missing_packages_are_reported(run_of, tmp_path, monkeypatch):
  directory, *_ = run_of()
  monkeypatch.setattr(onnx_files, '_PACKAGES', ('numpy', 'no_such_package'))
  with raises_error(
    errors.ConfigError, got='no_such_package', mentions=('--onnx', 'onnx')
  ):
    folder_writer.write_folder(
      huggingface_export.check_export(directory), tmp_path / 'out', onnx=True
    )


@pytest.mark.parametrize('end', ['ConditionalGeneration', 'QuestionAnswering'])
def test_models_without_onnx_support_are_rejected(monkeypatch, end):
  monkeypatch.setattr(onnx_files, '_PACKAGES', ())
  with raises_error(errors.ConfigError, mentions='--onnx'):
    onnx_files.check_onnx_support({'architectures': [f'BartFor{end}']})


@pytest.mark.slow
@pytest.mark.parametrize(
  'options',
  [
    {'type_vocab_size': 2},
    {
      'norm_position': 'pre',
      'mlm_head': 'tied',
      'position_embedding': 'rotary',
    },
  ],
)
def test_onnxruntime_logits_equal_the_model(run_of, tmp_path, options):
  runtime = pytest.importorskip('onnxruntime')
  pytest.importorskip('onnxscript')
  directory, model, params = run_of(**options)
  folder = tmp_path / 'out'
  folder_writer.write_folder(
    huggingface_export.check_export(directory), folder, onnx=True
  )
  session = runtime.InferenceSession(folder / onnx_files.FILE)
  ids = np.array([[1, 9, 8, 7, 2], [1, 9, 2, 0, 0], [1, 2, 0, 0, 0]])
  session_inputs = {
    'input_ids': ids,
    'attention_mask': (ids > 0).astype(np.int64),
  }
  if 'type_vocab_size' in options:
    session_inputs['token_type_ids'] = np.zeros_like(ids)
  (outputs,) = session.run(['logits'], session_inputs)
  expected = model.apply({'params': params}, ids, segment_ids=ids > 0)
  np.testing.assert_allclose(outputs[ids > 0], expected[ids > 0], atol=1e-4)


@pytest.mark.slow
def test_incorrect_graph_is_rejected(run_of, tmp_path, monkeypatch):
  pytest.importorskip('onnxruntime')
  torch = pytest.importorskip('torch')
  directory, *_ = run_of()
  export = onnx_files._export

  def wrong(torch, model, inputs, path):
    with torch.no_grad():
      export(torch, model, inputs, path)
      model.bert.embeddings.LayerNorm.weight.mul_(2)

  del torch
  monkeypatch.setattr(onnx_files, '_export', wrong)
  with pytest.raises(errors.CheckpointError, match='onnxruntime'):
    folder_writer.write_folder(
      huggingface_export.check_export(directory), tmp_path / 'out', onnx=True
    )
  assert not (tmp_path / 'out').exists()
