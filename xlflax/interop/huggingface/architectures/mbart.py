"""mBART and mBART-50 (Liu et al., 2020; Tang et al., 2020)."""

from collections.abc import Mapping, Sequence
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

_OFFSET = 2  # Number of rows before the first position in the position tables.
SHARED = 'shared.weight'

# Option -> (field of EncoderDecoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 50265),
  'd_model': ('hidden_dim', 1024),
  'encoder_layers': ('num_encoder_layers', 12),
  'decoder_layers': ('num_decoder_layers', 12),
  'encoder_attention_heads': ('num_heads', 16),
  'encoder_ffn_dim': ('mlp_dim', 4096),
  'max_position_embeddings': ('max_position_embeddings', 1024),
  'dropout': ('dropout_rate', 0.1),
  'attention_dropout': ('attention_dropout_rate', 0.0),
  'init_std': ('initializer_range', 0.02),
  'scale_embedding': ('scale_embeddings', False),
}
_PRE_LN = encoder_decoder_config.EncoderDecoderFamily.PRE_LN
_EPSILON = 1e-5  # Fixed epsilon of every layer norm.


def read_options(
  options: config_options.Options,
  task: Task,
  *,
  family: encoder_decoder_config.EncoderDecoderFamily = _PRE_LN,
  defaults: Mapping[str, Any] | None = None,
  training_only: Sequence[str] = (),
) -> dict[str, Any]:
  """Converts `config.json` options to arguments of `EncoderDecoderConfig`.

  It is used for all models of BART's family.

  Args:
    options: Options from the model's `config.json`.
    task: Task of the model, which is always `SEQ2SEQ`.
    family: Model family, which determines the position of the layer norms.
    defaults: Default values for options whose defaults differ from mBART's.
    training_only: Options that may have any value because they affect only
      training and xlflax does not implement them.
  """
  del task
  defaults = defaults or {}
  fields = options.fields(_FIELDS, defaults)
  for name, field in (('attention_heads', 'num_heads'), ('ffn_dim', 'mlp_dim')):
    size = options.get(f'decoder_{name}', fields[field])
    if size != fields[field]:
      options.problems.append(
        f'decoder_{name} is {size}, which differs from the value '
        f'{fields[field]} of the encoder'
      )
  options.require('is_encoder_decoder', True)
  options.require('tie_word_embeddings', True)
  # These options occur in old checkpoints and always have the same value there.
  options.require('normalize_before', family is _PRE_LN)
  options.require('normalize_embedding', True)
  options.require('add_final_layer_norm', family is _PRE_LN)
  options.require('add_bias_logits', False)
  options.require('static_position_embeddings', False)
  options.ignore('extra_pos_embeddings', *training_only)
  # Only affects training, and xlflax does not implement it.
  options.ignore('activation_dropout')
  for name in ('encoder_layerdrop', 'decoder_layerdrop'):
    if name not in training_only:
      options.require(name, 0, None)
  options.ignore('classifier_dropout', 'classif_dropout')
  return fields | {
    'family': family,
    'position_offset': _OFFSET,
    'layer_norm_epsilon': _EPSILON,
    'output_bias': options.has_bias,
    'activation': options.activation('activation_function', 'gelu'),
  }


def write_options(
  config: encoder_decoder_config.EncoderDecoderConfig, **fixed: Any
) -> tuple[dict[str, Any], list[str]]:
  """Converts a model configuration to `config.json` options.

  This is the inverse of `read_options`.

  Args:
    config: Configuration of the model.
    **fixed: Required field values that differ from mBART's.

  Returns:
    The options of config.json and a list of the settings that they cannot
    express.
  """
  options = config_options.write_fields(config, _FIELDS)
  options |= {
    'activation_function': activations.to_huggingface(config.activation),
    'decoder_attention_heads': config.num_heads,
    'decoder_ffn_dim': config.mlp_dim,
    'is_encoder_decoder': True,
  }
  required_fields = dict(
    family=_PRE_LN,
    position_offset=_OFFSET,
    layer_norm_epsilon=_EPSILON,
    position_embedding='learned',
    embedding_norm=True,
    type_vocab_size=0,
    use_language_embeddings=False,
    tie_decoder=False,
    mlm_head='tied',
    tie_word_embeddings=True,
    dim_per_head=config.hidden_dim // config.num_heads,
  )
  required_fields |= fixed
  problems = [
    f'{name} is {_format_value(getattr(config, name))}, '
    f'not {_format_value(value)}'
    for name, value in required_fields.items()
    if getattr(config, name) != value
  ]
  return options, problems


def _format_value(value: Any) -> str:
  """Formats the value of a field as in a gin file."""
  return repr(str(value) if isinstance(value, str) else value)


_LAYER_NAMES = {
  'self_attn.q_proj': 'attention/query',
  'self_attn.k_proj': 'attention/key',
  'self_attn.v_proj': 'attention/value',
  'self_attn.out_proj': 'attention/output',
  'self_attn_layer_norm': 'attention_norm',
  'fc1': 'mlp/wi',
  'fc2': 'mlp/wo',
  'final_layer_norm': 'mlp_norm',
  'encoder_attn.q_proj': 'cross_attention/query',
  'encoder_attn.k_proj': 'cross_attention/key',
  'encoder_attn.v_proj': 'cross_attention/value',
  'encoder_attn.out_proj': 'cross_attention/output',
  'encoder_attn_layer_norm': 'cross_attention_norm',
}


def stack_rules(stack: str, *, final_norm: bool = True) -> tuple[Rule, ...]:
  """Returns the rules that map encoder or decoder tensors to parameters.

  Args:
    stack: Component of the model, 'encoder' or 'decoder'.
    final_norm: Whether to include a layer norm after the last layer.
  """
  parameters = f'model/{stack}'
  rules = [
    Rule(
      f'{stack}.embed_positions.weight', f'{parameters}/embeddings/position'
    ),
    *norm_rules(
      f'{stack}.layernorm_embedding', f'{parameters}/embeddings/norm'
    ),
    *layer_rules(
      _LAYER_NAMES, f'{stack}.layers.{{layer}}.', f'{parameters}/layers'
    ),
  ]
  if final_norm:
    rules += norm_rules(f'{stack}.layer_norm', f'{parameters}/final_norm')
  return tuple(rules)


ARCHITECTURES = {
  'mbart': Architecture(
    model_type='mbart',
    prefix='model.',
    classes={Task.SEQ2SEQ: 'MBartForConditionalGeneration'},
    body=(
      Rule(SHARED, 'model/encoder/embeddings/token', Transform.ROWS),
      *stack_rules('encoder'),
      *stack_rules('decoder'),
    ),
    head=(
      Rule('final_logits_bias', 'model/encoder/output_bias', Transform.ROW),
    ),
    heads={},
    output=('lm_head.weight', None),
    copies={
      f'model.{stack}.embed_tokens.weight': f'model.{SHARED}'
      for stack in ('encoder', 'decoder')
    },
    aliases={
      'hidden_size': 'd_model',
      'num_hidden_layers': 'encoder_layers',
      'num_attention_heads': 'encoder_attention_heads',
    },
    config_class=encoder_decoder_config.EncoderDecoderConfig,
    read=read_options,
    write=write_options,
  )
}
