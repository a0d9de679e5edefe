"""BERT and multilingual BERT (Devlin et al., 2019)."""

import math
from collections.abc import Collection
from typing import Any

from xlflax.interop.huggingface.architectures import config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
  classifier_rules,
  model_classes,
  pooler_rules,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  Transform,
  layer_rules,
  linear_rules,
  norm_rules,
)
from xlflax.models import activations, encoder_config

_EMBEDDINGS = 'model/embeddings'

# Rules that RoBERTa shares. Its layer norms differ.
TABLES = (
  Rule(
    'embeddings.word_embeddings.weight', f'{_EMBEDDINGS}/token', Transform.ROWS
  ),
  Rule('embeddings.position_embeddings.weight', f'{_EMBEDDINGS}/position'),
  Rule('embeddings.token_type_embeddings.weight', f'{_EMBEDDINGS}/token_type'),
)
LAYERS = layer_rules(
  {
    'attention.self.query': 'attention/query',
    'attention.self.key': 'attention/key',
    'attention.self.value': 'attention/value',
    'attention.output.dense': 'attention/output',
    'intermediate.dense': 'mlp/wi',
    'output.dense': 'mlp/wo',
  },
  'encoder.layer.{layer}.',
)
POST_NORMS = (
  *norm_rules('embeddings.LayerNorm', f'{_EMBEDDINGS}/norm'),
  *layer_rules(
    {
      'attention.output.LayerNorm': 'attention_norm',
      'output.LayerNorm': 'mlp_norm',
    },
    'encoder.layer.{layer}.',
  ),
)
BUFFERS = (r'embeddings\.position_ids$', r'embeddings\.token_type_ids$')


def token_head(prefix: str, norm_name: str, bias: str) -> tuple[Rule, ...]:
  """Returns the tensor-to-parameter rules for the masked LM's head.

  Args:
    prefix: Name of the transform's module in the checkpoint.
    norm_name: Name of the layer norm within the transform's module.
    bias: Name of the bias tensor.
  """
  return (
    *linear_rules(f'{prefix}.dense', 'model/head_dense'),
    *norm_rules(f'{prefix}.{norm_name}', 'model/head_norm'),
    Rule(bias, 'model/output_bias', Transform.ROWS),
  )


# Option -> (field of EncoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 30522),
  'hidden_size': ('hidden_dim', 768),
  'num_hidden_layers': ('num_layers', 12),
  'num_attention_heads': ('num_heads', 12),
  'intermediate_size': ('mlp_dim', 3072),
  'hidden_dropout_prob': ('dropout_rate', 0.1),
  'attention_probs_dropout_prob': ('attention_dropout_rate', 0.1),
  'type_vocab_size': ('type_vocab_size', 2),
  'initializer_range': ('initializer_range', 0.02),
  'layer_norm_eps': ('layer_norm_epsilon', 1e-12),
}


def read_options(
  options: config_options.Options,
  task: Task,
  *,
  defaults: dict[str, Any] | None = None,
) -> dict[str, Any]:
  """Converts `config.json` options to arguments of `EncoderConfig`.

  These are the arguments that BERT and RoBERTa have in common.

  Args:
    options: Options from the model's `config.json`.
    task: Task of the model's head.
    defaults: Default values for options whose defaults differ from BERT's.
  """
  defaults = defaults or {}
  fields = options.fields(_FIELDS, defaults)
  fields['activation'] = options.activation(
    'hidden_act', defaults.get('hidden_act', 'gelu')
  )
  fields['max_position_embeddings'] = options.get(
    'max_position_embeddings', defaults.get('max_position_embeddings', 512)
  )
  return fields | options.head('transform', predicts=task.predicts_tokens)


def write_options(
  config: encoder_config.EncoderConfig, **required: Any
) -> tuple[dict[str, Any], list[str]]:
  """Converts a model configuration to `config.json` options.

  This is the inverse of `read_options`.

  Args:
    config: Configuration of the model.
    **required: Required field values that differ from BERT's.

  Returns:
    The options of config.json and a list of the settings that they cannot
    express.
  """
  options = config_options.write_fields(config, _FIELDS)
  options |= {
    'hidden_act': activations.to_huggingface(config.activation),
    'max_position_embeddings': config.max_position_embeddings
    + config.position_offset,
    'tie_word_embeddings': config.tie_word_embeddings,
  }
  problems = find_differences(
    config, **{'position_embedding': 'learned'} | required
  )
  if config.mlm_head == 'tied':
    problems.append("mlm_head is 'tied'")
  if not config.type_vocab_size and 'type_vocab_size' not in required:
    problems.append('type_vocab_size is 0')
  return options, problems


# Fields of BERT's layers and of the layers of similar architectures.
_BERT_FIELDS = dict(
  norm='layer',
  zero_padding_states=False,
  use_language_embeddings=False,
  scale_embeddings=False,
  first_attention_norm=True,
  gated_mlp=False,
  attention_bias=True,
  mlp_bias=True,
  mlp_output_bias=None,
  head_bias=True,
  output_bias=True,
  num_kv_heads=None,
  local_attention=None,
  rope_scaling_factor=1.0,
  norm_position='post',
  embedding_norm=True,
)


def find_differences(
  config: encoder_config.EncoderConfig,
  *,
  free: Collection[str] = (),
  **required: Any,
) -> list[str]:
  """Returns a message for each configuration field with an unsupported value.

  Args:
    config: Configuration of the model.
    free: Names of fields that may have any value, such as 'head_dim'. Most
      other fields must have the value that they have in BERT.
    **required: Required values of fields.
  """
  fields = {
    name: value for name, value in _BERT_FIELDS.items() if name not in free
  }
  fields |= required | dict(cross_attention=False, sharing=None)
  problems = [
    f'{name} is {getattr(config, name)!r}, not {value!r}'
    for name, value in fields.items()
    if getattr(config, name) != value
  ]
  size = config.num_heads, config.dim_per_head
  if 'head_dim' not in free and math.prod(size) != config.hidden_dim:
    problems.append(f'num_heads x head_dim is {size}, not hidden_dim')
  return problems


def _write(config):
  options, problems = write_options(config, position_offset=0)
  if config.head_activation not in (None, config.activation):
    problems.append(f'head_activation is {config.head_activation!r}')
  return options, problems


ARCHITECTURES = {
  'bert': Architecture(
    model_type='bert',
    prefix='bert.',
    classes=model_classes('Bert') | {Task.PRETRAINING: 'BertForPreTraining'},
    body=(*TABLES, *LAYERS, *POST_NORMS),
    head=token_head(
      'cls.predictions.transform', 'LayerNorm', 'cls.predictions.bias'
    ),
    heads=classifier_rules(dense='bert.pooler.dense')
    | {
      Task.PRETRAINING: (
        *pooler_rules('bert.pooler.dense'),
        *linear_rules('cls.seq_relationship', 'heads/next_sentence/output'),
      )
    },
    optional=(
      pooler_rules('bert.pooler.dense'),
      linear_rules('cls.seq_relationship', 'heads/next_sentence/output'),
    ),
    output=('cls.predictions.decoder.weight', 'cls.predictions.decoder.bias'),
    buffers=BUFFERS,
    read=read_options,
    write=_write,
  )
}
