"""Import and export of ESM models, compared with transformers."""

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from tests.errors import raises_error
from tests.interop.huggingface import reference_models as reference
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.models.heads import classification_heads
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.utils import errors

_SIZES = reference.BERT_SIZES | dict(
  num_attention_heads=3,
  num_hidden_layers=2,
  max_position_embeddings=16,
  position_embedding_type='rotary',
  rope_theta=100.0,
  layer_norm_eps=1e-5,
  pad_token_id=1,
  num_labels=3,
)


def _make_model(kind, folder, **options):
  """Saves a model with random weights and returns it."""
  model = getattr(transformers, kind)(
    transformers.EsmConfig(**_SIZES | options)
  ).eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      noise = torch.randn(parameter.shape, generator=generator) * 0.2
      scale = 'norm' in name.lower() and name.endswith('weight')
      parameter.copy_(noise + 1 if scale else noise)
  reference.save_model(model, folder)
  return model


@pytest.mark.parametrize(
  ('kind', 'options'),
  [
    ('EsmForMaskedLM', {'emb_layer_norm_before': True}),
    pytest.param(
      'EsmForMaskedLM', {'tie_word_embeddings': False}, marks=pytest.mark.slow
    ),
    pytest.param('EsmForSequenceClassification', {}, marks=pytest.mark.slow),
    pytest.param('EsmForTokenClassification', {}, marks=pytest.mark.slow),
    pytest.param('EsmModel', {}, marks=pytest.mark.slow),
  ],
)
def test_import_and_export_round_trip(tmp_path, kind, options):
  model = _make_model(kind, tmp_path / 'hf', **options)
  huggingface_import.convert_import(
    huggingface_import.check_import(tmp_path / 'hf'), tmp_path / 'ours'
  )
  run = saved_run.load_run(tmp_path / 'ours')
  record = run_directory.read_run_file(run.directory, huggingface_import.RECORD)
  assert record['not_compared'] == []
  params = run.restore_params(0)
  ids, _ = reference.make_inputs(model)
  is_token = reference.PADDING > 0
  states = jax.jit(run.model.apply, static_argnames='method')(
    {'params': params['model']},
    ids,
    segment_ids=reference.PADDING,
    method='encode',
  )
  with torch.no_grad():
    theirs = reference.run_model(model)
  if kind == 'EsmForMaskedLM':
    outputs = run.model.apply(
      {'params': params['model']}, states, method='logits'
    )
  elif kind == 'EsmModel':
    outputs = states
  else:
    (head,) = (h for n, h in params['heads'].items() if n != 'pooler')
    is_sequence_head = kind == 'EsmForSequenceClassification'
    read = (
      classification_heads.sequence_logits
      if is_sequence_head
      else classification_heads.token_logits
    )
    outputs = read(head, states)
  expected = theirs[0].numpy()
  if expected.ndim == 3:
    outputs, expected = outputs[is_token], expected[is_token]
  np.testing.assert_allclose(outputs, expected, atol=2e-5, rtol=2e-5)
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  first, second = (
    {  # transformers saves the norms of ESM under their legacy names.
      name.replace('.gamma', '.weight').replace('.beta', '.bias'): value
      for name, value in safetensors.numpy.load_file(
        tmp_path / folder_name / 'model.safetensors'
      ).items()
    }
    for folder_name in ('hf', 'back')
  )
  assert second.keys() == {n for n in first if 'inv_freq' not in n}
  for name in second.keys() - {n for n in first if 'contact_head' in n}:
    np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_protein_models_are_rejected(tmp_path):
  _make_model('EsmForMaskedLM', tmp_path, token_dropout=True, mask_token_id=4)
  with raises_error(
    errors.ConfigError, where='config.json', mentions='token_dropout'
  ):
    huggingface_import.check_import(tmp_path)
