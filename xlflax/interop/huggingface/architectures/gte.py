"""mGTE, jina-embeddings-v3 and nomic-embed (rotary positions, post-LN).

Sources: Zhang et al., 2024; Sturua et al., 2024; Nussbaum et al., 2024. The
files of these models always store queries, keys and values as one matrix.
"""

import functools
from collections.abc import Mapping
from typing import Any

from xlflax.interop.huggingface.architectures import bert, config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
  classifier_rules,
  model_classes,
  pooler_rules,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  layer_rules,
  norm_rules,
)
from xlflax.models import encoder_config

# Options of the custom code that mGTE and nomic were published with: options
# that are disabled in all of their models, options with a different fixed
# value, and options that only affect the speed.
_DISABLED = (
  'causal',
  'qkv_proj_bias',
  'mlp_fc1_bias',
  'mlp_fc2_bias',
  'prenorm',
  'parallel_block',
  'parallel_block_tied_norm',
  'use_rms_norm',
  'rotary_emb_interleaved',
  'embd_pdrop',
  'rotary_emb_scale_base',
  'rotary_scaling_factor',
  'logn_attention_scale',
  'scale_attn_by_inverse_layer_idx',
)
_FIXED = {
  'activation_function': 'swiglu',
  'rotary_emb_fraction': 1.0,
  'scale_attn_weights': True,
  'layer_norm_type': 'layer_norm',
}
_IGNORED = (
  'dense_seq_output',
  'fused_bias_fc',
  'fused_dropout_add_ln',
  'unpad_inputs',
  'pad_vocab_size_multiple',
  'reorder_and_upcast_attn',
  'use_flash_attn',
  'use_xentropy',
  'summary_activation',
  'summary_first_dropout',
  'summary_proj_to_labels',
  'pack_qkv',
  'summary_type',
  'summary_use_proj',
  'logn_attention_clip1',
  'max_trained_positions',
  'use_memory_efficient_attention',
)
_ALIASES = {
  'n_embd': 'hidden_size',
  'n_layer': 'num_hidden_layers',
  'n_head': 'num_attention_heads',
  'n_inner': 'intermediate_size',
  'n_positions': 'max_position_embeddings',
  'layer_norm_epsilon': 'layer_norm_eps',
  'resid_pdrop': 'hidden_dropout_prob',
  'attn_pdrop': 'attention_probs_dropout_prob',
  'rotary_emb_base': 'rope_theta',
}


def convert_remote_code_options(options: Mapping[str, Any]) -> dict[str, Any]:
  """Converts options of mGTE's custom code to options of model type `gte`.

  The 'ntk' scaling multiplies theta by the factor and, in addition, all periods
  by factor^(2 / D), where D is the size of a head.

  Args:
    options: Options from the `config.json` with which mGTE was published.
  """
  class_names = [
    str(name).replace('New', 'Gte') for name in options['architectures']
  ]
  gte_options = dict(options)
  gte_options |= {'model_type': 'gte', 'architectures': class_names}
  gte_options.pop('auto_map', None)

  scaling = options.get('rope_scaling') or {}
  if scaling.keys() == {'type', 'factor'} and scaling['type'] == 'ntk':
    head_dim = options['hidden_size'] / options['num_attention_heads']
    gte_options['rope_scaling'] = None
    gte_options['rope_parameters'] = {
      'rope_type': 'linear',
      'rope_theta': gte_options.pop('rope_theta') * scaling['factor'],
      'factor': scaling['factor'] ** (2 / head_dim),
    }
  return gte_options


# Fields of all models of a type, and the default values of transformers where
# they differ from BERT's. The blocks of jina-embeddings-v3 are not gated.
_GATED = {'gated_mlp': True, 'mlp_bias': False}
_FIELDS: dict[str, dict[str, Any]] = {
  'gte': _GATED | {'mlp_output_bias': True},
  'jina_embeddings_v3': {},
  'nomic_bert': _GATED | {'attention_bias': False},
}
_DEFAULTS: dict[str, dict[str, Any]] = {
  'gte': dict(theta=160000.0, max_position_embeddings=8192, type_vocab_size=1),
  'jina_embeddings_v3': dict(theta=20000.0, layer_norm_eps=1e-5),
  'nomic_bert': dict(theta=1000.0, hidden_act='silu'),
}


