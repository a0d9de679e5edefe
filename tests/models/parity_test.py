"""Logits equal those of the reference implementations, to 2e-5.

Models are made by the reference with random weights, so that every bias and
scale is exercised; the batch has padding and odd sizes.
"""

import jax
import numpy as np
import pytest
import torch
import transformers

from xlflax.models import config as model_config
from xlflax.models import encoder, layer_stacking

_VOCAB, _LENGTH, _HIDDEN, _HEADS, _LAYERS, _MLP = 61, 11, 30, 5, 3, 52
_SIZES = dict(num_layers=_LAYERS, hidden_dim=_HIDDEN, mlp_dim=_MLP,
              num_heads=_HEADS, vocab_size=_VOCAB)
_BERT_SIZES = dict(
    vocab_size=_VOCAB, hidden_size=_HIDDEN, num_hidden_layers=_LAYERS,
    num_attention_heads=_HEADS, intermediate_size=_MLP)
_PADDING = np.array([[1] * 11, [1] * 7 + [0] * 4, [1] * 2 + [0] * 9])


def _random_ids(seed, high, low=5):
  return np.random.default_rng(seed).integers(low, high, (3, _LENGTH))


def _randomized(model):
  """`model` for evaluation with every weight drawn anew."""
  generator = torch.Generator().manual_seed(0)
  fixed = getattr(model.config, 'sinusoidal_embeddings', False)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if fixed and 'position_embeddings' in name:
        continue
      noise = torch.randn(parameter.shape, generator=generator) * 0.2
      is_scale = 'norm' in name.lower() and name.endswith('weight')
      parameter.copy_(noise + 1 if is_scale else noise)
  return model.eval()


