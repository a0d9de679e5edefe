"""DistilBERT and its multilingual version (Sanh et al., 2019)."""

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
  linear_rules,
  norm_rules,
)
from xlflax.models import activations, encoder_config

_EPSILON = 1e-12  # Fixed epsilon of every layer norm.

# Option -> (field of EncoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 30522),
  'dim': ('hidden_dim', 768),
  'n_layers': ('num_layers', 6),
  'n_heads': ('num_heads', 12),
  'hidden_dim': ('mlp_dim', 3072),
  'max_position_embeddings': ('max_position_embeddings', 512),
  'dropout': ('dropout_rate', 0.1),
  'attention_dropout': ('attention_dropout_rate', 0.1),
  'initializer_range': ('initializer_range', 0.02),
}


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = options.fields(_FIELDS)
  fields['activation'] = options.activation('activation', 'gelu')
  fields['layer_norm_epsilon'] = _EPSILON
  # The files store sinusoidal positions as an ordinary table. The other two
  # options are dropout rates of the classifiers.
  options.ignore('sinusoidal_pos_embds', 'seq_classif_dropout', 'qa_dropout')
  options.require('tie_weights_', True)
  return fields | options.head('transform', predicts=task.predicts_tokens)


def _write(config: encoder_config.EncoderConfig):
  options = config_options.write_fields(config, _FIELDS)
  options |= {
    'activation': activations.to_huggingface(config.activation),
    'tie_word_embeddings': config.tie_word_embeddings,
  }
  problems = bert.find_differences(
    config,
    position_embedding='learned',
    position_offset=0,
    type_vocab_size=0,
    layer_norm_epsilon=_EPSILON,
  )
  if config.head_activation not in (None, config.activation):
    problems.append(f'head_activation is {config.head_activation!r}')
  if config.mlm_head == 'tied':
    problems.append("mlm_head is 'tied'")
  return options, problems


ARCHITECTURES = {
  'distilbert': Architecture(
    model_type='distilbert',
    prefix='distilbert.',
    classes=model_classes('DistilBert'),
    body=(
      *bert.TABLES[:2],
      *norm_rules('embeddings.LayerNorm', 'model/embeddings/norm'),
      *layer_rules(
        {
          'attention.q_lin': 'attention/query',
          'attention.k_lin': 'attention/key',
          'attention.v_lin': 'attention/value',
          'attention.out_lin': 'attention/output',
          'sa_layer_norm': 'attention_norm',
          'ffn.lin1': 'mlp/wi',
          'ffn.lin2': 'mlp/wo',
          'output_layer_norm': 'mlp_norm',
        },
        'transformer.layer.{layer}.',
      ),
    ),
    head=(
      *linear_rules('vocab_transform', 'model/head_dense'),
      *norm_rules('vocab_layer_norm', 'model/head_norm'),
      Rule('vocab_projector.bias', 'model/output_bias', Transform.ROWS),
    ),
    heads=classifier_rules(dense='pre_classifier'),
    head_style=lambda config, options: {'activation': 'relu'},
    output=('vocab_projector.weight', 'vocab_projector.bias'),
    buffers=bert.BUFFERS,
    aliases={
      'hidden_size': 'dim',
      'num_attention_heads': 'n_heads',
      'num_hidden_layers': 'n_layers',
    },
    read=_read,
    write=_write,
  )
}
