"""Published encoders in numpy: BERT's and RoBERTa's kind, XLM, ModernBERT."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlflax.interop.huggingface.verification.arrays import (
  ACTIVATIONS,
  Array,
  Weights,
  attention,
)

_IN = 'encoder.layer.{}.'
_BERT = {
  'word': 'embeddings.word_embeddings',
  'position': 'embeddings.position_embeddings',
  'type': 'embeddings.token_type_embeddings',
  'norm': 'embeddings.LayerNorm',
  'q': f'{_IN}attention.self.query',
  'k': f'{_IN}attention.self.key',
  'v': f'{_IN}attention.self.value',
  'o': f'{_IN}attention.output.dense',
  'norm1': f'{_IN}attention.output.LayerNorm',
  'wi': f'{_IN}intermediate.dense',
  'wo': f'{_IN}output.dense',
  'norm2': f'{_IN}output.LayerNorm',
  'head': 'cls.predictions.transform.dense',
  'head_norm': 'cls.predictions.transform.LayerNorm',
  'output': 'cls.predictions.decoder',
  'bias': 'cls.predictions.bias',
}
_ROBERTA = _BERT | {
  'after_padding': 'yes',
  'head': 'lm_head.dense',
  'head_norm': 'lm_head.layer_norm',
  'head_activation': 'gelu',
  'output': 'lm_head.decoder',
  'bias': 'lm_head.bias',
}
_DISTIL = 'transformer.layer.{}.'
NAMES: Mapping[str, Mapping[str, str]] = {
  'bert': _BERT,
  'roberta': _ROBERTA,
  'xlm-roberta': _ROBERTA,
  'roberta-prelayernorm': _ROBERTA
  | {
    'norm1': f'{_IN}attention.LayerNorm',
    'norm2': f'{_IN}intermediate.LayerNorm',
    'final': 'LayerNorm',
  },
  'xlm-roberta-xl': _ROBERTA
  | {
    'norm': '',
    'norm1': f'{_IN}attention.self_attn_layer_norm',
    'norm2': f'{_IN}LayerNorm',
    'final': 'encoder.LayerNorm',
  },
  'esm': _ROBERTA
  | {
    'position': '',
    'norm': 'embeddings.layer_norm',
    'norm1': f'{_IN}attention.LayerNorm',
    'norm2': f'{_IN}LayerNorm',
    'final': 'encoder.emb_layer_norm_after',
  },
  'distilbert': {
    'word': 'embeddings.word_embeddings',
    'position': 'embeddings.position_embeddings',
    'norm': 'embeddings.LayerNorm',
    **{key: f'{_DISTIL}attention.{key}_lin' for key in 'qkv'},
    'o': f'{_DISTIL}attention.out_lin',
    'norm1': f'{_DISTIL}sa_layer_norm',
    'wi': f'{_DISTIL}ffn.lin1',
    'wo': f'{_DISTIL}ffn.lin2',
    'norm2': f'{_DISTIL}output_layer_norm',
    'head': 'vocab_transform',
    'head_norm': 'vocab_layer_norm',
    'output': 'vocab_projector',
    'bias': 'vocab_projector.bias',
  },
  'xlm': {
    'word': 'embeddings',
    'position': 'position_embeddings',
    'language': 'lang_embeddings',
    'norm': 'layer_norm_emb',
    **{key: f'attentions.{{}}.{key}_lin' for key in 'qkv'},
    'o': 'attentions.{}.out_lin',
    'norm1': 'layer_norm1.{}',
    'wi': 'ffns.{}.lin1',
    'wo': 'ffns.{}.lin2',
    'norm2': 'layer_norm2.{}',
    'output': 'pred_layer.proj',
    'bias': 'pred_layer.proj.bias',
  },
}
MODERN = 'modernbert'


def _option(options: Mapping[str, Any], *names: str, usual=None):
  return next((options[n] for n in names if options.get(n) is not None), usual)


def states(
  weights: Weights,
  options: Mapping[str, Any],
  ids: Array,
  mask: Array,
  sides: Array,
) -> list[Array]:
  """The states after the embeddings and after each layer, [B, T, H] each.

  Args:
    weights: of the folder.
    options: config.json.
    ids: tokens [B, T].
    mask: [B, T], nonzero at text.
    sides: [B, T], 1 at the second text of a pair; the type of a token.
  """
  if options['model_type'] == MODERN:
    return _modern(weights, options, ids, mask)
  names = NAMES[options['model_type']]
  epsilon = _option(options, 'layer_norm_eps', usual=1e-12)
  act = ACTIVATIONS[
    _option(options, 'hidden_act', 'activation')
    or ('gelu' if options.get('gelu_activation', True) else 'relu')
  ]
  heads = _option(options, 'num_attention_heads', 'n_heads')
  keep = mask[..., None] if 'language' in names else 1  # XLM clears padding
  turn = (
    (lambda x: x)
    if names['position']
    else functools.partial(_turned, theta=options['rope_theta'])
  )
  x = _embedded(weights, names, options, ids, sides) * keep
  if names['norm'] and options.get('emb_layer_norm_before', True):
    x = weights.norm(x, names['norm'], epsilon) * keep
  found = [x]
  for i in range(_option(options, 'num_hidden_layers', 'n_layers')):
    at = {key: name.format(i) for key, name in names.items()}
    pre = 'final' in names
    y = weights.norm(x, at['norm1'], epsilon) if pre else x
    q, k, v = (weights.linear(y, at[key]) for key in 'qkv')
    y = attention(q, k, v, heads, mask[:, None, None, :] > 0, turn=turn)
    x = x + weights.linear(y, at['o'])
    x = x if pre else weights.norm(x, at['norm1'], epsilon)
    y = weights.norm(x, at['norm2'], epsilon) if pre else x
    x = x + weights.linear(act(weights.linear(y, at['wi'])), at['wo'])
    x = x if pre else weights.norm(x, at['norm2'], epsilon)
    x = x * keep
    found.append(x)
  if 'final' in names:
    found[-1] = weights.norm(x, names['final'], epsilon)
  return found


def _embedded(weights, names, options, ids, sides) -> Array:
  if not names['position']:
    return weights(f'{names["word"]}.weight', ids)
  positions = np.arange(ids.shape[1])[None]
  if 'after_padding' in names:
    padding = options['pad_token_id']
    real = ids != padding
    positions = np.cumsum(real, axis=1) * real + padding
  x = weights(f'{names["word"]}.weight', ids)
  x = x + weights(f'{names["position"]}.weight')[positions]
  if 'type' in names:
    types = weights(f'{names["type"]}.weight')
    x = x + types[np.minimum(sides, len(types) - 1)]
  if 'language' in names and f'{names["language"]}.weight' in weights:
    x = x + weights(f'{names["language"]}.weight')[0]
  return x


def logits(
  weights: Weights, options: Mapping[str, Any], x: Array, kept: Array
) -> Array | None:
  """The masked LM's logits of the last states; None without such a head.

  Args:
    weights: of the folder.
    options: config.json.
    x: the last states [B, T, H].
    kept: tokens [K] whose logits are wanted.

  Returns:
    [B, T, K].
  """
  if options['model_type'] == MODERN:
    return _modern_logits(weights, options, x, kept)
  names = NAMES[options['model_type']]
  if names['bias'] not in weights:
    return None
  if 'head' in names:
    act = _option(names, 'head_activation') or _option(
      options, 'hidden_act', 'activation'
    )
    x = ACTIVATIONS[act](weights.linear(x, names['head']))
    epsilon = _option(options, 'layer_norm_eps', usual=1e-12)
    x = weights.norm(x, names['head_norm'], epsilon)
  tied = _option(options, 'tie_word_embeddings', usual=True)
  table = names['word' if tied else 'output']
  bias = f'{table}.bias' if f'{table}.bias' in weights else names['bias']
  return x @ weights(f'{table}.weight', kept).T + weights(bias, kept)


def _modern(weights, options, ids, mask) -> list[Array]:
  """Warner et al., 2024."""
  epsilon = options.get('norm_eps', 1e-5)
  act = ACTIVATIONS[options.get('hidden_activation', 'gelu')]
  x = weights('embeddings.tok_embeddings.weight', ids)
  x = weights.norm(x, 'embeddings.norm', epsilon)
  found = [x]
  place = np.arange(ids.shape[1])
  far = np.abs(place[:, None] - place) > options['local_attention'] // 2
  for i in range(options['num_hidden_layers']):
    at, kind = f'layers.{i}', _kind(options, i)
    seen = mask[:, None, None, :] > 0
    if kind == 'sliding_attention':
      seen = seen & ~far
    y = weights.norm(x, f'{at}.attn_norm', epsilon) if i else x
    q, k, v = np.split(weights.linear(y, f'{at}.attn.Wqkv'), 3, axis=-1)
    y = attention(
      q,
      k,
      v,
      options['num_attention_heads'],
      seen,
      turn=functools.partial(_turned, theta=_theta(options, kind)),
    )
    x = x + weights.linear(y, f'{at}.attn.Wo')
    y = weights.norm(x, f'{at}.mlp_norm', epsilon)
    inner, gate = np.split(weights.linear(y, f'{at}.mlp.Wi'), 2, axis=-1)
    x = x + weights.linear(act(inner) * gate, f'{at}.mlp.Wo')
    found.append(x)
  found[-1] = weights.norm(x, 'final_norm', epsilon)
  return found


def _kind(options, layer: int) -> str:
  if options.get('layer_types'):
    return options['layer_types'][layer]
  local = layer % options.get('global_attn_every_n_layers', 3)
  return 'sliding_attention' if local else 'full_attention'


def _theta(options, kind: str) -> float:
  given = (options.get('rope_parameters') or {}).get(kind) or {}
  full = kind == 'full_attention'
  name, usual = (
    ('global_rope_theta', 160000.0) if full else ('local_rope_theta', 10000.0)
  )
  return given.get('rope_theta', _option(options, name, usual=usual))


def _turned(x: Array, theta: float) -> Array:
  """Rotary positions of [B, heads, T, D] (Su et al., 2021)."""
  half = x.shape[-1] // 2
  rates = theta ** (-np.arange(half) / half)
  angles = np.arange(x.shape[2])[:, None] * rates
  cos, sin = np.cos(angles), np.sin(angles)
  a, b = x[..., :half], x[..., half:]
  y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
  return y.astype(x.dtype)


def _modern_logits(weights, options, x, kept) -> Array | None:
  if 'head.dense.weight' not in weights or 'classifier.weight' in weights:
    return None
  act = ACTIVATIONS[options.get('classifier_activation', 'gelu')]
  x = act(weights.linear(x, 'head.dense'))
  x = weights.norm(x, 'head.norm', options.get('norm_eps', 1e-5))
  tied = options.get('tie_word_embeddings', True)
  table = 'embeddings.tok_embeddings' if tied else 'decoder'
  y = x @ weights(f'{table}.weight', kept).T
  bias = 'decoder.bias'
  return y + weights(bias, kept) if bias in weights else y
