"""Published encoder-decoders in numpy: BART, mBART, M2M-100, T5's kind."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlflax.interop.huggingface.verification.arrays import (
  ACTIVATIONS,
  Array,
  Weights,
  attention,
)

BARTS = ('bart', 'mbart', 'm2m_100')
T5S = ('t5', 'mt5', 'umt5')


def logits(
  weights: Weights,
  options: Mapping[str, Any],
  ids: Array,
  mask: Array,
  target: Array,
  kept: Array,
) -> tuple[list[Array], Array]:
  """(states after each of the encoder's layers, the decoder's logits).

  Args:
    weights: of the folder.
    options: config.json.
    ids: the source's tokens [B, T].
    mask: [B, T], nonzero at text.
    target: what the decoder reads [B, S], all of it text.
    kept: tokens [K] whose logits are wanted, [B, S, K].
  """
  side = _bart_side if options['model_type'] in BARTS else _t5_side
  states = side(weights, options, 'encoder', ids, mask)
  last = side(weights, options, 'decoder', target, mask, states[-1])[-1]
  if options['model_type'] in BARTS:
    y = last @ weights('shared.weight', kept).T
    bias = 'final_logits_bias'
    return states, y + weights(bias)[:, kept] if bias in weights else y
  if _t5_scaled(options):
    last = last * options['d_model'] ** -0.5
  own = 'lm_head.weight' in weights
  table = weights('lm_head.weight' if own else 'shared.weight', kept)
  return states, last @ table.T


def _bart_side(
  weights, options, side: str, ids, mask, memory=None
) -> list[Array]:
  """Lewis et al., 2020: norms after the blocks, in mBART before them."""
  pre = options['model_type'] != 'bart'
  act = ACTIVATIONS[options.get('activation_function', 'gelu')]
  heads = options[f'{side}_attention_heads']

  def norm(x, name):
    return weights.norm(x, name, 1e-5)

  x = weights('shared.weight', ids)
  if options.get('scale_embedding'):
    x = x * math.sqrt(options['d_model'])
  if options['model_type'] == 'm2m_100':
    x = x + _sinusoids(options, ids)
  else:
    table = weights(f'{side}.embed_positions.weight')
    x = x + table[2 : 2 + ids.shape[1]]
    x = norm(x, f'{side}.layernorm_embedding')
  found = [x]
  causal = np.tri(ids.shape[1], dtype=bool)
  own = mask[:, None, None, :] > 0 if memory is None else causal
  blocks: list[tuple[str, Array | None, Array]] = [('self_attn', None, own)]
  if memory is not None:
    blocks.append(('encoder_attn', memory, mask[:, None, None, :] > 0))
  for i in range(options[f'{side}_layers']):
    at = f'{side}.layers.{i}'
    for name, other, seen in blocks:
      y = norm(x, f'{at}.{name}_layer_norm') if pre else x
      source = y if other is None else other
      q = weights.linear(y, f'{at}.{name}.q_proj')
      k = weights.linear(source, f'{at}.{name}.k_proj')
      v = weights.linear(source, f'{at}.{name}.v_proj')
      y = attention(q, k, v, heads, seen)
      x = x + weights.linear(y, f'{at}.{name}.out_proj')
      x = x if pre else norm(x, f'{at}.{name}_layer_norm')
    y = norm(x, f'{at}.final_layer_norm') if pre else x
    x = x + weights.linear(act(weights.linear(y, f'{at}.fc1')), f'{at}.fc2')
    x = x if pre else norm(x, f'{at}.final_layer_norm')
    found.append(x)
  if pre:
    found[-1] = norm(x, f'{side}.layer_norm')
  return found


def _sinusoids(options, ids) -> Array:
  """Constant positions, counted from the padding's id (Fan et al., 2021)."""
  padding, half = options['pad_token_id'], options['d_model'] // 2
  real = ids != padding
  positions = np.cumsum(real, axis=1) * real + padding
  rates = np.exp(-np.arange(half) * math.log(10000) / (half - 1))
  angles = positions[..., None] * rates
  return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def _t5_side(
  weights, options, side: str, ids, mask, memory=None
) -> list[Array]:
  """Raffel et al., 2020; relative positions in each layer: umT5."""
  epsilon = options.get('layer_norm_epsilon', 1e-6)
  heads = options['num_heads']
  decoder = memory is not None

  def norm(x, name):
    return weights.rms_norm(x, name, epsilon)

  x = weights('shared.weight', ids)
  found = [x]
  size = ids.shape[1]
  own = np.tri(size, dtype=bool) if decoder else mask[:, None, None, :] > 0
  count = options['num_decoder_layers' if decoder else 'num_layers']
  for i in range(count):
    at = f'{side}.block.{i}.layer'
    first = 0 if options['model_type'] != 'umt5' else i
    name = f'{side}.block.{first}.layer.0.SelfAttention.relative_attention_bias'
    bias = weights(f'{name}.weight')[_buckets(options, size, not decoder)]
    blocks = [('0', 'SelfAttention', None, own, bias.transpose(2, 0, 1))]
    if decoder:
      seen = mask[:, None, None, :] > 0
      blocks.append(('1', 'EncDecAttention', memory, seen, 0.0))
    for number, kind, other, seen, bias in blocks:
      y = norm(x, f'{at}.{number}.layer_norm')
      source = y if other is None else other
      q = weights.linear(y, f'{at}.{number}.{kind}.q')
      k, v = (weights.linear(source, f'{at}.{number}.{kind}.{n}') for n in 'kv')
      y = attention(q, k, v, heads, seen, scale=False, bias=bias)
      x = x + weights.linear(y, f'{at}.{number}.{kind}.o')
    last = f'{at}.{len(blocks)}'
    y = norm(x, f'{last}.layer_norm')
    x = x + _t5_feed_forward(weights, options, y, f'{last}.DenseReluDense')
    found.append(x)
  found[-1] = norm(x, f'{side}.final_layer_norm')
  return found


def _t5_feed_forward(weights, options, x, name: str) -> Array:
  kind = options['feed_forward_proj']
  if not kind.startswith('gated-'):
    return weights.linear(
      ACTIVATIONS[kind](weights.linear(x, f'{name}.wi')), f'{name}.wo'
    )
  act = kind.removeprefix('gated-')
  act = ACTIVATIONS['gelu_new' if act == 'gelu' else act]
  y = act(weights.linear(x, f'{name}.wi_0')) * weights.linear(x, f'{name}.wi_1')
  return weights.linear(y, f'{name}.wo')


def _t5_scaled(options) -> bool:
  """Whether states are divided by the root of their width."""
  if options['model_type'] == 'mt5':
    return False
  tied = options.get('tie_word_embeddings', True)
  return options.get('scale_decoder_outputs', tied)


def _buckets(options, size: int, both_sides: bool) -> Array:
  """The bucket of each key's distance to each query: [size, size]."""
  count = options['relative_attention_num_buckets']
  longest = options.get('relative_attention_max_distance', 128)
  place = np.arange(size)
  distance = place[None] - place[:, None]
  found = np.zeros((size, size), np.int64)
  if both_sides:
    count //= 2
    found += (distance > 0) * count
    distance = np.abs(distance)
  else:
    distance = np.maximum(-distance, 0)
  exact = count // 2
  far = np.log(np.maximum(distance, 1) / exact) / math.log(longest / exact)
  far = np.minimum(exact + (far * (count - exact)).astype(np.int64), count - 1)
  return found + np.where(distance < exact, distance, far)
