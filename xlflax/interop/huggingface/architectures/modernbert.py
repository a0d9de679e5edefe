"""ModernBERT (Warner et al., 2024), which includes mmBERT.

ModernBERT applies dropout in different places than xlflax. xlflax uses the
dropout rate of ModernBERT's embeddings for the output of each block.
"""

from typing import Any

from xlflax.interop.huggingface.architectures import bert, config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  LABELED_TASKS,
  Architecture,
  Task,
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

# EncoderConfig rejects larger numbers of layers. This limit prevents the list
# of layer types from using much memory before that check.
_MAX_LAYERS = 10_000
_GLOBAL, _LOCAL = 'full_attention', 'sliding_attention'

# Option -> (field of EncoderConfig, default value in transformers).
_FIELDS = {
  'vocab_size': ('vocab_size', 50368),
  'hidden_size': ('hidden_dim', 768),
  'num_hidden_layers': ('num_layers', 22),
  'num_attention_heads': ('num_heads', 12),
  'intermediate_size': ('mlp_dim', 1152),
  'max_position_embeddings': ('max_position_embeddings', 8192),
  'norm_eps': ('layer_norm_epsilon', 1e-5),
  'attention_dropout': ('attention_dropout_rate', 0.0),
  'embedding_dropout': ('dropout_rate', 0.0),
  'initializer_range': ('initializer_range', 0.02),
  'attention_bias': ('attention_bias', False),
  'mlp_bias': ('mlp_bias', False),
  'classifier_bias': ('head_bias', False),
  'decoder_bias': ('output_bias', True),
}


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = options.fields(_FIELDS)
  fields['activation'] = options.activation('hidden_activation', 'gelu')
  fields['head_activation'] = options.activation(
    'classifier_activation', 'gelu'
  )
  fields['norm'] = 'layer' if options.get('norm_bias', False) else 'scale'
  options.require('mlp_dropout', fields['dropout_rate'], 0)
  options.require('classifier_pooling', 'cls', 'mean')
  # mmBERT uses 'sans_pos' for positions that are encoded only in the
  # attention, which holds for every model of this type.
  options.require('position_embedding_type', 'absolute', 'sans_pos', None)
  options.ignore(
    'initializer_cutoff_factor',
    'deterministic_flash_attn',
    'sparse_prediction',
    'sparse_pred_ignore_index',
    'layer_norm_eps',
    'reference_compile',
    'repad_logits_with_grad',
  )
  # The classifiers apply a dense layer and a norm to the pooled states, as the
  # masked LM's head does. These layers are parameters of the task's head.
  return (
    fields
    | _read_layers(options, min(fields['num_layers'], _MAX_LAYERS))
    | options.head('transform', predicts=task.predicts_tokens)
    | {
      'norm_position': 'pre',
      'first_attention_norm': False,
      'gated_mlp': True,
      'position_embedding': 'rotary',
    }
  )


def _read_layers(options, num_layers: int) -> dict[str, Any]:
  """Returns the fields for local attention and rotary positions."""
  global_attn_every_n_layers = options.get('global_attn_every_n_layers', 3)
  layer_types = options.get(
    'layer_types',
    [
      _LOCAL
      if global_attn_every_n_layers > 0 and i % global_attn_every_n_layers
      else _GLOBAL
      for i in range(num_layers)
    ],
  )
  global_layers = (
    i
    for i in range(1, min(num_layers, len(layer_types)))
    if layer_types[i] == _GLOBAL
  )
  global_attn_every_n_layers = next(global_layers, num_layers)
  if layer_types != [
    _LOCAL if i % global_attn_every_n_layers else _GLOBAL
    for i in range(num_layers)
  ]:
    options.problems.append(
      f'layer_types is {layer_types}, which is not a repeated sequence of one '
      'global layer and a fixed number of local layers'
    )

  window = options.get('local_attention', 128)
  rope_parameters_by_type = options.get('rope_parameters', {})
  theta_by_type = {}
  for layer_type, name, default in (
    (_GLOBAL, 'global_rope_theta', 160000.0),
    (_LOCAL, 'local_rope_theta', 10000.0),
  ):
    rope_parameters = dict(rope_parameters_by_type.get(layer_type) or {})
    theta = options.get(name, default)
    theta_by_type[layer_type] = float(rope_parameters.pop('rope_theta', theta))
    if (
      rope_parameters.pop('rope_type', 'default') != 'default'
      or rope_parameters
    ):
      options.problems.append(
        f'rope_parameters[{layer_type}] is '
        f'{rope_parameters_by_type[layer_type]}'
      )
  if set(rope_parameters_by_type) - set(theta_by_type):
    options.problems.append(f'rope_parameters is {rope_parameters_by_type}')

  if global_attn_every_n_layers == 1:  # All layers have global attention.
    return {'rope_theta': theta_by_type[_GLOBAL]}
  return {
    'rope_theta': theta_by_type[_GLOBAL],
    'global_attn_every_n_layers': global_attn_every_n_layers,
    'local_rope_theta': theta_by_type[_LOCAL],
    'local_attention': window // 2,
  }


