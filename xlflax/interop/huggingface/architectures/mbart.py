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
  norm_rules,
  of_layers,
)
from xlflax.models import activations, encoder_decoder_config

_OFFSET = 2  # rows of the position tables before the first position
SHARED = 'shared.weight'

# Option -> (field of EncoderDecoderConfig, the library's default).
_FIELDS = config_options.option_table(
  """vocab_size=vocab_size:50265 d_model=hidden_dim:1024
  encoder_layers=num_encoder_layers:12 decoder_layers=num_decoder_layers:12
  encoder_attention_heads=num_heads:16 encoder_ffn_dim=mlp_dim:4096
  max_position_embeddings=max_length:1024 dropout=dropout_rate:0.1
  attention_dropout=attention_dropout_rate:0.0 init_std=initializer_range:0.02
  scale_embedding=scale_embeddings:False"""
)
_PRE_LN = encoder_decoder_config.EncoderDecoderFamily.PRE_LN
_EPSILON = 1e-5  # of every layer norm; no option


def read_options(
  options: config_options.Options,
  task: Task,
  *,
  family: encoder_decoder_config.EncoderDecoderFamily = _PRE_LN,
  defaults: Mapping[str, Any] | None = None,
  training_only: Sequence[str] = (),
) -> dict[str, Any]:
  """`EncoderDecoderConfig`'s arguments that BART and its heirs read alike.

  Args:
    options: of config.json.
    task: that of the model; there is but one.
    family: where the layer norms are.
    defaults: of options, where they are not mBART's.
    training_only: options that may have any value, as no model trains with
      them here.
  """
  del task
  defaults = defaults or {}
  fields = options.fields(_FIELDS, defaults)
  for name, field in (('attention_heads', 'num_heads'), ('ffn_dim', 'mlp_dim')):
    size = options.get(f'decoder_{name}', fields[field])
    if size != fields[field]:
      options.problems.append(
        f'decoder_{name} is {size}, not {fields[field]} as the encoder has'
      )
  options.require('is_encoder_decoder', True)
  options.require('tie_word_embeddings', True)
  # Those of checkpoints of its first years; each had but one value.
  options.require('normalize_before', family is _PRE_LN)
  options.require('normalize_embedding', True)
  options.require('add_final_layer_norm', family is _PRE_LN)
  options.require('add_bias_logits', False)
  options.require('static_position_embeddings', False)
  options.ignore('extra_pos_embeddings', *training_only)
  options.ignore('activation_dropout')  # of training, which has no such here
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
  """The inverse, and what such a configuration cannot express.

  Args:
    config: the configuration.
    **fixed: fields that must have these values, where they are not mBART's.
  """
  options = config_options.of_fields(config, _FIELDS)
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
    output_embeddings='tied',
    dim_per_head=config.hidden_dim // config.num_heads,
  )
  required_fields |= fixed
  problems = [
    f'{name} is {_said(getattr(config, name))}, not {_said(value)}'
    for name, value in required_fields.items()
    if getattr(config, name) != value
  ]
  return options, problems


def _said(value: Any) -> str:
  """A field's value as a gin file has it."""
  return repr(str(value) if isinstance(value, str) else value)


_LAYERS = """self_attn.q_proj=attention/query self_attn.k_proj=attention/key
  self_attn.v_proj=attention/value self_attn.out_proj=attention/output
  self_attn_layer_norm=attention_norm fc1=mlp/wi fc2=mlp/wo
  final_layer_norm=mlp_norm encoder_attn.q_proj=cross_attention/query
  encoder_attn.k_proj=cross_attention/key
  encoder_attn.v_proj=cross_attention/value
  encoder_attn.out_proj=cross_attention/output
  encoder_attn_layer_norm=cross_attention_norm"""


def side_rules(side: str, *, final_norm: bool = True) -> tuple[Rule, ...]:
  """Rules of the encoder or the decoder.

  Args:
    side: 'encoder' or 'decoder'.
    final_norm: whether a layer norm follows the last layer.
  """
  table = f'{side}.embed_positions.weight'
  last = norm_rules(f'{side}.layer_norm', f'model/{side}/final_norm')
  return (
    Rule(table, f'model/{side}/embeddings/position'),
    *norm_rules(f'{side}.layernorm_embedding', f'model/{side}/embeddings/norm'),
    *of_layers(_LAYERS, f'{side}.layers.{{layer}}.', f'model/{side}/layers'),
    *(last if final_norm else ()),
  )


ARCHITECTURES = {
  'mbart': Architecture(
    model_type='mbart',
    prefix='model.',
    classes={Task.SEQ2SEQ: 'MBartForConditionalGeneration'},
    body=(
      Rule(SHARED, 'model/encoder/embeddings/token', Transform.ROWS),
      *side_rules('encoder'),
      *side_rules('decoder'),
    ),
    head=(
      Rule('final_logits_bias', 'model/encoder/output_bias', Transform.ROW),
    ),
    heads={},
    output=('lm_head.weight', None),
    copies={
      f'model.{side}.embed_tokens.weight': f'model.{SHARED}'
      for side in ('encoder', 'decoder')
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