def _read(
  options: config_options.Options, task: Task, model_type: str
) -> dict[str, Any]:
  for name in _DISABLED:
    options.require(name, False, None, 0)
  for name, value in _FIXED.items():
    options.require(name, value)
  options.ignore(*_IGNORED)
  options.require('position_embedding_type', 'rope', 'rotary', 'absolute', None)
  defaults = _DEFAULTS[model_type]
  fields = bert.read_options(options, task, defaults=defaults)
  fields['head_dim'] = options.get('head_dim', None)
  if task.predicts_tokens and model_type != 'nomic_bert':
    fields['head_activation'] = 'gelu'
  fields['position_embedding'] = 'rotary'
  rotary = config_options.rotary_fields(options, defaults['theta'])
  return fields | _FIELDS[model_type] | rotary


def _write(config: encoder_config.EncoderConfig, model_type: str):
  options, problems = bert.write_options(
    config,
    **_FIELDS[model_type] | {'position_embedding': 'rotary'},
    rope_scaling_factor=config.rope_scaling_factor,
  )
  head_activation = config.head_activation or config.activation
  required = config.activation if model_type == 'nomic_bert' else 'gelu'
  if head_activation != required:
    problems.append(f'head_activation is {config.head_activation!r}')
  options['max_position_embeddings'] = config.max_position_embeddings
  return options | {
    'rope_parameters': config_options.rope_parameters(config)
  }, problems


def _build_architecture(
  model_type: str,
  class_prefix: str,
  *,
  prefix: str,
  embedding_norm: str,
  layers: tuple[Rule, ...],
  **attributes,
) -> Architecture:
  """Builds an `Architecture` from the names that differ between the models."""
  return Architecture(
    model_type=model_type,
    prefix=prefix,
    classes=model_classes(
      class_prefix, questions=Task.QUESTION_ANSWERING in attributes['heads']
    ),
    body=(
      bert.TABLES[0],
      bert.TABLES[2],
      *norm_rules(embedding_norm, 'model/embeddings/norm'),
      *layers,
    ),
    optional=(pooler_rules(f'{prefix}pooler.dense'),),
    buffers=(*bert.BUFFERS, r'inv_freq$'),
    aliases=_ALIASES,
    read=functools.partial(_read, model_type=model_type),
    write=functools.partial(_write, model_type=model_type),
    **attributes,
  )


_QUERY_KEY_VALUE = ('attention/query', 'attention/key', 'attention/value')
ARCHITECTURES = {
  'gte': _build_architecture(
    'gte',
    'Gte',
    prefix='gte.',
    embedding_norm='embeddings.LayerNorm',
    layers=layer_rules(
      {
        'attention.qkv_proj': _QUERY_KEY_VALUE,
        'attention.o_proj': 'attention/output',
        'attn_ln': 'attention_norm',
        'mlp_ln': 'mlp_norm',
        'mlp.up_gate_proj': ('mlp/wi', 'mlp/gate'),
        'mlp.down_proj': 'mlp/wo',
      },
      'encoder.layer.{layer}.',
    ),
    head=bert.token_head('lm_head', 'norm', 'lm_head.decoder.bias'),
    heads=classifier_rules(dense='gte.pooler.dense', questions=False),
    output=('lm_head.decoder.weight', 'lm_head.decoder.bias'),
  ),
  'jina_embeddings_v3': _build_architecture(
    'jina_embeddings_v3',
    'JinaEmbeddingsV3',
    prefix='roberta.',
    embedding_norm='emb_ln',
    layers=layer_rules(
      {
        'mixer.Wqkv': _QUERY_KEY_VALUE,
        'mixer.out_proj': 'attention/output',
        'norm1': 'attention_norm',
        'norm2': 'mlp_norm',
        'mlp.fc1': 'mlp/wi',
        'mlp.fc2': 'mlp/wo',
      },
      'encoder.layers.{layer}.',
    ),
    head=bert.token_head('lm_head', 'layer_norm', 'lm_head.bias'),
    heads=classifier_rules(
      dense='classifier.dense', output='classifier.out_proj'
    ),
    output=('lm_head.decoder.weight', 'lm_head.decoder.bias'),
  ),
  'nomic_bert': _build_architecture(
    'nomic_bert',
    'NomicBert',
    prefix='nomic_bert.',
    embedding_norm='emb_ln',
    layers=layer_rules(
      {
        'attn.Wqkv': _QUERY_KEY_VALUE,
        'attn.out_proj': 'attention/output',
        'norm1': 'attention_norm',
        'norm2': 'mlp_norm',
        'mlp.fc11': 'mlp/wi',
        'mlp.fc12': 'mlp/gate',
        'mlp.fc2': 'mlp/wo',
      },
      'encoder.layers.{layer}.',
    ),
    head=bert.token_head(
      'cls.predictions.transform', 'layer_norm', 'cls.predictions.bias'
    ),
    heads=classifier_rules(dense='nomic_bert.pooler.dense', questions=False),
    output=('cls.predictions.decoder.weight', 'cls.predictions.decoder.bias'),
  ),
}