def _write(config: encoder_config.EncoderConfig):
  options = config_options.write_fields(config, _FIELDS)
  window = config.local_attention
  local_theta = config.local_rope_theta or config.rope_theta
  global_attn_every_n_layers = (
    config.global_attn_every_n_layers if window is not None else 1
  )
  options |= {
    'hidden_activation': activations.to_huggingface(config.activation),
    'classifier_activation': activations.to_huggingface(
      config.head_activation or config.activation
    ),
    'norm_bias': config.norm == 'layer',
    'mlp_dropout': config.dropout_rate,
    'tie_word_embeddings': config.tie_word_embeddings,
    'local_attention': 2 * window if window is not None else 128,
    'layer_types': [
      _LOCAL if i % global_attn_every_n_layers else _GLOBAL
      for i in range(config.num_layers)
    ],
    'rope_parameters': {
      layer_type: {'rope_type': 'default', 'rope_theta': theta}
      for layer_type, theta in (
        (_GLOBAL, config.rope_theta),
        (_LOCAL, local_theta),
      )
    },
  }
  problems = bert.find_differences(
    config,
    free=[
      'norm',
      'attention_bias',
      'mlp_bias',
      'head_bias',
      'output_bias',
      'local_attention',
    ],
    position_embedding='rotary',
    norm_position='pre',
    first_attention_norm=False,
    gated_mlp=True,
    type_vocab_size=0,
  )
  if config.norm == 'rms':
    problems.append("norm is 'rms'")
  if config.mlm_head == 'tied':
    problems.append("mlm_head is 'tied'")
  return options, problems


def _head_rules(task: Task) -> tuple[Rule, ...]:
  head = f'heads/{task.value}'
  return (
    *linear_rules('head.dense', f'{head}/dense'),
    *norm_rules('head.norm', f'{head}/norm'),
    *linear_rules('classifier', f'{head}/output'),
  )


ARCHITECTURES = {
  'modernbert': Architecture(
    model_type='modernbert',
    prefix='model.',
    classes=model_classes('ModernBert'),
    body=(
      Rule(
        'embeddings.tok_embeddings.weight',
        'model/embeddings/token',
        Transform.ROWS,
      ),
      *norm_rules('embeddings.norm', 'model/embeddings/norm'),
      *norm_rules(
        'layers.{layer}.attn_norm', 'model/layers/attention_norm', first_layer=1
      ),
      *layer_rules(
        {
          'attn.Wqkv': ('attention/query', 'attention/key', 'attention/value'),
          'attn.Wo': 'attention/output',
          'mlp_norm': 'mlp_norm',
          'mlp.Wi': ('mlp/gate', 'mlp/wi'),
          'mlp.Wo': 'mlp/wo',
        },
        'layers.{layer}.',
      ),
      *norm_rules('final_norm', 'model/final_norm'),
    ),
    head=(
      *linear_rules('head.dense', 'model/head_dense'),
      *norm_rules('head.norm', 'model/head_norm'),
      Rule('decoder.bias', 'model/output_bias', Transform.ROWS),
    ),
    heads={task: _head_rules(task) for task in LABELED_TASKS},
    head_style=lambda config, options: {
      'activation': config.head_activation,
      'epsilon': config.layer_norm_epsilon,
      'pooling': {'cls': 'first'}.get(
        options.get('classifier_pooling', 'cls'), 'mean'
      ),
    },
    head_biases=lambda config: {
      'dense/bias': config.head_bias,
      'norm/bias': config.norm == 'layer',
    },
    output=('decoder.weight', 'decoder.bias'),
    read=_read,
    write=_write,
  )
}
