"""Import and export of models with published config.json files."""

import functools
import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from tests.interop.huggingface import reference_models as reference
from tests.interop.huggingface import released_configs as released
from tests.slow import mark_slow
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.models import encoder_decoder
from xlflax.training.checkpointing import saved_run

_LENGTH = 9
_MASK = np.array([[1] * 9, [1] * 6 + [0] * 3])


def published(name, folder):
  """Writes a folder with a published config.json and returns its model."""
  options = released.CONFIGS[name]
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps(options))
  reference.write_tokenizer(folder, 61, options['model_type'])
  config = transformers.AutoConfig.from_pretrained(folder)
  config.dtype = 'float32'
  kind = options.get('architectures', ['DebertaV2Model'])[0]
  model = getattr(transformers, kind)(config).eval()
  torch.manual_seed(0)
  with torch.no_grad():
    for key, parameter in model.named_parameters():
      scale = 'norm' in key.lower() and key.endswith('weight')
      parameter.copy_(0.2 * torch.randn(parameter.shape) + scale)
  model.save_pretrained(folder / 'weights')
  tensors = safetensors.numpy.load_file(folder / 'weights/model.safetensors')
  if 'T5' in type(model).__name__ and not options.get('tie_word_embeddings', 1):
    tensors['lm_head.weight'] = model.lm_head.weight.detach().numpy()
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
  for path in (folder / 'weights').iterdir():
    path.unlink()
  (folder / 'weights').rmdir()
  return model


def _inputs(model):
  ids = np.random.default_rng(0).integers(5, 61, (2, _LENGTH))
  return np.where(_MASK, ids, model.config.pad_token_id)


def _reference_outputs(model):
  ids = torch.tensor(_inputs(model))
  more = {}
  if model.config.is_encoder_decoder:
    more = {'decoder_input_ids': ids[:, :5]}
  elif getattr(model.config, 'use_lang_emb', False):
    more = {'langs': torch.ones_like(ids)}
  with torch.no_grad():
    output = model(input_ids=ids, attention_mask=torch.tensor(_MASK), **more)
    # The model is a base model without a head.
    if 'decoder_input_ids' in more and 'logits' not in output:
      return (output.last_hidden_state @ model.shared.weight.T).numpy()
  return (
    output.logits if 'logits' in output else output.last_hidden_state
  ).numpy()


@functools.partial(jax.jit, static_argnums=(0, 3))
def _apply(model, params, ids, states):
  more = {}
  if isinstance(model, encoder_decoder.EncoderDecoder):
    target = ids[:, :5]
    return model.apply(
      {'params': params},
      ids,
      segment_ids=_MASK,
      decoder_token_ids=target,
      decoder_segment_ids=np.ones((2, 5), np.int32),
    )
  if model.config.use_language_embeddings:
    more['language_ids'] = np.ones_like(_MASK)
  return model.apply(
    {'params': params},
    ids,
    segment_ids=_MASK,
    method='encode' if states else '__call__',
    **more,
  )


# Each model takes several CPU seconds. parity_test and recent_encoders_test test
# the other architectures in the quick tests.
@pytest.mark.parametrize(
  'name',
  mark_slow(
    released.CONFIGS,
    slow=set(released.CONFIGS)
    - {
      'xlm-roberta-base',
      'bert-base-multilingual-cased',
      'mt5-base',
      'mmBERT-base',
    },
  ),
)
def test_published_configuration_equals_transformers(name, tmp_path):
  """The imported model and its export have the outputs of transformers."""
  model = published(name, tmp_path / 'hf')
  checked = huggingface_import.check_import(
    tmp_path / 'hf',
    languages=['ar', 'en', 'zh'] if name.startswith('xlm-mlm') else None,
  )
  run = saved_run.load_run(
    huggingface_import.convert_import(checked, tmp_path / 'ours')
  )
  want = _reference_outputs(model)
  params = run.restore_params(0)['model']
  states = checked.description.task == 'states'
  got = np.asarray(_apply(run.model, params, _inputs(model), states))
  compared = np.ones(want.shape[:2]) if want.shape[1] == 5 else _MASK
  np.testing.assert_allclose(
    got[compared > 0], want[compared > 0], atol=3e-5, rtol=3e-5
  )
  assert released.SOURCES[name]
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  back = getattr(transformers, type(model).__name__).from_pretrained(
    tmp_path / 'back'
  )
  assert back.config.model_type == model.config.model_type
  np.testing.assert_array_equal(
    _reference_outputs(back.eval()), _reference_outputs(model)
  )


def test_unused_t5_tensor_is_skipped(tmp_path):
  """T5 v1.0 files contain it in the first decoder layer."""
  published('t5-base', tmp_path / 'hf')
  path = tmp_path / 'hf' / 'model.safetensors'
  name = (
    'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight'
  )
  safetensors.numpy.save_file(
    safetensors.numpy.load_file(path) | {name: np.zeros((32, 3), 'float32')},
    path,
  )
  checked = huggingface_import.check_import(tmp_path / 'hf')
  assert checked.plan.skipped[name] == 'buffer that the model does not use'
