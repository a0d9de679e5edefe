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


def _names(text: str) -> dict[str, str]:
  """Names of tensors from words such as `q=attention.q_lin`."""
  return dict(word.split('=') for word in text.split())


_BERT = _names("""
  word=embeddings.word_embeddings position=embeddings.position_embeddings
  type=embeddings.token_type_embeddings norm=embeddings.LayerNorm
  q=encoder.layer.{}.attention.self.query k=encoder.layer.{}.attention.self.key
  v=encoder.layer.{}.attention.self.value
  o=encoder.layer.{}.attention.output.dense
  norm1=encoder.layer.{}.attention.output.LayerNorm
  wi=encoder.layer.{}.intermediate.dense wo=encoder.layer.{}.output.dense
  norm2=encoder.layer.{}.output.LayerNorm
  head=cls.predictions.transform.dense
  head_norm=cls.predictions.transform.LayerNorm
  output=cls.predictions.decoder bias=cls.predictions.bias
""")
_ROBERTA = _BERT | _names("""
  after_padding=yes head=lm_head.dense head_norm=lm_head.layer_norm
  head_activation=gelu output=lm_head.decoder bias=lm_head.bias
""")
_GTE = _ROBERTA | _names("""
  position= qkv=encoder.layer.{}.attention.qkv_proj
  o=encoder.layer.{}.attention.o_proj norm1=encoder.layer.{}.attn_ln
  gated=encoder.layer.{}.mlp.up_gate_proj wo=encoder.layer.{}.mlp.down_proj
  norm2=encoder.layer.{}.mlp_ln head_norm=lm_head.norm bias=lm_head.decoder.bias
""")
_JINA = _ROBERTA | _names("""
  position= norm=emb_ln qkv=encoder.layers.{}.mixer.Wqkv
  o=encoder.layers.{}.mixer.out_proj norm1=encoder.layers.{}.norm1
  wi=encoder.layers.{}.mlp.fc1 wo=encoder.layers.{}.mlp.fc2
  norm2=encoder.layers.{}.norm2
""")
_NOMIC = _BERT | _names("""
  position= norm=emb_ln qkv=encoder.layers.{}.attn.Wqkv
  o=encoder.layers.{}.attn.out_proj norm1=encoder.layers.{}.norm1
  wi=encoder.layers.{}.mlp.fc11 gate=encoder.layers.{}.mlp.fc12
  wo=encoder.layers.{}.mlp.fc2 norm2=encoder.layers.{}.norm2
  head_norm=cls.predictions.transform.layer_norm
""")
_MODERN = _names("""
  word=embeddings.tok_embeddings position= norm=embeddings.norm
  norm1=layers.{}.attn_norm qkv=layers.{}.attn.Wqkv o=layers.{}.attn.Wo
  norm2=layers.{}.mlp_norm gated=layers.{}.mlp.Wi gate_first=yes wo=layers.{}.mlp.Wo
  final=final_norm head=head.dense head_norm=head.norm output=decoder
  bias=decoder.bias
""")
NAMES: Mapping[str, Mapping[str, str]] = {
  'bert': _BERT,
  'roberta': _ROBERTA,
  'xlm-roberta': _ROBERTA,
  'gte': _GTE,
  'jina_embeddings_v3': _JINA,
  'nomic_bert': _NOMIC,
  'modernbert': _MODERN,
  'roberta-prelayernorm': _ROBERTA
  | _names("""
    norm1=encoder.layer.{}.attention.LayerNorm
    norm2=encoder.layer.{}.intermediate.LayerNorm final=LayerNorm
  """),
  'xlm-roberta-xl': _ROBERTA
  | _names("""
    norm= norm1=encoder.layer.{}.attention.self_attn_layer_norm
    norm2=encoder.layer.{}.LayerNorm final=encoder.LayerNorm
  """),
  'esm': _ROBERTA
  | _names("""
    position= norm=embeddings.layer_norm
    norm1=encoder.layer.{}.attention.LayerNorm
    norm2=encoder.layer.{}.LayerNorm final=encoder.emb_layer_norm_after
  """),
  'distilbert': _names("""
    word=embeddings.word_embeddings position=embeddings.position_embeddings
    norm=embeddings.LayerNorm q=transformer.layer.{}.attention.q_lin
    k=transformer.layer.{}.attention.k_lin
    v=transformer.layer.{}.attention.v_lin
    o=transformer.layer.{}.attention.out_lin
    norm1=transformer.layer.{}.sa_layer_norm wi=transformer.layer.{}.ffn.lin1
    wo=transformer.layer.{}.ffn.lin2
    norm2=transformer.layer.{}.output_layer_norm head=vocab_transform
    head_norm=vocab_layer_norm output=vocab_projector bias=vocab_projector.bias
  """),
  'xlm': _names("""
    word=embeddings position=position_embeddings language=lang_embeddings
    norm=layer_norm_emb q=attentions.{}.q_lin k=attentions.{}.k_lin
    v=attentions.{}.v_lin o=attentions.{}.out_lin norm1=layer_norm1.{}
    wi=ffns.{}.lin1 wo=ffns.{}.lin2 norm2=layer_norm2.{}
    output=pred_layer.proj bias=pred_layer.proj.bias
  """),
}


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
  names = NAMES[options['model_type']]
  epsilon = _option(options, 'norm_eps', 'layer_norm_eps', usual=1e-12)
  act = ACTIVATIONS[
    _option(options, 'hidden_activation', 'hidden_act', 'activation')
    or ('gelu' if options.get('gelu_activation', True) else 'relu')
  ]
  heads = _option(options, 'num_attention_heads', 'n_heads')
  keep = mask[..., None] if 'language' in names else 1  # XLM clears padding
  x = _embedded(weights, names, options, ids, sides) * keep
  if names['norm'] and options.get('emb_layer_norm_before', True):
    x = weights.norm(x, names['norm'], epsilon) * keep
  found = [x]
  for i in range(_option(options, 'num_hidden_layers', 'n_layers')):
    at = {key: name.format(i) for key, name in names.items()}
    pre = 'final' in names
    y = x
    if pre and (i or names is not _MODERN):
      y = weights.norm(x, at['norm1'], epsilon)
    q, k, v = (
      np.split(weights.linear(y, at['qkv']), 3, axis=-1)
      if 'qkv' in at
      else (weights.linear(y, at[key]) for key in 'qkv')
    )
    y = attention(
      q, k, v, heads, _seen(options, i, mask), turn=_turn(names, options, i)
    )
    x = x + weights.linear(y, at['o'])
    x = x if pre else weights.norm(x, at['norm1'], epsilon)
    y = weights.norm(x, at['norm2'], epsilon) if pre else x
    x = x + weights.linear(_inner(weights, at, y, act), at['wo'])
    x = x if pre else weights.norm(x, at['norm2'], epsilon)
    x = x * keep
    found.append(x)
  if 'final' in names:
    found[-1] = weights.norm(x, names['final'], epsilon)
  return found


