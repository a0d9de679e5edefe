"""Tiny encoder-decoders of transformers with random weights."""

import numpy as np
import torch
import transformers

from tests.interop.huggingface import reference_models as reference
from xlflax.interop.huggingface import config_json, tensor_mapping
from xlflax.interop.huggingface.tensors import tensor_files, weights

VOCAB = reference.VOCAB
SOURCE = np.array([[1] * 11, [1] * 7 + [0] * 4, [1] * 2 + [0] * 9])
TARGET = np.array([[1] * 6 + [0] * 3, [1] * 9, [1] * 3 + [0] * 6])
_T5 = dict(
  vocab_size=VOCAB,
  d_model=30,
  d_kv=8,
  d_ff=52,
  num_layers=3,
  num_decoder_layers=2,
  num_heads=5,
  relative_attention_num_buckets=8,
  relative_attention_max_distance=9,
)
_MBART = dict(
  vocab_size=VOCAB,
  d_model=30,
  encoder_layers=3,
  decoder_layers=2,
  encoder_attention_heads=5,
  decoder_attention_heads=5,
  encoder_ffn_dim=52,
  decoder_ffn_dim=52,
  max_position_embeddings=16,
)

# Name -> (model type, options, whether the output table has separate weights).
MODELS = {
  't5': ('T5', _T5 | dict(feed_forward_proj='relu'), False),
  't5_v1_1': (
    'T5',
    _T5
    | dict(
      feed_forward_proj='gated-gelu',
      tie_word_embeddings=False,
      dropout_rate=0.3,
      layer_norm_epsilon=1e-4,
    ),
    True,
  ),
  'mt5': ('MT5', _T5 | dict(feed_forward_proj='gated-gelu'), True),
  'mt5_tied': (
    'MT5',
    _T5 | dict(feed_forward_proj='gated-silu', num_decoder_layers=None),
    False,
  ),
  'umt5': ('UMT5', _T5 | dict(feed_forward_proj='gated-gelu'), True),
  'mbart': ('MBart', _MBART | dict(scale_embedding=True), False),
  'm2m_100': (
    'M2M100',
    _MBART | dict(activation_function='relu', encoder_layerdrop=0.0),
    False,
  ),
  'bart': ('Bart', _MBART | dict(activation_function='relu'), False),
  'mbart_plain': (
    'MBart',
    _MBART
    | dict(
      activation_function='relu',
      dropout=0.2,
      attention_dropout=0.3,
      init_std=0.1,
    ),
    False,
  ),
}


def make_model(name):
  """Returns a model for evaluation with new random weights."""
  kind, options, own_options = MODELS[name]
  model = getattr(transformers, f'{kind}ForConditionalGeneration')(
    getattr(transformers, f'{kind}Config')(**options)
  )
  if own_options:
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCAB, 30))
  if kind in ('MBart', 'Bart'):
    model.final_logits_bias.copy_(torch.linspace(-1, 1, VOCAB)[None])
  return randomize_model(model)


def randomize_model(model, scale: float = 0.2):
  """Returns `model` for evaluation with new random weights."""
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      noise = torch.randn(parameter.shape, generator=generator) * scale
      is_scale = 'norm' in name and name.endswith('weight')
      parameter.copy_(noise + 1 if is_scale else noise)
  return model.eval()


def convert_model(model, folder):
  """Returns the configuration and parameters of a model without a tokenizer."""
  model.save_pretrained(folder)
  tensors = tensor_files.find_tensors(folder)
  description = config_json.describe_model(folder, tensors)
  return description.config, weights.load_parameters(
    tensor_mapping.make_tensor_mapping(description, tensors)
  )


def make_inputs():
  """Returns source ids [3, T], decoder ids [3, S] and labels [3, S]."""
  rng = np.random.default_rng(0)
  source = rng.integers(5, VOCAB, SOURCE.shape)
  target = rng.integers(5, VOCAB, TARGET.shape)
  labels = np.where(TARGET, rng.integers(5, VOCAB, TARGET.shape), -100)
  return source, target, labels


def run_model(model):
  """Returns the outputs of transformers, including the loss."""
  source, target, labels = map(torch.tensor, make_inputs())
  return model(
    input_ids=source,
    attention_mask=torch.tensor(SOURCE),
    decoder_input_ids=target,
    decoder_attention_mask=torch.tensor(TARGET),
    labels=labels,
  )
