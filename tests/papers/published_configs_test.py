"""Tests of training and exporting encoders with published configurations.

Each configuration of released_configs.py with a masked LM head is tested at a
small size. The initial loss of `pretrain/mlm.gin` equals that of transformers
on the same masked batch. After 20 steps, transformers loads the exported model
and tokenizer with the same logits and ids. Encoders published without a head
are trained with a new head and exported without it.
"""

import dataclasses
import functools
import json

import numpy as np
import pytest
import safetensors.torch
import tokenizers
import torch
import transformers

from tests import gin_files
from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface import released_configs as released
from tests.papers import published
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.training.checkpointing import saved_run
from xlflax.training.initialization import init_from

_LANGUAGES = ('de', 'en', 'ru')


def _bytes(folder, **symbols):
  """Trains a byte-level tokenizer with the given symbols, in this order."""
  del folder
  byte_level = tokenizers.ByteLevelBPETokenizer()
  byte_level.train_from_iterator(
    reference_tokenizers.LINES,
    vocab_size=400,
    min_frequency=1,
    show_progress=False,
    special_tokens=list(dict.fromkeys(symbols.values())),
  )
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=byte_level._tokenizer,
    **{f'{role}_token': symbol for role, symbol in symbols.items()},
  )


def _xlm(folder):
  """Writes XLM's files with symbols, letters and one token of two letters."""
  letters = sorted(set(''.join(reference_tokenizers.LINES).lower()) - {' '})
  special = [f'<special{i}>' for i in range(10)]
  ends = [letter + '</w>' for letter in letters]
  pieces = ['<s>', '</s>', '<pad>', '<unk>', *special, *letters, *ends, 'th']
  (folder / 'vocab.json').write_text(
    json.dumps({piece: i for i, piece in enumerate(pieces)})
  )
  (folder / 'merges.txt').write_text('t h 9\n')
  (folder / 'tokenizer_config.json').write_text(
    json.dumps({'bos_token': '<s>', 'cls_token': '</s>'})
  )
  return transformers.XLMTokenizer.from_pretrained(folder)


_BERT = functools.partial(reference_tokenizers.bert, do_lower_case=False)
_GEMMA = functools.partial(
  _bytes,
  pad='<pad>',
  eos='<eos>',
  bos='<bos>',
  unk='<unk>',
  mask='<mask>',
  cls='<bos>',
  sep='<eos>',
)
_LLAMA = functools.partial(
  _bytes,
  bos='<|begin_of_text|>',
  eos='<|end_of_text|>',
  mask='<|mask|>',
  pad='<|end_of_text|>',
)
_TOKENIZERS = {
  'xlm-roberta-base': reference_tokenizers.xlmr,
  'xlm-roberta-large': reference_tokenizers.xlmr,
  'xlm-roberta-xl': reference_tokenizers.xlmr,
  'bert-base-multilingual-cased': _BERT,
  'roberta-base': reference_tokenizers.roberta,
  'roberta-large': reference_tokenizers.roberta,
  'xlm-mlm-100-1280': _xlm,
  'xlm-mlm-tlm-xnli15-1024': _xlm,
  'mmBERT-base': _GEMMA,
  'EuroBERT-210m': _LLAMA,
  'ModernBERT-base': _BERT,
  'distilbert-base-multilingual-cased': _BERT,
}

_HEADLESS = {
  'LaBSE': _BERT,
  'multilingual-e5-base': reference_tokenizers.xlmr,
  'bge-m3': reference_tokenizers.xlmr,
  'mdeberta-v3-base': _BERT,
}


def _options(name, tokenizer):
  """Returns the published keys with the size and ids of the small tokenizer."""
  options = dict(released.CONFIGS[name])
  options['n_words' if 'n_words' in options else 'vocab_size'] = len(tokenizer)
  for role in ('pad', 'bos', 'eos', 'cls', 'sep', 'mask'):
    token_id = getattr(tokenizer, f'{role}_token_id')
    if token_id is not None and f'{role}_token_id' in options:
      options[f'{role}_token_id'] = token_id
  if 'lang2id' in options:
    options['lang2id'] = {x: i for i, x in enumerate(_LANGUAGES)}
    options['id2lang'] = {str(i): x for i, x in enumerate(_LANGUAGES)}
  return options


