"""ModernBERT (Warner et al., 2024), which mmBERT is one of, too.

Dropout is not laid out alike: the embeddings' is taken for that of each
block's output.
"""

from typing import Any

from xlflax.interop.huggingface.architectures import bert, config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
  model_classes,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  Transform,
  linear_rules,
  norm_rules,
  of_layers,
)
from xlflax.models import activations
from xlflax.models import encoder_config as model_config

# More are refused by the config; here they would take memory first.
_MOST_LAYERS = 10_000
_GLOBAL, _LOCAL = 'full_attention', 'sliding_attention'

# Option -> (field of EncoderConfig, the library's default).
_FIELDS = config_options.option_table(
  """vocab_size=vocab_size:50368 hidden_size=hidden_dim:768
  num_hidden_layers=num_layers:22 num_attention_heads=num_heads:12
  intermediate_size=mlp_dim:1152 max_position_embeddings=max_length:8192
  norm_eps=layer_norm_epsilon:1e-5
  attention_dropout=attention_dropout_rate:0.0
  embedding_dropout=dropout_rate:0.0 initializer_range=initializer_range:0.02
  attention_bias=attention_bias:False mlp_bias=mlp_bias:False
  classifier_bias=head_bias:False decoder_bias=output_bias:True"""
)


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = options.fields(_FIELDS)
  fields['activation'] = options.activation('hidden_activation', 'gelu')
  fields['head_activation'] = options.activation(
    'classifier_activation', 'gelu'
  )
  fields['norm'] = 'layer' if options.get('norm_bias', False) else 'scale'
  options.require('mlp_dropout', fields['dropout_rate'], 0)
  options.require('classifier_pooling', 'cls', 'mean')
  # mmBERT's name for: positions are only in the attention, as in every
  # model of this type.
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
  # Pooled states go through a dense map and norm like those of the masked
  # LM's head, which are parameters of the task then.
  return (
    fields
    | _read_layers(options, min(fields['num_layers'], _MOST_LAYERS))
    | options.head('transform', predicts=task.predicts_tokens)
    | {
      'norm_position': 'pre',
      'first_norm': False,
      'gated_mlp': True,
      'position_embedding': 'rotary',
    }
  )


def _read_layers(options, count: int) -> dict[str, Any]:
  """Fields of attention: which layers are local, and their positions."""
  global_every = options.get('global_attn_every_n_layers', 3)
  kinds = options.get(
    'layer_types',
    [
      _LOCAL if global_every > 0 and i % global_every else _GLOBAL
      for i in range(count)
    ],
  )
  global_every = next(
    (i for i in range(1, count) if i < len(kinds) and kinds[i] == _GLOBAL),
    count,
  )
  if kinds != [_LOCAL if i % global_every else _GLOBAL for i in range(count)]:
    options.problems.append(
      f'layer_types is {kinds}, which does not repeat a global layer and '
      'some local ones'
    )
  window = options.get('local_attention', 128)
  periods = options.get('rope_parameters', {})
  theta_by_kind = {}
  for kind, name, usual in (
    (_GLOBAL, 'global_rope_theta', 160000.0),
    (_LOCAL, 'local_rope_theta', 10000.0),
  ):
    rope_parameters = dict(periods.get(kind) or {})
    theta = options.get(name, usual)
    theta_by_kind[kind] = float(rope_parameters.pop('rope_theta', theta))
    if (
      rope_parameters.pop('rope_type', 'default') != 'default'
      or rope_parameters
    ):
      options.problems.append(f'rope_parameters[{kind}] is {periods[kind]}')
  if set(periods) - set(theta_by_kind):
    options.problems.append(f'rope_parameters is {periods}')
  if global_every == 1:  # none is local
    return {'rotary_theta': theta_by_kind[_GLOBAL]}
  return {
    'rotary_theta': theta_by_kind[_GLOBAL],
    'global_every': global_every,
    'local_rotary_theta': theta_by_kind[_LOCAL],
    'local_window': window // 2,
  }


def _write(config: model_config.EncoderConfig):
  options = config_options.of_fields(config, _FIELDS)
  window = config.local_window
  local_theta = config.local_rotary_theta or config.rotary_theta
  global_every = config.global_every if window is not None else 1
  options |= {
    'hidden_activation': activations.to_huggingface(config.activation),
    'classifier_activation': activations.to_huggingface(
      config.head_activation or config.activation
    ),
    'norm_bias': config.norm == 'layer',
    'mlp_dropout': config.dropout_rate,
    'tie_word_embeddings': config.output_embeddings == 'tied',
    'local_attention': 2 * window if window is not None else 128,
    'layer_types': [
      _LOCAL if i % global_every else _GLOBAL for i in range(config.num_layers)
    ],
    'rope_parameters': {
      kind: {'rope_type': 'default', 'rope_theta': theta}
      for kind, theta in ((_GLOBAL, config.rotary_theta), (_LOCAL, local_theta))
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
      'local_window',
    ],
    position_embedding='rotary',
    norm_position='pre',
    first_norm=False,
    gated_mlp=True,
    type_vocab_size=0,
  )
  if config.norm == 'rms':
    problems.append("norm is 'rms'")
  if config.mlm_head == 'tied':
    problems.append("mlm_head is 'tied'")
  return options, problems


def _head(task: Task) -> dict[Task, tuple[Rule, ...]]:
  here = f'heads/{task.value}'
  return {
    task: (
      *linear_rules('head.dense', f'{here}/dense'),
      *norm_rules('head.norm', f'{here}/norm'),
      *linear_rules('classifier', f'{here}/output'),
    )
  }


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
      *of_layers(
        """attn.Wqkv=attention/query,attention/key,attention/value
        attn.Wo=attention/output mlp_norm=mlp_norm
        mlp.Wi=mlp/gate,mlp/wi mlp.Wo=mlp/wo""",
        'layers.{layer}.',
      ),
      *norm_rules('final_norm', 'model/final_norm'),
    ),
    head=(
      *linear_rules('head.dense', 'model/head_dense'),
      *norm_rules('head.norm', 'model/head_norm'),
      Rule('decoder.bias', 'model/output_bias', Transform.ROWS),
    ),
    heads={
      **_head(Task.SEQUENCE_CLASSIFICATION),
      **_head(Task.TOKEN_CLASSIFICATION),
      **_head(Task.QUESTION_ANSWERING),
    },
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
