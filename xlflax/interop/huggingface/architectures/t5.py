"""T5, T5 v1.1, mT5 and umT5.

Sources: Raffel et al., 2020; Xue et al., 2021; Chung et al., 2023.

config.json says how states are scaled before the output table, but not
whether that is the token embeddings: the tensors do.
"""

from typing import Any

from xlflax.interop.huggingface.architectures import config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  Transform,
  norm_rules,
  of_layers,
)
from xlflax.models import activations, encoder_decoder_config

_SHARED = 'shared.weight'
_BIAS = 'SelfAttention.relative_attention_bias.weight'
# T5 v1.0's decoder holds a table between its halves that no code reads.
_UNREAD = r'^decoder\..*\.EncDecAttention\.relative_attention_bias\.weight$'
_MAX_LENGTH = 1024  # relative positions have no bound of their own

# Option -> (field of EncoderDecoderConfig, the library's default for T5).
_FIELDS = config_options.option_table(
  """vocab_size=vocab_size:32128 d_model=hidden_dim:512 d_kv=head_dim:64
  d_ff=mlp_dim:2048 num_layers=num_encoder_layers:6 num_heads=num_heads:8
  relative_attention_num_buckets=relative_buckets:32
  relative_attention_max_distance=relative_max_distance:128
  dropout_rate=dropout_rate:0.1 layer_norm_epsilon=layer_norm_epsilon:1e-6"""
)
_MULTILINGUAL = dict(vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6)


def _feed_forwards() -> dict[str, str]:
  """Returns the values of feed_forward_proj, each with its activation."""
  plain = activations.from_huggingface()
  gated = {f'gated-{name}': ours for name, ours in plain.items()}
  # The gated 'gelu' is the approximation, unlike the plain one.
  return plain | gated | {'gated-gelu': 'gelu_tanh'}


def _read(options: config_options.Options, model_type: str) -> dict[str, Any]:
  defaults = {} if model_type == 't5' else _MULTILINGUAL
  fields = options.fields(_FIELDS, defaults)
  fields['num_decoder_layers'] = options.get(
    'num_decoder_layers', fields['num_encoder_layers']
  )
  usual = 'relu' if model_type == 't5' else 'gated-gelu'
  kind = options.get('feed_forward_proj', usual)
  activation = options.choose('feed_forward_proj', usual, _feed_forwards())
  options.require('is_encoder_decoder', True)
  # The next two repeat feed_forward_proj; a classifier has its own dropout.
  options.ignore(
    'dense_act_fn',
    'is_gated_act',
    'initializer_factor',
    'classifier_dropout',
    'scalable_attention',
  )
  untied = options.get('tie_word_embeddings', True) is False
  scaled = options.get('scale_decoder_outputs', not untied)
  if model_type == 'mt5':
    scaled = False
  has_own_output = untied or options.has_output
  return fields | {
    'family': 't5',
    'activation': activation,
    'max_length': options.get('n_positions', _MAX_LENGTH),
    'gated_mlp': kind.startswith('gated-'),
    'attention_dropout_rate': fields['dropout_rate'],
    'per_layer_relative_bias': model_type == 'umt5',
    'output_embeddings': 'own' if has_own_output else 'tied',
    'output_scaling': (
      'auto' if scaled != has_own_output else 'width' if scaled else 'none'
    ),
  }