def _publish(name, folder):
  """Writes a folder with the published config.json; returns model and tokenizer."""
  folder.mkdir()
  tokenizer = (_TOKENIZERS | _HEADLESS)[name](folder)
  tokenizer.save_pretrained(folder)
  options = _options(name, tokenizer)
  (folder / 'config.json').write_text(json.dumps(options))
  config = transformers.AutoConfig.from_pretrained(folder)
  config.dtype = 'float32'
  kind = options.get('architectures', ['DebertaV2Model'])[0]
  model = getattr(transformers, kind)(config).eval()
  torch.manual_seed(0)
  with torch.no_grad():
    for key, parameter in model.named_parameters():
      if 'norm' not in key.lower():
        parameter.normal_(std=0.2)
  model.save_pretrained(folder / 'weights')
  (folder / 'weights/model.safetensors').rename(folder / 'model.safetensors')
  assert safetensors.torch.load_file(folder / 'model.safetensors')
  return model, tokenizer


def _settings(directory, corpus, *more):
  bindings = {
    'MODEL_DIR': str(directory / 'run'),
    'INIT_FROM': str(directory / 'ours'),
    'CORPUS': str(corpus),
    'VOCABULARY': str(directory / 'ours/vocabulary'),
    'TRAIN_STEPS': 20,
    'WARMUP_STEPS': 2,
    'LEARNING_RATE': 1e-3,
    'LENGTH': 16,
    'BATCH_SIZE': 8,
  }
  return gin_files.settings_of(
    ['pretrain/mlm.gin', str(directory / 'ours/model.gin')],
    [*(f'{name}={value!r}' for name, value in bindings.items()), *more],
    vocabulary=bindings['VOCABULARY'],
  )


@pytest.mark.slow
@pytest.mark.parametrize('name', _TOKENIZERS)
def test_masked_lm_is_trained_and_exported(name, corpus, tmp_path):
  model, tokenizer = _publish(name, tmp_path / 'published')
  huggingface_import.convert_import(
    huggingface_import.check_import(
      tmp_path / 'published', languages=_LANGUAGES
    ),
    tmp_path / 'ours',
  )
  settings = _settings(tmp_path, corpus)
  ours, theirs = published.compute_losses(settings, 'mono', model)
  assert abs(ours - theirs) < 1e-4

  settings.train()
  run = saved_run.load_run(tmp_path / 'run')
  assert run.steps[-1] == 20
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  published.check_folder(tmp_path / 'back', run, model, tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize('name', _HEADLESS)
def test_encoder_without_a_head_is_trained_and_exported(name, corpus, tmp_path):
  model, tokenizer = _publish(name, tmp_path / 'published')
  huggingface_import.convert_import(
    huggingface_import.check_import(
      tmp_path / 'published', languages=_LANGUAGES
    ),
    tmp_path / 'ours',
  )
  settings = _settings(tmp_path, corpus, "EncoderConfig.mlm_head='transform'")
  init = init_from.InitFromCheckpoint(
    model_dir=str(tmp_path / 'ours'), allow_missing=True
  )
  dataclasses.replace(settings, init_from=init).train()
  run = saved_run.load_run(tmp_path / 'run')
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory, task='states'),
    tmp_path / 'back',
  )
  back = transformers.AutoModel.from_pretrained(tmp_path / 'back').eval()
  assert type(back) is type(model)
  published.check_tokenizer(tmp_path / 'back', tokenizer)
  ids = np.random.default_rng(0).integers(5, len(tokenizer), (2, 12))
  want = run.model.apply(
    {'params': run.restore_params(20)['model']},
    ids,
    segment_ids=np.ones_like(ids),
    method='encode',
  )
  with torch.no_grad():
    got = back(input_ids=torch.tensor(ids)).last_hidden_state.numpy()
  np.testing.assert_allclose(got, want, atol=3e-5, rtol=3e-5)