class _Weights:
  """Reads a state dict as pieces of a parameter tree."""

  def __init__(self, model):
    self._state = {k: v.numpy() for k, v in model.state_dict().items()}

  def __getitem__(self, name):
    return self._state[name]

  def dense(self, name, shape=None):
    kernel, bias = self[f'{name}.weight'].T, self[f'{name}.bias']
    shape = shape or kernel.shape
    return {'kernel': kernel.reshape(shape),
            'bias': bias.reshape(shape[-(len(shape) - 1):])}

  def norm(self, name):
    return {'scale': self[f'{name}.weight'], 'bias': self[f'{name}.bias']}

  def layer(self, q, k, v, output, attention_norm, wi, wo, mlp_norm):
    heads = (_HIDDEN, _HEADS, _HIDDEN // _HEADS)
    return {
        'attention': {
            'query': self.dense(q, heads), 'key': self.dense(k, heads),
            'value': self.dense(v, heads),
            'output': {
                'kernel': self.dense(output)['kernel'].reshape(
                    _HEADS, -1, _HIDDEN),
                'bias': self[f'{output}.bias']}},
        'attention_norm': self.norm(attention_norm),
        'mlp': {'wi': self.dense(wi), 'wo': self.dense(wo)},
        'mlp_norm': self.norm(mlp_norm)}


def _bert_layers(weights, prefix):
  parts = ('attention.self.query', 'attention.self.key',
           'attention.self.value', 'attention.output.dense',
           'attention.output.LayerNorm', 'intermediate.dense', 'output.dense',
           'output.LayerNorm')
  return {
      f'layers_{i}': weights.layer(
          *(f'{prefix}.encoder.layer.{i}.{part}' for part in parts))
      for i in range(_LAYERS)}


def _bert_params(model, prefix, dense, norm, bias):
  weights = _Weights(model)
  table = f'{prefix}.embeddings.%s_embeddings.weight'
  return {
      'embeddings': {
          'token': weights[table % 'word'],
          'position': weights[table % 'position'],
          'token_type': weights[table % 'token_type'],
          'norm': weights.norm(f'{prefix}.embeddings.LayerNorm')},
      **_bert_layers(weights, prefix),
      'head_dense': weights.dense(dense), 'head_norm': weights.norm(norm),
      'output_bias': weights[bias]}


def _bert():
  model = _randomized(transformers.BertForMaskedLM(transformers.BertConfig(
      **_BERT_SIZES, type_vocab_size=2, max_position_embeddings=16)))
  head = 'cls.predictions.transform'
  params = _bert_params(model, 'bert', f'{head}.dense', f'{head}.LayerNorm',
                        'cls.predictions.bias')
  config = model_config.EncoderConfig(
      **_SIZES, type_vocab_size=2, max_length=16)
  return model, config, params, {'token_type_ids': _random_ids(1, 2, 0)}


def _roberta_like(kind, config_kind):
  model = _randomized(kind(config_kind(
      **_BERT_SIZES, type_vocab_size=1, max_position_embeddings=18,
      pad_token_id=1, layer_norm_eps=1e-5)))
  params = _bert_params(model, 'roberta', 'lm_head.dense',
                        'lm_head.layer_norm', 'lm_head.bias')
  config = model_config.EncoderConfig(
      **_SIZES, type_vocab_size=1, max_length=16, position_offset=2,
      layer_norm_epsilon=1e-5)
  return model, config, params, {}


def _roberta():
  return _roberta_like(transformers.RobertaForMaskedLM,
                       transformers.RobertaConfig)


def _xlm_roberta():
  return _roberta_like(transformers.XLMRobertaForMaskedLM,
                       transformers.XLMRobertaConfig)


def _xlm_layer(weights, i):
  parts = ([f'attentions.{i}.{x}_lin' for x in ('q', 'k', 'v', 'out')]
           + [f'layer_norm1.{i}', f'ffns.{i}.lin1', f'ffns.{i}.lin2',
              f'layer_norm2.{i}'])
  return weights.layer(*(f'transformer.{part}' for part in parts))


def _xlm(sinusoidal=False):
  model = _randomized(transformers.XLMWithLMHeadModel(transformers.XLMConfig(
      vocab_size=_VOCAB, emb_dim=_HIDDEN, n_layers=_LAYERS, n_heads=_HEADS,
      n_langs=3, max_position_embeddings=16,
      sinusoidal_embeddings=sinusoidal, pad_token_id=2)))
  weights = _Weights(model)
  embeddings = {
      'token': weights['transformer.embeddings.weight'],
      'language': weights['transformer.lang_embeddings.weight'],
      'norm': weights.norm('transformer.layer_norm_emb')}
  if not sinusoidal:
    embeddings['position'] = weights['transformer.position_embeddings.weight']
  params = {
      'embeddings': embeddings,
      **{f'layers_{i}': _xlm_layer(weights, i) for i in range(_LAYERS)},
      'output_bias': weights['pred_layer.proj.bias']}
  sizes = _SIZES | dict(mlp_dim=4 * _HIDDEN)
  config = model_config.EncoderConfig(
      **sizes, max_length=16, use_language_embeddings=True, num_languages=3,
      position_embedding='sinusoidal' if sinusoidal else 'learned',
      mlm_head='tied', padding_states='zero')
  return model, config, params, {'language_ids': _random_ids(2, 3, 0)}


def _xlm_sinusoidal():
  return _xlm(sinusoidal=True)


def _reference_logits(model, token_ids, inputs):
  names = {'language_ids': 'langs'}
  inputs = {names.get(k, k): torch.tensor(v) for k, v in inputs.items()}
  with torch.no_grad():
    return model(input_ids=torch.tensor(token_ids),
                 attention_mask=torch.tensor(_PADDING), **inputs
                 ).logits.numpy()


@pytest.mark.parametrize(
    'make', [_bert, _roberta, _xlm_roberta, _xlm, _xlm_sinusoidal])
def test_logits_equal_the_reference(make):
  model, config, params, inputs = make()
  token_ids = np.where(_PADDING, _random_ids(0, _VOCAB),
                       model.config.pad_token_id)
  want = _reference_logits(model, token_ids, inputs)
  logits = jax.jit(encoder.Encoder(config).apply)(
      {'params': layer_stacking.stack_layers(params)}, token_ids,
      segment_ids=_PADDING, **inputs)
  # XLM defines logits at padding too, as its states there are zeros.
  compared = (np.ones_like(_PADDING) if config.padding_states == 'zero'
              else _PADDING) > 0
  assert np.abs(want[compared]).max() > 1  # of a size to be compared
  np.testing.assert_allclose(
      np.asarray(logits)[compared], want[compared], atol=2e-5, rtol=2e-5)
