"""Tests of training and exporting encoder-decoders with published configurations.

Each encoder-decoder of released_configs.py is tested at a small size. The
initial loss of `pretrain/span_corruption.gin` or `pretrain/translation.gin`
equals that of transformers on the same batch, except for UMT5, whose hidden
states transformers 5 scales, unlike Google's code. After 20 steps, transformers
loads the exported model and tokenizer with the same logits and ids.
"""

import json

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from tests import gin_files
from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface import released_configs as released
from tests.papers import published
from xlflax.data import batch_keys
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.objectives import objective_base
from xlflax.objectives.pretraining import seq2seq
from xlflax.training import training_setup
from xlflax.training.checkpointing import saved_run


def _mbart_50(folder):
  reference_tokenizers.sentencepiece(folder, 'sentencepiece.bpe.model')
  return transformers.MBart50Tokenizer.from_pretrained(folder)


def _nllb(folder):
  reference_tokenizers.sentencepiece(folder, 'sentencepiece.bpe.model')
  tokenizer = transformers.NllbTokenizer.from_pretrained(folder)
  codes = [
    'deu_Latn',
    'eng_Latn',
    'rus_Cyrl',
  ]  # The published files contain 202 languages.
  tokenizer.add_special_tokens({'additional_special_tokens': codes})
  return tokenizer


# Name -> (gin file, tokenizer).
_MODELS = {
  't5-base': ('pretrain/span_corruption.gin', reference_tokenizers.mt5),
  'mt5-base': ('pretrain/span_corruption.gin', reference_tokenizers.mt5),
  'umt5-base': ('pretrain/span_corruption.gin', reference_tokenizers.mt5),
  'mbart-large-50': ('pretrain/translation.gin', _mbart_50),
  'nllb-200-distilled-600M': ('pretrain/translation.gin', _nllb),
}


def _publish(name, folder):
  """Writes a folder with the published config.json; returns model and tokenizer."""
  folder.mkdir()
  tokenizer = _MODELS[name][1](folder)
  tokenizer.save_pretrained(folder)
  options = released.CONFIGS[name] | {'vocab_size': len(tokenizer)}
  (folder / 'config.json').write_text(json.dumps(options))
  config = transformers.AutoConfig.from_pretrained(folder)
  config.dtype = 'float32'
  model = getattr(transformers, options['architectures'][0])(config).eval()
  torch.manual_seed(0)
  with torch.no_grad():
    for key, parameter in model.named_parameters():
      if 'norm' not in key.lower():
        parameter.normal_(std=0.1)
  model.save_pretrained(folder / 'weights')
  tensors = safetensors.torch.load_file(folder / 'weights/model.safetensors')
  if 'T5' in type(model).__name__ and not options.get('tie_word_embeddings', 1):
    tensors['lm_head.weight'] = model.lm_head.weight.detach()
  safetensors.torch.save_file(tensors, folder / 'model.safetensors')
  return model, tokenizer


def _settings(directory, gin_file, corpus):
  bindings = {
    'MODEL_DIR': str(directory / 'run'),
    'INIT_FROM': str(directory / 'ours'),
    'CORPUS': str(corpus),
    'VOCABULARY': str(directory / 'ours/vocabulary'),
    'TRAIN_STEPS': 20,
    'WARMUP_STEPS': 2,
    'LEARNING_RATE': 1e-3,
    'BATCH_SIZE': 8,
  }
  if 'translation' in gin_file:
    bindings |= {'SIDE_LENGTH': 14, 'LABEL_SMOOTHING': 0.0}
  else:
    bindings |= {'LENGTH': 24}
  return gin_files.settings_of(
    [gin_file, str(directory / 'ours/model.gin')],
    [f'{name}={value!r}' for name, value in bindings.items()],
    vocabulary=bindings['VOCABULARY'],
  )


def _losses(settings, model, monkeypatch):
  """Returns our first loss and that of transformers on the same batch."""
  setup = training_setup.Setup(settings)
  (entry,) = settings.objectives.entries
  loader = setup.open_loaders()[entry.dataset]
  batch = loader.rows(0, 0, loader.dataset.batch_size)
  loader.close()
  decoder_inputs = []
  decode = seq2seq.teacher_forcing.decode_with_teacher_forcing

  def watched(model, params, target_params, source, target, **more):
    decoder_inputs.append((source, target))
    return decode(model, params, target_params, source, target, **more)

  monkeypatch.setattr(
    seq2seq.teacher_forcing, 'decode_with_teacher_forcing', watched
  )
  context = objective_base.ObjectiveContext(
    vocabulary=setup.spec,
    step=np.int32(0),
    train=False,
    rng=jax.random.key(3),
    state=(),
  )
  ours = entry.objective(
    setup.model, setup.initial_state().params, batch, context
  ).loss
  ((source, target),) = decoder_inputs
  labels = np.where(np.array(target.weights) > 0, np.array(target.labels), -100)

  def ids(array):
    return torch.tensor(np.array(array)).long()

  with torch.no_grad():
    theirs = model(
      input_ids=ids(source[batch_keys.TOKEN_IDS]),
      attention_mask=ids(np.array(source[batch_keys.SEGMENT_IDS]) > 0),
      decoder_input_ids=ids(target.rows[batch_keys.TOKEN_IDS]),
      labels=ids(labels),
    ).loss.item()
  return float(ours.total / ours.weight), theirs


def _check_folder(folder, run, model, tokenizer):
  """Checks the logits, tokenizer and model type of an exported folder."""
  config = json.loads((folder / 'config.json').read_text())
  assert config['model_type'] == model.config.model_type
  back = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
  assert type(back) is type(model)
  published.check_tokenizer(folder, tokenizer)
  ids = np.random.default_rng(0).integers(5, len(tokenizer), (2, 12))
  ones = np.ones_like(ids)
  want = run.model.apply(
    {'params': run.restore_params(20)['model']},
    ids,
    segment_ids=ones,
    decoder_token_ids=ids[:, :7],
    decoder_segment_ids=ones[:, :7],
  )
  with torch.no_grad():
    got = back(
      input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(ids[:, :7])
    ).logits.numpy()
  if model.config.model_type == 'umt5':
    # transformers 5 scales the hidden states, unlike Google's code.
    got = got * model.config.d_model**0.5
  np.testing.assert_allclose(got, want, atol=3e-5, rtol=3e-5)


@pytest.mark.slow
@pytest.mark.parametrize('name', _MODELS)
def test_encoder_decoder_is_trained_and_exported(
  name, corpus, tmp_path, monkeypatch
):
  model, tokenizer = _publish(name, tmp_path / 'published')
  huggingface_import.convert_import(
    huggingface_import.check_import(
      tmp_path / 'published', languages=('de', 'en', 'ru')
    ),
    tmp_path / 'ours',
  )
  settings = _settings(tmp_path, _MODELS[name][0], corpus)
  if name != 'umt5-base':
    ours, theirs = _losses(settings, model, monkeypatch)
    assert abs(ours - theirs) < 1e-4

  settings.train()
  run = saved_run.load_run(tmp_path / 'run')
  assert run.steps[-1] == 20
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  _check_folder(tmp_path / 'back', run, model, tokenizer)
