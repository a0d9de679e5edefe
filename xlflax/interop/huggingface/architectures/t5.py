"""T5, T5 v1.1, mT5 and umT5.

Sources: Raffel et al., 2020; Xue et al., 2021; Chung et al., 2023.

config.json specifies how the states are scaled before the output table. It
does not specify whether the output table is tied to the token embeddings. The
tensors in the weight files determine that.
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
  layer_rules,
  norm_rules,
)
from xlflax.models import activations, encoder_decoder_config

_SHARED = 'shared.weight'
_BIAS = 'SelfAttention.relative_attention_bias.weight'
# Table of the cross-attention in T5 v1.0's decoder, which no code uses.
_UNUSED_TABLE = (
  r'^decoder\..*\.EncDecAttention\.relative_attention_bias\.weight$'
)
_MAX_LENGTH = 1024  # Relative positions do not limit the length.

# Option -> (field of EncoderDecoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 32128),
  'd_model': ('hidden_dim', 512),
  'd_kv': ('head_dim', 64),
  'd_ff': ('mlp_dim', 2048),
  'num_layers': ('num_encoder_layers', 6),
  'num_heads': ('num_heads', 8),
  'relative_attention_num_buckets': ('relative_buckets', 32),
  'relative_attention_max_distance': ('relative_max_distance', 128),
  'dropout_rate': ('dropout_rate', 0.1),
  'layer_norm_epsilon': ('layer_norm_epsilon', 1e-6),
}
_MULTILINGUAL_DEFAULTS = dict(
  vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6
)


def _feed_forwards() -> dict[str, str]:
  """Returns the supported values of feed_forward_proj and their activations."""
  plain = activations.from_huggingface()
  gated = {f'gated-{name}': activation for name, activation in plain.items()}
  # 'gated-gelu' uses the tanh approximation of GELU, but 'gelu' does not.
  return plain | gated | {'gated-gelu': 'gelu_tanh'}


def _read(options: config_options.Options, model_type: str) -> dict[str, Any]:
  defaults = {} if model_type == 't5' else _MULTILINGUAL_DEFAULTS
  fields = options.fields(_FIELDS, defaults)
  fields['num_decoder_layers'] = options.get(
    'num_decoder_layers', fields['num_encoder_layers']
  )
  default = 'relu' if model_type == 't5' else 'gated-gelu'
  feed_forward = options.get('feed_forward_proj', default)
  activation = options.choose('feed_forward_proj', default, _feed_forwards())
  options.require('is_encoder_decoder', True)
  # The first two options repeat feed_forward_proj. The dropout rate applies
  # only to a classifier.
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
  # By default, a model scales the states if its embeddings are tied.
  if scaled != has_own_output:
    output_scaling = 'auto'
  else:
    output_scaling = 'width' if scaled else 'none'
  return fields | {
    'family': 't5',
    'activation': activation,
    'max_position_embeddings': options.get('n_positions', _MAX_LENGTH),
    'gated_mlp': feed_forward.startswith('gated-'),
    'attention_dropout_rate': fields['dropout_rate'],
    'per_layer_relative_bias': model_type == 'umt5',
    'tie_word_embeddings': not has_own_output,
    'output_scaling': output_scaling,
  }


def _write(
  config: encoder_decoder_config.EncoderDecoderConfig, model_type: str
):
  options = config_options.write_fields(config, _FIELDS)
  feed_forward = activations.to_huggingface(config.activation)
  if config.activation == 'gelu_tanh':
    feed_forward = 'gelu' if config.gated_mlp else 'gelu_new'
  if config.gated_mlp:
    feed_forward = f'gated-{feed_forward}'
  options |= {
    'd_kv': config.dim_per_head,
    'num_decoder_layers': config.num_decoder_layers,
    'feed_forward_proj': feed_forward,
    'is_encoder_decoder': True,
    'n_positions': config.max_position_embeddings,
    'tie_word_embeddings': config.tie_word_embeddings,
  }
  problems = [] if config.is_t5 else [f'family is {config.family.value!r}']
  if config.per_layer_relative_bias != (model_type == 'umt5'):
    problems.append(
      f'per_layer_relative_bias is {config.per_layer_relative_bias}'
    )
  if config.gated_mlp and config.activation == 'gelu':
    problems.append("activation is 'gelu' in a gated MLP")
  if config.attention_dropout_rate != config.dropout_rate:
    problems.append('attention_dropout_rate differs from dropout_rate')
  problems += _write_scaling(config, model_type, options)
  return options, problems


def _write_scaling(config, model_type: str, options) -> list[str]:
  """Sets the options for output scaling and returns unsupported settings."""
  if model_type == 't5':
    options['scale_decoder_outputs'] = config.scales_output
  elif model_type == 'umt5':
    # One option specifies both the scaling and the tied embeddings.
    options['tie_word_embeddings'] = config.scales_output
    if config.tie_word_embeddings and not config.scales_output:
      return ['embeddings are tied, but states are not scaled']
  elif config.scales_output:
    return ['states are scaled before the output table']
  return []


def _layer_names(mlp: str, *, gated: bool) -> dict[str, str]:
  """Maps the tensor names of a layer to parameter names.

  Args:
    mlp: Name of the MLP's sublayer: 'layer.1' in the encoder and 'layer.2' in
      the decoder.
    gated: Whether to include the gate of the MLP.
  """
  names = {
    'layer.0.SelfAttention.q': 'attention/query',
    'layer.0.SelfAttention.k': 'attention/key',
    'layer.0.SelfAttention.v': 'attention/value',
    'layer.0.SelfAttention.o': 'attention/output',
    'layer.0.layer_norm': 'attention_norm',
  }
  if mlp == 'layer.2':
    names |= {
      'layer.1.EncDecAttention.q': 'cross_attention/query',
      'layer.1.EncDecAttention.k': 'cross_attention/key',
      'layer.1.EncDecAttention.v': 'cross_attention/value',
      'layer.1.EncDecAttention.o': 'cross_attention/output',
      'layer.1.layer_norm': 'cross_attention_norm',
    }
  names |= {
    f'{mlp}.layer_norm': 'mlp_norm',
    f'{mlp}.DenseReluDense.wo': 'mlp/wo',
  }
  if gated:
    names |= {
      f'{mlp}.DenseReluDense.wi_0': 'mlp/gate',
      f'{mlp}.DenseReluDense.wi_1': 'mlp/wi',
    }
  else:
    names[f'{mlp}.DenseReluDense.wi'] = 'mlp/wi'
  return names


def _stack_rules(stack: str, mlp: str, config) -> tuple[Rule, ...]:
  """Returns the rules that map encoder or decoder tensors to parameters."""
  names = _layer_names(mlp, gated=config.gated_mlp)
  tensors = f'{stack}.block.{{layer}}.'
  parameters = f'model/{stack}'
  return (
    *layer_rules(names, tensors, f'{parameters}/layers'),
    Rule(
      f'{tensors}layer.0.{_BIAS}', f'{parameters}/layers/relative_bias/table'
    ),
    Rule(
      f'{stack}.block.0.layer.0.{_BIAS}', f'{parameters}/relative_bias/table'
    ),
    *norm_rules(f'{stack}.final_layer_norm', f'{parameters}/final_norm'),
  )


def _architecture(model_type: str, name: str) -> Architecture:
  return Architecture(
    model_type=model_type,
    prefix='',
    classes={Task.SEQ2SEQ: f'{name}ForConditionalGeneration'},
    body=(Rule(_SHARED, 'model/encoder/token', Transform.ROWS),),
    variants=lambda config: (
      *_stack_rules('encoder', 'layer.1', config),
      *_stack_rules('decoder', 'layer.2', config),
    ),
    head=(),
    heads={},
    output=('lm_head.weight', None),
    copies={
      'encoder.embed_tokens.weight': _SHARED,
      'decoder.embed_tokens.weight': _SHARED,
    },
    buffers=(_UNUSED_TABLE,),
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