def _write(
  config: encoder_decoder_config.EncoderDecoderConfig, model_type: str
):
  options = config_options.of_fields(config, _FIELDS)
  gated = 'gated-' if config.gated_mlp else ''
  name = activations.to_huggingface(config.activation)
  if config.activation == 'gelu_tanh':
    name = 'gelu' if gated else 'gelu_new'
  options |= {
    'd_kv': config.dim_per_head,
    'num_decoder_layers': config.num_decoder_layers,
    'feed_forward_proj': gated + name,
    'is_encoder_decoder': True,
    'n_positions': config.max_length,
    'tie_word_embeddings': config.output_embeddings == 'tied',
  }
  problems = [] if config.is_t5 else [f'family is {config.family.value!r}']
  if config.per_layer_relative_bias != (model_type == 'umt5'):
    problems.append(
      f'per_layer_relative_bias is {config.per_layer_relative_bias}'
    )
  if gated and config.activation == 'gelu':
    problems.append("activation is 'gelu' with a gate")
  if config.attention_dropout_rate != config.dropout_rate:
    problems.append('attention_dropout_rate is not dropout_rate')
  problems += _write_scaling(config, model_type, options)
  return options, problems


def _write_scaling(config, model_type: str, options) -> list[str]:
  if model_type == 't5':
    options['scale_decoder_outputs'] = config.scales_output
  elif model_type == 'umt5':  # one option for both
    options['tie_word_embeddings'] = config.scales_output
    if config.output_embeddings == 'tied' and not config.scales_output:
      return ['tied states are not scaled']
  elif config.scales_output:
    return ['the states are scaled before the output table']
  return []


_LAYERS = """layer.0.SelfAttention.q=attention/query
  layer.0.SelfAttention.k=attention/key layer.0.SelfAttention.v=attention/value
  layer.0.SelfAttention.o=attention/output layer.0.layer_norm=attention_norm
  layer.1.EncDecAttention.q=cross_attention/query
  layer.1.EncDecAttention.k=cross_attention/key
  layer.1.EncDecAttention.v=cross_attention/value
  layer.1.EncDecAttention.o=cross_attention/output
  layer.1.layer_norm=cross_attention_norm LAST.layer_norm=mlp_norm
  LAST.DenseReluDense.wo=mlp/wo LAST.DenseReluDense."""
_PLAIN = 'wi=mlp/wi'
_GATED = 'wi_0=mlp/gate LAST.DenseReluDense.wi_1=mlp/wi'


def _side(side: str, last: str, config) -> tuple[Rule, ...]:
  """Rules of the encoder, which has no cross-attention, or the decoder."""
  layers = _LAYERS + (_GATED if config.gated_mlp else _PLAIN)
  tensor_prefix, here = f'{side}.block.{{layer}}.', f'model/{side}/layers'
  first = f'{side}.block.0.layer.0.{_BIAS}'
  return (
    *of_layers(layers.replace('LAST', last), tensor_prefix, here),
    Rule(f'{tensor_prefix}layer.0.{_BIAS}', f'{here}/relative_bias/table'),
    Rule(first, f'model/{side}/relative_bias/table'),
    *norm_rules(f'{side}.final_layer_norm', f'model/{side}/final_norm'),
  )


def _architecture(model_type: str, name: str) -> Architecture:
  return Architecture(
    model_type=model_type,
    prefix='',
    classes={Task.SEQ2SEQ: f'{name}ForConditionalGeneration'},
    body=(Rule(_SHARED, 'model/encoder/token', Transform.ROWS),),
    variants=lambda config: (
      *_side('encoder', 'layer.1', config),
      *_side('decoder', 'layer.2', config),
    ),
    head=(),
    heads={},
    output=('lm_head.weight', None),
    copies={
      'encoder.embed_tokens.weight': _SHARED,
      'decoder.embed_tokens.weight': _SHARED,
    },
    buffers=(_UNREAD,),
    aliases={
      'hidden_size': 'd_model',
      'num_attention_heads': 'num_heads',
      'num_hidden_layers': 'num_layers',
      'head_dim': 'd_kv',
    },
    config_class=encoder_decoder_config.EncoderDecoderConfig,
    read=lambda options, task: _read(options, model_type),
    write=lambda config: _write(config, model_type),
  )


ARCHITECTURES = {
  't5': _architecture('t5', 'T5'),
  'mt5': _architecture('mt5', 'MT5'),
  'umt5': _architecture('umt5', 'UMT5'),
}
