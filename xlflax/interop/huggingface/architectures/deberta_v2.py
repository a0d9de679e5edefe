"""DeBERTa-v2, DeBERTa-v3 and mDeBERTa-v3 (He et al., 2021; 2023)."""

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
  layer_rules,
  norm_rules,
)
from xlflax.models import activations, encoder_config

_ATTENTION_TERMS = {'c2p', 'p2c'}

# Option -> (field of EncoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 128100),
  'hidden_size': ('hidden_dim', 1536),
  'num_hidden_layers': ('num_layers', 24),
  'num_attention_heads': ('num_heads', 24),
  'intermediate_size': ('mlp_dim', 6144),
  'max_position_embeddings': ('max_position_embeddings', 512),
  'hidden_dropout_prob': ('dropout_rate', 0.1),
  'attention_probs_dropout_prob': ('attention_dropout_rate', 0.1),
  'initializer_range': ('initializer_range', 0.02),
  'layer_norm_eps': ('layer_norm_epsilon', 1e-7),
  'position_buckets': ('relative_buckets', -1),
}
# Options that select disentangled attention. All published models have them.
_REQUIRED: dict[str, Any] = {
  'relative_attention': True,
  'share_att_key': True,
  'norm_rel_ebd': 'layer_norm',
  'position_biased_input': False,
}


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = options.fields(_FIELDS)
  _check(options, fields)
  fields |= options.head('transform', predicts=task.predicts_tokens)
  fields['activation'] = options.activation('hidden_act', 'gelu')
  fields['position_embedding'] = 'disentangled'

  max_distance = options.get('max_relative_positions', -1)
  if max_distance <= 0:
    max_distance = fields['max_position_embeddings']
  fields['relative_max_distance'] = max_distance
  return fields


def _check(options: config_options.Options, fields: dict[str, Any]) -> None:
  """Reports options of the model family that are not supported."""
  for name, value in _REQUIRED.items():
    if options.values.get(name) != value:
      options.problems.append(
        f'{name} is {options.values.get(name)!r}; supported: {value!r}'
      )
  options.ignore(*_REQUIRED)
  terms = options.values.get('pos_att_type') or ()
  terms = terms.split('|') if isinstance(terms, str) else terms
  if set(terms) != _ATTENTION_TERMS:
    options.problems.append(f'pos_att_type is {terms}; supported: c2p and p2c')
  if fields['relative_buckets'] < 2:
    options.problems.append('position_buckets is not set')
    fields['relative_buckets'] = 2
  options.require('type_vocab_size', 0)
  options.require('conv_kernel_size', 0, None)
  options.require('embedding_size', fields['hidden_dim'], None)
  options.require('attention_head_size', None, *_head_sizes(fields))
  options.require('legacy', True)
  options.ignore(
    'pos_att_type',
    'pooler_dropout',
    'pooler_hidden_act',
    'pooler_hidden_size',
    'conv_act',
    'conv_groups',
    'cls_dropout',
  )


def _head_sizes(fields: dict[str, Any]) -> tuple[int, ...]:
  heads = fields['num_heads']
  return (fields['hidden_dim'] // heads,) if heads else ()


def _write(config: encoder_config.EncoderConfig):
  options = config_options.write_fields(config, _FIELDS)
  options |= _REQUIRED | {
    'hidden_act': activations.to_huggingface(config.activation),
    'max_relative_positions': config.relative_max_distance,
    'pos_att_type': ['p2c', 'c2p'],
    'type_vocab_size': 0,
    'tie_word_embeddings': config.tie_word_embeddings,
    'pooler_hidden_size': config.hidden_dim,
  }
  problems = bert.find_differences(
    config,
    position_embedding='disentangled',
    position_offset=0,
    type_vocab_size=0,
  )
  if config.head_activation not in (None, config.activation):
    problems.append(f'head_activation is {config.head_activation!r}')
  if config.mlm_head == 'tied':
    problems.append("mlm_head is 'tied'")
  return options, problems


ARCHITECTURES = {
  'deberta-v2': Architecture(
    model_type='deberta-v2',
    prefix='deberta.',
    classes=model_classes('DebertaV2'),
    body=(
      bert.TABLES[0],
      *bert.POST_NORMS,
      Rule('encoder.rel_embeddings.weight', 'model/relative/table'),
      *norm_rules('encoder.LayerNorm', 'model/relative/norm'),
      *layer_rules(
        {
          'attention.self.query_proj': 'attention/query',
          'attention.self.key_proj': 'attention/key',
          'attention.self.value_proj': 'attention/value',
          'attention.output.dense': 'attention/output',
          'intermediate.dense': 'mlp/wi',
          'output.dense': 'mlp/wo',
        },
        'encoder.layer.{layer}.',
      ),
    ),
    head=bert.token_head(
      'cls.predictions.transform', 'LayerNorm', 'cls.predictions.bias'
    ),
    heads=classifier_rules(dense='pooler.dense'),
    head_style=lambda config, options: {
      'activation': activations.from_huggingface()[
        options.get('pooler_hidden_act', 'gelu')
      ]
    },
    output=('cls.predictions.decoder.weight', 'cls.predictions.decoder.bias'),
    # The published files of v3 also contain the heads of pretraining and
    # position embeddings that the model does not use.
    buffers=(
      *bert.BUFFERS,
      r'^(lm_predictions|mask_predictions)\.',
      r'embeddings\.position_embeddings\.weight$',
    ),
    read=_read,
    write=_write,
  )
}
