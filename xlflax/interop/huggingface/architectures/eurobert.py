"""EuroBERT (Boizard et al., 2025)."""

from collections.abc import Mapping
from typing import Any

from xlflax.interop.huggingface.architectures import bert, config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
  classifier_rules,
  model_classes,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  Transform,
  layer_rules,
)
from xlflax.models import activations, encoder_config

_THETA = 10000.0

# Option -> (field of EncoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 128256),
  'hidden_size': ('hidden_dim', 768),
  'num_hidden_layers': ('num_layers', 12),
  'num_attention_heads': ('num_heads', 12),
  'intermediate_size': ('mlp_dim', 3072),
  'max_position_embeddings': ('max_position_embeddings', 8192),
  'rms_norm_eps': ('layer_norm_epsilon', 1e-5),
  'attention_dropout': ('attention_dropout_rate', 0.0),
  'initializer_range': ('initializer_range', 0.02),
  'attention_bias': ('attention_bias', False),
  'mlp_bias': ('mlp_bias', False),
}


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = options.fields(_FIELDS)
  num_heads = fields['num_heads']
  num_kv_heads = options.get('num_key_value_heads', num_heads)
  head_dim = options.get('head_dim', fields['hidden_dim'] // num_heads)
  options.require('classifier_pooling', 'late', 'mean', 'bos')
  options.require('pretraining_tp', 1)
  options.require('hidden_dropout', 0)
  options.require('clf_pooling', 'late', 'mean', 'bos')
  return (
    fields
    | config_options.rotary_fields(options, _THETA)
    | options.head('tied', predicts=task.predicts_tokens, tied=False)
    | {
      'num_kv_heads': None if num_kv_heads == num_heads else num_kv_heads,
      'head_dim': head_dim,
      'dropout_rate': 0.0,
      'activation': options.activation('hidden_act', 'silu'),
      'norm_position': 'pre',
      'norm': 'rms',
      'embedding_norm': False,
      'position_embedding': 'rotary',
      'gated_mlp': True,
      'output_bias': fields['mlp_bias'],
    }
  )


def _write(config: encoder_config.EncoderConfig):
  options = config_options.write_fields(config, _FIELDS)
  options |= {
    'num_key_value_heads': config.num_kv_heads or config.num_heads,
    'head_dim': config.dim_per_head,
    'hidden_act': activations.to_huggingface(config.activation),
    'rope_parameters': config_options.rope_parameters(config),
    'tie_word_embeddings': config.tie_word_embeddings,
  }
  problems = bert.find_differences(
    config,
    free=[
      'head_dim',
      'attention_bias',
      'mlp_bias',
      'head_bias',
      'num_kv_heads',
      'rope_scaling_factor',
    ],
    position_embedding='rotary',
    norm='rms',
    norm_position='pre',
    embedding_norm=False,
    gated_mlp=True,
    type_vocab_size=0,
    output_bias=config.mlp_bias,
  )
  if config.hidden_dim % config.num_heads:
    problems.append('num_heads does not divide hidden_dim')
  if config.mlm_head == 'transform':
    problems.append("mlm_head is 'transform'")
  return options, problems


def _head_style(config, options: Mapping[str, Any]) -> dict[str, Any]:
  del config
  pooling = options.get('clf_pooling', 'late')
  pooling = options.get('classifier_pooling', pooling)
  if pooling == 'bos':
    pooling = 'first'
  return {'activation': 'gelu', 'pooling': pooling}


ARCHITECTURES = {
  'eurobert': Architecture(
    model_type='eurobert',
    prefix='model.',
    classes=model_classes('EuroBert', questions=False),
    body=(
      Rule('embed_tokens.weight', 'model/embeddings/token', Transform.ROWS),
      *layer_rules(
        {
          'self_attn.q_proj': 'attention/query',
          'self_attn.k_proj': 'attention/key',
          'self_attn.v_proj': 'attention/value',
          'self_attn.o_proj': 'attention/output',
          'mlp.gate_proj': 'mlp/gate',
          'mlp.up_proj': 'mlp/wi',
          'mlp.down_proj': 'mlp/wo',
          'input_layernorm': 'attention_norm',
          'post_attention_layernorm': 'mlp_norm',
        },
        'layers.{layer}.',
      ),
      Rule('norm.weight', 'model/final_norm/scale'),
    ),
    head=(Rule('lm_head.bias', 'model/output_bias', Transform.ROWS),),
    heads=classifier_rules(dense='dense', questions=False),
    head_style=_head_style,
    buffers=(r'rotary_emb\.inv_freq$',),
    output=('lm_head.weight', 'lm_head.bias'),
    read=_read,
    write=_write,
  )
}