def _inner(weights, at, x, act) -> Array:
  """What a feed-forward block's last map is given."""
  if 'gated' in at:
    inner, gate = np.split(weights.linear(x, at['gated']), 2, axis=-1)
    return act(inner) * gate if 'gate_first' in at else act(gate) * inner
  inner = weights.linear(x, at['wi'])
  return (
    act(weights.linear(x, at['gate'])) * inner if 'gate' in at else act(inner)
  )


def _embedded(weights, names, options, ids, sides) -> Array:
  x = weights(f'{names["word"]}.weight', ids)
  if names['position']:
    x = x + _placed(weights, names, options, ids)
  if 'type' in names and f'{names["type"]}.weight' in weights:
    types = weights(f'{names["type"]}.weight')
    x = x + types[np.minimum(sides, len(types) - 1)]
  if 'language' in names and f'{names["language"]}.weight' in weights:
    x = x + weights(f'{names["language"]}.weight')[0]
  return x


def _placed(weights, names, options, ids) -> Array:
  """The embeddings of positions."""
  positions = np.arange(ids.shape[1])[None]
  if 'after_padding' in names:
    padding = options['pad_token_id']
    real = ids != padding
    positions = np.cumsum(real, axis=1) * real + padding
  return weights(f'{names["position"]}.weight')[positions]


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
  names = NAMES[options['model_type']]
  first = f'{names["head"]}.weight' if 'head' in names else names['bias']
  if first not in weights or 'classifier.weight' in weights:
    return None
  if 'head' in names:
    act = _option(names, 'head_activation') or _option(
      options, 'classifier_activation', 'hidden_act', 'activation'
    )
    x = ACTIVATIONS[act](weights.linear(x, names['head']))
    epsilon = _option(options, 'norm_eps', 'layer_norm_eps', usual=1e-12)
    x = weights.norm(x, names['head_norm'], epsilon)
  tied = _option(options, 'tie_word_embeddings', usual=True)
  table = names['word' if tied else 'output']
  bias = f'{table}.bias' if f'{table}.bias' in weights else names['bias']
  y = x @ weights(f'{table}.weight', kept).T
  return y + weights(bias, kept) if bias in weights else y


def _seen(options, layer: int, mask: Array) -> Array:
  """Which tokens see which, [B, 1, T or 1, T]."""
  seen = mask[:, None, None, :] > 0
  if _kind(options, layer) == 'sliding_attention':
    place = np.arange(mask.shape[1])
    near = options['local_attention'] // 2
    seen = seen & (np.abs(place[:, None] - place) <= near)
  return seen


def _turn(names, options, layer: int):
  """What queries and keys of a layer go through."""
  if names['position']:
    return lambda x: x
  if names is _MODERN:
    theta = _theta(options, _kind(options, layer))
    return functools.partial(_turned, rope_theta=theta)
  return functools.partial(
    _turned, **(options.get('rope_parameters') or options)
  )


def _kind(options, layer: int) -> str:
  if options['model_type'] != 'modernbert':
    return 'full_attention'
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


def _turned(x: Array, rope_theta: float, factor: float = 1, **_) -> Array:
  """Rotary positions of [B, heads, T, D] (Su et al., 2021)."""
  half = x.shape[-1] // 2
  rates = rope_theta ** (-np.arange(half) / half) / factor
  angles = np.arange(x.shape[2])[:, None] * rates
  cos, sin = np.cos(angles), np.sin(angles)
  a, b = x[..., :half], x[..., half:]
  y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
  return y.astype(x.dtype)
