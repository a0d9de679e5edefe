"""Rotary positions and norms after blocks: mGTE, jina-embeddings-v3, nomic.

Sources: Zhang et al., 2024; Sturua et al., 2024; Nussbaum et al., 2024.
Their files hold queries, keys and values as one matrix, whoever writes them.
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
  norm_rules,
  of_layers,
)
from xlflax.models import encoder_config as model_config

# Options of the code that mGTE and nomic came with: those that are off, those
# that have another value in all of their models, and those about speed.
_OFF = [
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
]
_FIXED = {'activation_function': 'swiglu', 'rotary_emb_fraction': 1.0}
_FIXED |= {'scale_attn_weights': True, 'layer_norm_type': 'layer_norm'}
_UNREAD = [
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
]
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


def of_first_code(options: Mapping[str, Any]) -> dict[str, Any]:
  """mGTE's config.json for the code it was published with, as that of `gte`.

  Its 'ntk' stretches all periods by factor^(2 / D) besides the base by factor.
  """
  names = [str(n).replace('New', 'Gte') for n in options['architectures']]
  gte_options = dict(options) | {'model_type': 'gte', 'architectures': names}
  gte_options.pop('auto_map', None)
  scaling = options.get('rope_scaling') or {}
  if scaling.keys() == {'type', 'factor'} and scaling['type'] == 'ntk':
    width = options['hidden_size'] / options['num_attention_heads']
    gte_options['rope_scaling'] = None
    gte_options['rope_parameters'] = {
      'rope_type': 'linear',
      'rope_theta': gte_options.pop('rope_theta') * scaling['factor'],
      'factor': scaling['factor'] ** (2 / width),
    }
  return gte_options


# Fields that all models of a type have, and the library's options, where
# neither shapes nor BERT's tell. jina-embeddings-v3's blocks are plain.
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
  options: config_options.Options, task: Task, kind: str
) -> dict[str, Any]:
  for name in _OFF:
    options.require(name, False, None, 0)
  for name, value in _FIXED.items():
    options.require(name, value)
  options.ignore(*_UNREAD)
  options.require('position_embedding_type', 'rope', 'rotary', 'absolute', None)
  defaults = _DEFAULTS[kind]
  fields = bert.read_options(options, task, defaults=defaults)
  fields['head_dim'] = options.get('head_dim', None)
  if task.predicts_tokens and kind != 'nomic_bert':
    fields['head_activation'] = 'gelu'
  fields['position_embedding'] = 'rotary'
  rotary = config_options.rotary_fields(options, defaults['theta'])
  return fields | _FIELDS[kind] | rotary


def _write(config: model_config.EncoderConfig, kind: str):
  options, problems = bert.write_options(
    config,
    **_FIELDS[kind] | {'position_embedding': 'rotary'},
    rotary_factor=config.rotary_factor,
  )
  head = config.head_activation or config.activation
  if head != (config.activation if kind == 'nomic_bert' else 'gelu'):
    problems.append(f'head_activation is {config.head_activation!r}')
  options['max_position_embeddings'] = config.max_length
  return options | {
    'rope_parameters': config_options.of_rotary(config)
  }, problems


def _architecture(
  kind: str, name: str, prefix: str, first: str, *layers: str, **others
) -> Architecture:
  """One of the family: `first` is the embeddings' norm."""
  return Architecture(
    model_type=kind,
    prefix=prefix,
    classes=model_classes(
      name, questions=Task.QUESTION_ANSWERING in others['heads']
    ),
    body=(
      bert.TABLES[0],
      bert.TABLES[2],
      *norm_rules(first, 'model/embeddings/norm'),
      *of_layers(*layers),
    ),
    optional=(pooler_rules(f'{prefix}pooler.dense'),),
    buffers=(*bert.BUFFERS, r'inv_freq$'),
    aliases=_ALIASES,
    read=functools.partial(_read, kind=kind),
    write=functools.partial(_write, kind=kind),
    **others,
  )


_HEAD, _BERT = 'lm_head.decoder', 'cls.predictions'
ARCHITECTURES = {
  'gte': _architecture(
    'gte',
    'Gte',
    'gte.',
    'embeddings.LayerNorm',
    """attention.qkv_proj=attention/query,attention/key,attention/value
    attention.o_proj=attention/output attn_ln=attention_norm mlp_ln=mlp_norm
    mlp.up_gate_proj=mlp/wi,mlp/gate mlp.down_proj=mlp/wo""",
    'encoder.layer.{layer}.',
    head=bert.token_head('lm_head', 'norm', f'{_HEAD}.bias'),
    heads=classifier_rules(dense='gte.pooler.dense', questions=False),
    output=(f'{_HEAD}.weight', f'{_HEAD}.bias'),
  ),
  'jina_embeddings_v3': _architecture(
    'jina_embeddings_v3',
    'JinaEmbeddingsV3',
    'roberta.',
    'emb_ln',
    """mixer.Wqkv=attention/query,attention/key,attention/value
    mixer.out_proj=attention/output norm1=attention_norm norm2=mlp_norm
    mlp.fc1=mlp/wi mlp.fc2=mlp/wo""",
    'encoder.layers.{layer}.',
    head=bert.token_head('lm_head', 'layer_norm', 'lm_head.bias'),
    heads=classifier_rules(
      dense='classifier.dense', output='classifier.out_proj'
    ),
    output=(f'{_HEAD}.weight', f'{_HEAD}.bias'),
  ),
  'nomic_bert': _architecture(
    'nomic_bert',
    'NomicBert',
    'nomic_bert.',
    'emb_ln',
    """attn.Wqkv=attention/query,attention/key,attention/value
    attn.out_proj=attention/output norm1=attention_norm norm2=mlp_norm
    mlp.fc11=mlp/wi mlp.fc12=mlp/gate mlp.fc2=mlp/wo""",
    'encoder.layers.{layer}.',
    head=bert.token_head(f'{_BERT}.transform', 'layer_norm', f'{_BERT}.bias'),
    heads=classifier_rules(dense='nomic_bert.pooler.dense', questions=False),
    output=(f'{_BERT}.decoder.weight', f'{_BERT}.decoder.bias'),
  ),
}
