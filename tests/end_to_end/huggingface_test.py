"""Tests of importing, evaluating, training and exporting a model."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import torch
import transformers
from tokenizers import trainers

from tests.end_to_end.conftest import _STEMS

_TRAINING = (
  '--gin_file=pretrain/mlm.gin',
  '--gin.LENGTH=16',
  '--gin.BATCH_SIZE=8',
  '--gin.WARMUP_STEPS=1',
  '--gin.LEARNING_RATE=1e-3',
  '--gin.trainer.Trainer.log_metrics_every=2',
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Tiny XLM-R with a tokenizer trained on the corpus."""
  folder = tmp_path_factory.mktemp('hf')
  trainer = trainers.UnigramTrainer(
    vocab_size=90,
    unk_token='<unk>',
    show_progress=False,
    special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'],
  )
  tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  tokenizer.decoder = tokenizers.decoders.Metaspace()
  tokenizer.train_from_iterator(
    [' '.join(stems) for stems in _STEMS.values()] * 9, trainer
  )
  fast = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizer,
    bos_token='<s>',
    eos_token='</s>',
    cls_token='<s>',
    sep_token='</s>',
    pad_token='<pad>',
    unk_token='<unk>',
    mask_token='<mask>',
  )
  fast.save_pretrained(folder)
  torch.manual_seed(0)
  transformers.XLMRobertaForMaskedLM(
    transformers.XLMRobertaConfig(
      vocab_size=len(fast),
      hidden_size=16,
      num_hidden_layers=2,
      num_attention_heads=2,
      intermediate_size=32,
      type_vocab_size=1,
      max_position_embeddings=34,
      layer_norm_eps=1e-5,
    )
  ).save_pretrained(folder)
  return folder


def _weights(folder):
  return safetensors.numpy.load_file(folder / 'model.safetensors')


@pytest.mark.slow
def test_imported_model_is_evaluated_trained_and_exported(
  folder, workspace, tmp_path
):
  ours, run = tmp_path / 'ours', tmp_path / 'run'
  output = workspace.run(
    'convert', 'from-hf', str(folder), '--output', str(ours), '--dry_run'
  )
  assert 'XLMRobertaForMaskedLM (xlm-roberta, masked_lm)' in output
  assert (
    'roberta.embeddings.word_embeddings.weight [' in output
    and '-> model/embeddings/token [' in output
  )
  assert not ours.exists()
  workspace.run(
    'convert',
    'from-hf',
    str(folder),
    '--output',
    str(ours),
    '--languages=en,de,ru',
  )

  workspace.run(
    'evaluate',
    f'--model_dir={ours}',
    '--tasks=retrieval,perplexity',
    f'--corpus={workspace.root / "corpus"}',
  )
  summary = (ours / 'eval/summary.csv').read_text()
  assert 'perplexity' in summary and 'retrieval' in summary

  workspace.run(
    'train',
    *_TRAINING,
    f'--gin_file={ours}/model.gin',
    f'--model_dir={run}',
    f'--vocabulary={ours}/vocabulary',
    f'--corpus={workspace.root / "corpus"}',
    '--gin.TRAIN_STEPS=2',
    f'--gin.INIT_FROM={ours}',
    '--gin.optimizers.AdamW.weight_decay=0.0',
  )
  workspace.run(
    'convert', 'to-hf', str(run), '--output', str(tmp_path / 'back')
  )
  before, after = _weights(folder), _weights(tmp_path / 'back')
  assert before.keys() - after.keys() == set()
  moved = [np.abs(after[name] - before[name]).max() for name in before]
  assert 0 < max(moved) < 0.01  # after two small steps
  loaded, info = transformers.AutoModelForMaskedLM.from_pretrained(
    tmp_path / 'back', output_loading_info=True
  )
  assert not info['missing_keys'] and not info['unexpected_keys']
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'back')
  first = transformers.AutoTokenizer.from_pretrained(folder)
  assert tokenizer.encode('the cat') == first.encode('the cat')
  assert loaded.config.max_position_embeddings == 34


@pytest.mark.slow
def test_import_and_export_round_trip(folder, workspace, tmp_path):
  workspace.run(
    'convert',
    'from-hf',
    str(folder),
    '--output',
    str(tmp_path / 'ours'),
    '--scan_layers=false',
  )
  output = workspace.run(
    'convert',
    'to-hf',
    str(tmp_path / 'ours'),
    '--output',
    str(tmp_path / 'back'),
    '--dry_run',
  )
  assert '<- model/layers_1/mlp/wi/kernel [16, 32] (transposed)' in output
  workspace.run(
    'convert',
    'to-hf',
    str(tmp_path / 'ours'),
    '--output',
    str(tmp_path / 'back'),
  )
  before, after = _weights(folder), _weights(tmp_path / 'back')
  assert all(np.array_equal(before[name], after[name]) for name in before)
  for name in ('tokenizer.json', 'tokenizer_config.json'):
    assert (tmp_path / 'back' / name).read_bytes() == (
      folder / name
    ).read_bytes()
  config = json.loads((folder / 'config.json').read_text())
  assert json.loads((tmp_path / 'back/config.json').read_text()) == config


@pytest.mark.slow
def test_invalid_input_is_reported_in_one_message(folder, workspace, tmp_path):
  output = workspace.run(
    'convert',
    'from-hf',
    str(tmp_path),
    '--output',
    str(tmp_path / 'x'),
    status=2,
  )
  assert 'xlflax convert: ' in output and 'config.json' in output
  output = workspace.run(
    'convert', 'from-hf', str(folder), '--output', str(folder), status=2
  )
  assert 'The output already exists' in output
  output = workspace.run(
    'convert', 'to-hf', str(folder), '--output', str(tmp_path / 'x'), status=2
  )
  assert 'not a model directory' in output
