"""Exports of xlflax models, compared with transformers."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import linen as nn

from tests.errors import assert_mentions, raises_error
from tests.models import random_parameters
from tests.slow import mark_slow
from xlflax.config import config_files, gin_config
from xlflax.interop.huggingface import (
  export_plan,
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.models import (
  encoder,
  encoder_config,
  encoder_decoder,
  encoder_decoder_config,
)
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import checkpoints, run_directory, saved_run
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_SIZES = dict(
  num_layers=2,
  hidden_dim=16,
  mlp_dim=32,
  num_heads=2,
  max_position_embeddings=12,
  initializer_range=0.5,
  layer_norm_epsilon=1e-5,
)


@pytest.fixture
def run_of(tmp_path, vocabulary, vocabulary_dir):
  """Fixture that writes a run of a model with the given options."""

  def make(run_model=None, *, change=lambda params: params, **options):
    run_model = run_model or encoder.Encoder(
      encoder_config.EncoderConfig(**_SIZES | options)
    )
    model = run_model.clone(
      config=encoder_config.with_vocabulary(run_model.config, vocabulary.spec)
    )
    directory = tmp_path / 'run'
    directory.mkdir()
    run_directory.write_model(directory, model)
    run_directory.copy_vocabulary(pathlib.Path(vocabulary_dir), directory)
    params = change(random_parameters.draw_parameters(model, spread=0.3))
    saved = checkpoints.Checkpoints(
      directory,
      checkpoints.CheckpointOptions(
        max_to_keep=None, enable_async_checkpointing=False
      ),
    )
    state = train_state.TrainState(
      step=jnp.int32(3),
      params={'model': params},
      opt_state={'m': jnp.zeros(2)},
      ema=(),
      objective_state={},
    )
    saved.save(state, {'seed': 0})
    saved.close()
    return directory, model, params

  return make


@pytest.mark.parametrize(
  ('options', 'model_type', 'first_row'),
  [
    ({}, 'bert', 0),
    pytest.param(
      {'head_activation': 'gelu', 'activation': 'relu'},
      'roberta',
      1,
      marks=pytest.mark.slow,
    ),
    ({'norm_position': 'pre'}, 'roberta-prelayernorm', 1),
    pytest.param(
      {'norm_position': 'pre', 'embedding_norm': False},
      'xlm-roberta-xl',
      1,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      {'type_vocab_size': 1, 'position_offset': 1},
      'roberta',
      0,
      marks=pytest.mark.slow,
    ),
    ({'type_vocab_size': 1, 'position_offset': 2}, 'roberta', 0),
    ({'norm_position': 'pre', 'position_offset': 3}, 'roberta-prelayernorm', 0),
  ],
)
def test_exported_logits_equal_the_run(
  run_of, tmp_path, options, model_type, first_row
):
  directory, model, params = run_of(**options)
  folder = tmp_path / 'out'
  folder_writer.write_folder(huggingface_export.check_export(directory), folder)
  config = json.loads((folder / 'config.json').read_text())
  assert config['model_type'] == model_type
  assert config['type_vocab_size'] == 1
  theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
  ids = np.array([[1, 9, 8, 7, 10, 2], [1, 20, 21, 2, 0, 0]], np.int32)
  mask = ids != 0
  logits = jax.jit(model.apply)(
    {'params': params}, ids, segment_ids=mask.astype(int)
  )
  with torch.no_grad():
    states = theirs(
      input_ids=torch.tensor(ids, dtype=torch.long),
      attention_mask=torch.tensor(mask, dtype=torch.long),
    ).logits.numpy()
  np.testing.assert_allclose(states[mask], logits[mask], atol=2e-4)
  table = next(
    value
    for name, value in theirs.state_dict().items()
    if name.endswith('position_embeddings.weight')
  )
  after_padding = model_type != 'bert'
  assert len(table) == 12 + after_padding
  assert not table[:first_row].any()
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  assert config['pad_token_id'] == tokenizer.pad_token_id == 0


@pytest.mark.parametrize(
  'family', mark_slow([None, 'post_ln', 'pre_ln'], slow=['post_ln'])
)
def test_round_trip_keeps_languages(run_of, tmp_path, family):
  model = None
  if family:
    sizes = {key: size for key, size in _SIZES.items() if key != 'num_layers'}
    model = encoder_decoder.EncoderDecoder(
      encoder_decoder_config.EncoderDecoderConfig(
        **sizes, family=family, num_encoder_layers=1, num_decoder_layers=1
      )
    )
  directory, *_ = run_of(model)
  languages = saved_run.load_run(directory).vocabulary.spec.languages
  folder = tmp_path / 'out'
  folder_writer.write_folder(huggingface_export.check_export(directory), folder)
  config = transformers.AutoConfig.from_pretrained(folder)
  assert config.xlflax_languages == list(languages)
  back = huggingface_import.convert_import(
    huggingface_import.check_import(folder), tmp_path / 'back'
  )
  run = saved_run.load_run(back)
  assert run.vocabulary.spec.languages == languages
  chosen = huggingface_import.check_import(folder, languages=languages[:1])
  assert chosen.vocabulary.spec.languages == languages[:1]


def test_logits_of_padded_texts_equal_the_run(run_of, tmp_path):
  directory, model, params = run_of(type_vocab_size=1, position_offset=2)
  folder = tmp_path / 'out'
  folder_writer.write_folder(huggingface_export.check_export(directory), folder)
  texts = ['the dog sleeps', 'die Katze', 'a']
  encoded = transformers.AutoTokenizer.from_pretrained(folder)(
    texts, padding=True, truncation=True, return_tensors='pt'
  )
  theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
  with torch.no_grad():
    exported_logits = theirs(**encoded).logits.numpy()
  mask = encoded['attention_mask'].numpy()
  logits = jax.jit(model.apply)(
    {'params': params}, encoded['input_ids'].numpy(), segment_ids=mask
  )
  real = mask > 0
  np.testing.assert_allclose(exported_logits[real], logits[real], atol=2e-4)


def test_sinusoidal_positions_require_the_offset_of_m2m_100():
  sizes = {key: value for key, value in _SIZES.items() if key != 'num_layers'}
  config = encoder_decoder_config.EncoderDecoderConfig(
    **sizes,
    family='pre_ln',
    num_encoder_layers=1,
    num_decoder_layers=1,
    position_embedding='sinusoidal_halves',
    embedding_norm=False,
    output_bias=False,
    position_offset=2,
  )
  assert export_plan.find_export_type(config, pad_id=1) == 'm2m_100'
  export_type = export_plan.find_export_type(config, pad_id=0)
  assert_mentions(export_type, 'm2m_100', 'position_offset', 2, 'id', 1)
  moved = dataclasses.replace(config, position_offset=1)
  assert export_plan.find_export_type(moved, pad_id=0) == 'm2m_100'


@pytest.mark.slow
def test_exported_logits_of_post_norm_encoder_decoders_equal_the_run(
  run_of, tmp_path
):
  sizes = {key: value for key, value in _SIZES.items() if key != 'num_layers'}
  directory, model, params = run_of(
    encoder_decoder.EncoderDecoder(
      encoder_decoder_config.EncoderDecoderConfig(
        **sizes, family='post_ln', num_encoder_layers=2, num_decoder_layers=1
      )
    )
  )
  folder = tmp_path / 'out'
  folder_writer.write_folder(huggingface_export.check_export(directory), folder)
  theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
  assert type(theirs).__name__ == 'BartForConditionalGeneration'
  source = np.array([[1, 9, 8, 7, 10, 2], [1, 20, 21, 2, 0, 0]], np.int32)
  target = np.array([[1, 11, 12, 2], [1, 22, 2, 0]], np.int32)
  logits = jax.jit(model.apply)(
    {'params': params},
    source,
    segment_ids=(source != 0).astype(np.int32),
    decoder_token_ids=target,
    decoder_segment_ids=(target != 0).astype(np.int32),
  )
  with torch.no_grad():
    states = theirs(
      input_ids=torch.tensor(source, dtype=torch.long),
      attention_mask=torch.tensor(source != 0, dtype=torch.long),
      decoder_input_ids=torch.tensor(target, dtype=torch.long),
    ).logits.numpy()
  np.testing.assert_allclose(
    states[target != 0], logits[target != 0], atol=2e-4
  )
  for side in (theirs.model.encoder, theirs.model.decoder):
    table = side.embed_positions.weight
    assert len(table) == 14 and not table[:2].any() and table[2:].any()


def test_exported_files_are_world_readable_and_truncate_texts(run_of, tmp_path):
  directory, *_ = run_of()
  folder = tmp_path / 'out'
  mask = os.umask(0o022)
  try:
    folder_writer.write_folder(
      huggingface_export.check_export(directory), folder
    )
  finally:
    os.umask(mask)
  assert {oct(p.stat().st_mode & 0o777) for p in folder.iterdir()} == {'0o644'}
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  assert tokenizer.model_max_length == 12
  assert len(tokenizer('dog ' * 50, truncation=True)['input_ids']) == 12


def test_find_export_type_reports_unsupported_options(vocabulary):
  config = encoder_config.with_vocabulary(
    encoder_config.EncoderConfig(**_SIZES), vocabulary.spec
  )
  assert export_plan.find_export_type(config, pad_id=0) == 'bert'
  odd = dataclasses.replace(config, scale_embeddings=True)
  text = export_plan.find_export_type(odd, pad_id=0)
  assert text.startswith('nothing: ') and 'scale_embeddings' in text


# Model type of the export of each shipped model size.
_SHIPPED = {
  'base': 'bert', 'ecs': 'xlm', 'eurobert_210m': 'eurobert', 'large': 'bert', 'mbart': 'mbart',
  'mmbert_base': 'modernbert', 'modernbert_base': 'modernbert',
  'mt5_base': 't5', 'small': 'bert', 't5_small': 't5', 'tiny': 'bert',
  'tiny_mbart': 'mbart', 'tiny_t5': 't5', 'tiny_transformer': 'bart',
  'transformer_base': 'bart', 'umt5_base': 'umt5',
}  # fmt: skip
# The decoder of VECO is the encoder with cross-attention.
_TIED = {'veco_small_translation', 'veco_translation'}


def _shipped_models() -> dict[str, nn.Module]:
  kinds = {}
  for name in config_files.shipped_file_names():
    if (
      name.startswith('models/')
      and not config_files.read_gin_file(name).required()
    ):
      configuration = gin_config.load_gin_files([name], partial=True)
      # The file is included by others.
      with contextlib.suppress(errors.ConfigError):
        kinds[pathlib.Path(name).stem] = configuration.macro('MODEL')
  return kinds


def test_every_shipped_size_can_be_exported():
  messages = {
    name: export_plan.find_export_type(model.config, pad_id=0)
    for name, model in _shipped_models().items()
  }
  tied = {name: messages.pop(name) for name in _TIED}
  assert messages == _SHIPPED
  assert all('tie_decoder is True' in why for why in tied.values())


@pytest.mark.parametrize(
  ('value', 'dtype', 'values'),
  [
    (np.nan, 'float32', ('model/embeddings/token', 'NaN', 1, '2,048', '3')),
    (-np.inf, 'bfloat16', ('model/embeddings/token', 'NaN', 1, '2,048', '3')),
    (1e6, 'float16', ('NaN', 1, 3, 'float16')),
  ],
)
def test_non_finite_parameters_are_not_exported(
  run_of, tmp_path, value, dtype, values
):
  """Values that overflow in the dtype of the export are rejected, too."""

  def change(params):
    table = np.array(params['embeddings']['token'])
    table[3, 2] = value
    return params | {'embeddings': params['embeddings'] | {'token': table}}

  directory, _, _ = run_of(change=change)
  checked = huggingface_export.check_export(directory, dtype=dtype)
  with raises_error(errors.CheckpointError, mentions=values) as caught:
    folder_writer.write_folder(checked, tmp_path / 'hf')
  assert ('--dtype=bfloat16' in str(caught.value)) == (dtype == 'float16')
  assert not (tmp_path / 'hf').exists()


@pytest.mark.parametrize(
  ('is_trained', 'task', 'num_warnings'),
  [(False, None, 1), (True, None, 0), (False, Task.STATES, 0)],
)
def test_export_of_an_untrained_head_causes_a_warning(
  run_of, tmp_path, caplog, is_trained, task, num_warnings
):
  def change(params):
    return param_tree.map_named(
      lambda name, leaf: (
        leaf * 0
        if re.search(r'output_bias$|head_(dense|norm)/bias$', name)
        and not is_trained
        else leaf
      ),
      params,
    )

  directory, *_ = run_of(change=change)
  checked = huggingface_export.check_export(directory, task=task)
  folder_writer.write_folder(checked, tmp_path / 'folder')
  messages = [m for m in caplog.messages if '--head=states' in m]
  assert len(messages) == num_warnings
