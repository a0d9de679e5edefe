"""Length to which the tokenizer of an exported model truncates texts."""

import json
import types

import pytest

from xlflax.interop.huggingface import folder_writer, huggingface_import
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.training.checkpointing import run_directory

_CONFIG = types.SimpleNamespace(max_position_embeddings=12)


def _export(directory, inputs):
  return types.SimpleNamespace(
    task=Task.SEQUENCE_CLASSIFICATION,
    run=types.SimpleNamespace(
      directory=directory,
      inputs={Task.SEQUENCE_CLASSIFICATION.value: inputs},
      model=types.SimpleNamespace(config=_CONFIG),
    ),
  )


@pytest.mark.parametrize('is_trained, expected', [(True, 8), (False, 12)])
def test_fine_tuned_model_exports_its_training_length(
  tmp_path, monkeypatch, is_trained, expected
):
  """An imported model that was not trained further keeps its length."""
  monkeypatch.setattr(
    run_directory, 'read_trainer', lambda _: {'seed': 0} if is_trained else {}
  )
  folder_writer._write_max_length(tmp_path, _export(tmp_path, {'length': 8}))
  settings = json.loads((tmp_path / 'tokenizer_config.json').read_text())
  assert settings['model_max_length'] == expected


@pytest.mark.parametrize(
  'length, expected', [(8, 8), (512, 12), (10**30, 12), (None, 12)]
)
def test_imported_model_uses_the_length_of_its_tokenizer(
  tmp_path, length, expected
):
  if length is not None:
    (tmp_path / 'tokenizer_config.json').write_text(
      json.dumps({'model_max_length': length})
    )
  imported = types.SimpleNamespace(folder=tmp_path, config=_CONFIG)
  assert huggingface_import._max_length(imported) == expected
