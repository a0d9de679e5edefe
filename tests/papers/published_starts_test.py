"""Tests of training the rows of the papers from published models.

For each row, the masked LM loss of the first batch equals that of transformers
on the same masked batch. After 20 steps, the model is exported with its original
model type, and with the same logits and token ids.
"""

import functools

import numpy as np
import pytest
import torch
import transformers

from tests import gin_files
from tests.interop.huggingface import reference_tokenizers
from tests.papers import published
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.training.checkpointing import saved_run

_SIZES = dict(
  hidden_size=24,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=40,
)
_ROBERTA = _SIZES | dict(
  max_position_embeddings=34, type_vocab_size=1, layer_norm_eps=1e-5
)
# Row -> (gin file, class, options, tokenizer, the dataset of its masked LM).
_ROWS = {
  'metaxlm': (
    'papers/metaxlm/metaxlm.gin',
    'Roberta',
    _ROBERTA,
    reference_tokenizers.roberta,
    'mono',
  ),
  'ppa': (
    'papers/ppa/250k_no_moco.gin',
    'Bert',
    _SIZES | dict(max_position_embeddings=32),
    functools.partial(reference_tokenizers.bert, do_lower_case=False),
    'pairs',
  ),
  'veco': (
    'papers/veco/large_phase1.gin',
    'XLMRoberta',
    _ROBERTA,
    reference_tokenizers.xlmr,
    'sides',
  ),
}
_BINDINGS = {
  'model_config.EncoderConfig.num_layers': 2,
  'model_config.EncoderConfig.hidden_dim': 24,
  'model_config.EncoderConfig.mlp_dim': 40,
  'model_config.EncoderConfig.num_heads': 2,
  'model_config.EncoderConfig.max_position_embeddings': 32,
  'model_config.EncoderConfig.dtype': 'float32',
  'model_config.EncoderConfig.dropout_rate': 0.0,
  'model_config.EncoderConfig.attention_dropout_rate': 0.0,
  'TRAIN_STEPS': 20,
  'WARMUP_STEPS': 2,
  'LEARNING_RATE': 1e-3,
  'LENGTH': 16,
  'BATCH_SIZE': 8,
  'PAIR_LENGTH': 32,
  'PAIR_BATCH_SIZE': 8,
}


def _published(kind, options, make_tokenizer, folder):
  """Writes a published folder; returns the model and its tokenizer."""
  folder.mkdir()
  tokenizer = make_tokenizer(folder)
  tokenizer.save_pretrained(folder)
  config = getattr(transformers, f'{kind}Config')(
    vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **options
  )
  torch.manual_seed(0)
  model = getattr(transformers, f'{kind}ForMaskedLM')(config)
  with torch.no_grad():  # large enough to detect wrong positions
    for name, parameter in model.named_parameters():
      if 'norm' not in name.lower():
        parameter.normal_(std=0.2)
  model.save_pretrained(folder)
  return model.eval(), tokenizer


def _settings(gin_file, directory, corpus):
  bindings = _BINDINGS | {
    'MODEL_DIR': str(directory / 'run'),
    'INIT_DIR': str(directory / 'ours'),
    'CORPUS': str(corpus),
    'VOCABULARY': str(directory / 'ours' / 'vocabulary'),
    'MIN_TOKENS': 1,
    'MAX_TOKENS': 28,
  }
  names = gin_files.read_with_includes(gin_file)
  macro_bindings = [
    f'{name}={value!r}'
    for name, value in bindings.items()
    if '.' in name or f'%{name}' in names or f'{name} =' in names
  ]
  return gin_files.settings_of(
    [gin_file],
    macro_bindings,
    vocabulary=str(directory / 'ours' / 'vocabulary'),
  )


@pytest.mark.slow
@pytest.mark.parametrize('row', _ROWS)
def test_row_is_trained_from_the_published_model_and_exported(
  row, corpus, tmp_path
):
  gin_file, kind, options, make_tokenizer, dataset = _ROWS[row]
  model, tokenizer = _published(
    kind, options, make_tokenizer, tmp_path / 'published'
  )
  huggingface_import.convert_import(
    huggingface_import.check_import(
      tmp_path / 'published', languages=('en', 'de', 'ru')
    ),
    tmp_path / 'ours',
  )
  settings = _settings(gin_file, tmp_path, corpus)
  ours, theirs = published.compute_losses(settings, dataset, model)
  np.testing.assert_allclose(ours, theirs, atol=1e-4)

  settings.train()
  run = saved_run.load_run(tmp_path / 'run')
  assert run.steps[-1] == 20
  checked = huggingface_export.check_export(run.directory)
  folder_writer.write_folder(checked, tmp_path / 'back', license='mit')
  published.check_folder(tmp_path / 'back', run, model, tokenizer)
  card = (tmp_path / 'back/README.md').read_text()
  assert '- Started from: published' in card and 'license: mit' in card
  assert (
    'base_model' not in card
  )  # The name of a folder is not a name on the Hub.
  assert '- Steps: 20' in card
  plug_in = [name for name in checked.left_out if 'cross_attention' in name]
  assert bool(plug_in) == (row == 'veco')
