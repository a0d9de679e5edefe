"""Export of models whose token head has no transform layer."""

import json

import jax
import numpy as np
import pytest
import torch
import transformers

from tests.errors import raises_error
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax.config import gin_config
from xlflax.interop.huggingface import (
  export_plan,
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_PLAIN = dict(norm_position='pre', mlm_head='tied', pad_vocab_size_multiple=1)
_SMALL = _PLAIN | dict(position_embedding='rotary')  # like recipes/small.gin


def _run_transformers(auto, folder, texts):
  """Returns the tokens and the outputs of a model of transformers."""
  tokens = transformers.AutoTokenizer.from_pretrained(folder)(
    texts, padding=True, truncation=True, return_tensors='pt'
  )
  model = auto.from_pretrained(folder).eval()
  with torch.no_grad():
    return tokens, model(**tokens, output_hidden_states=True)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('options', 'model_type'),
  [
    (_SMALL, 'esm'),
    pytest.param(
      _SMALL | {'embedding_norm': False, 'rope_theta': 100.0},
      'esm',
      marks=pytest.mark.slow,
    ),
    pytest.param(
      _PLAIN | {'layer_norm_epsilon': 1e-12},
      'roberta-prelayernorm',
      marks=pytest.mark.slow,
    ),
  ],
)
def test_exported_states_and_logits_equal_the_run(
  run_of, tmp_path, options, model_type
):
  directory, model, params = run_of(**options)
  folder = tmp_path / 'out'
  assert (
    folder_writer.write_folder(
      huggingface_export.check_export(directory), folder
    )
    == []
  )
  config = json.loads((folder / 'config.json').read_text())
  assert config['model_type'] == model_type and config['linear_head']
  tokens, theirs = _run_transformers(
    transformers.AutoModelForMaskedLM, folder, ['the dog sleeps', 'die Katze']
  )
  mask = tokens['attention_mask'].numpy()
  ids = tokens['input_ids'].numpy()
  states = model.apply(
    {'params': params}, ids, segment_ids=mask, method='encode'
  )
  logits = model.apply({'params': params}, states, method='logits')
  mask = mask > 0
  outputs = theirs.hidden_states[-1].numpy()
  np.testing.assert_allclose(outputs[mask], states[mask], atol=2e-5)
  outputs = theirs.logits.numpy()
  np.testing.assert_allclose(outputs[mask], logits[mask], rtol=2e-5, atol=2e-4)


def test_round_trip_restores_the_trained_model(run_of, tmp_path):
  directory, model, params = run_of(**_SMALL)
  folder_writer.write_folder(
    huggingface_export.check_export(directory), tmp_path / 'out'
  )
  checked = huggingface_import.check_import(
    tmp_path / 'out', pad_vocab_size_multiple=1
  )
  huggingface_import.convert_import(checked, tmp_path / 'ours')
  run = saved_run.load_run(tmp_path / 'ours')
  assert run.model.config.mlm_head == model.config.mlm_head
  assert 'lm_head.dense.weight' in checked.plan.skipped
  before, after = map(
    param_tree.flatten_params, (params, run.restore_params(0)['model'])
  )
  assert before.keys() == after.keys()
  jax.tree.map(np.testing.assert_array_equal, before, after)


def test_export_in_float16_is_rejected(run_of, tmp_path):
  directory, *_ = run_of(**_SMALL)
  checked = huggingface_export.check_export(directory, dtype='float16')
  with raises_error(errors.CheckpointError, mentions=(16, 3, 'float16')):
    folder_writer.write_folder(checked, tmp_path / 'out')
  checked = huggingface_export.check_export(directory, dtype='bfloat16')
  assert folder_writer.write_folder(checked, tmp_path / 'out') == []


def test_sentence_encoders_are_exported_without_a_head(run_of, tmp_path):
  directory, model, params = run_of(**_SMALL)
  checked = huggingface_export.check_export(directory, pooling='mean_all')
  folder_writer.write_folder(checked, tmp_path / 'out')
  tokens, theirs = _run_transformers(
    transformers.AutoModel, tmp_path / 'out', ['die']
  )
  states = model.apply(
    {'params': params}, tokens['input_ids'].numpy(), method='encode'
  )
  encoder_states = theirs.last_hidden_state.numpy()
  np.testing.assert_allclose(encoder_states, states, atol=2e-5)


def test_small_recipe_is_exported_as_esm():
  model = gin_config.load_gin_files(['recipes/small.gin'], partial=True).macro(
    'MODEL'
  )
  assert export_plan.find_export_type(model.config, pad_id=0) == 'esm'
