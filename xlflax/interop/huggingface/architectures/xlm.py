"""XLM (Conneau and Lample, 2019).

Token types are not converted. XLM takes their embeddings from the token
embeddings.
"""

from typing import Any

from xlflax.interop.huggingface.architectures import bert, config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
  classifier_rules,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  Transform,
  layer_rules,
  norm_rules,
)
from xlflax.models import embeddings, encoder_config

_POSITIONS = 'position_embeddings.weight'
_FIELDS = {
  'vocab_size': ('vocab_size', 30145),
  'emb_dim': ('hidden_dim', 2048),
  'n_layers': ('num_layers', 12),
  'n_heads': ('num_heads', 16),
  'dropout': ('dropout_rate', 0.1),
  'attention_dropout': ('attention_dropout_rate', 0.1),
  'max_position_embeddings': ('max_position_embeddings', 512),
  'layer_norm_eps': ('layer_norm_epsilon', 1e-12),
  'init_std': ('initializer_range', 0.02),
}
# Options without effect. The `asm_` options configure the adaptive softmax,
# which `asm` enables.
_IGNORED = (
  'embed_init_std',
  'asm_cutoffs',
  'asm_div_value',
  'unk_index',
  'mask_index',
  'summary_first_dropout',
  'summary_last_dropout',
  'start_n_top',
  'end_n_top',
  'mask_token_id',
  'lang_id',
  'max_vocab',
  'min_count',
  'same_enc_dec',
  'share_inout_emb',
)


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = options.fields(_FIELDS)
  options.require('causal', False)
  options.require('asm', False)
  options.require('is_encoder', True)
  options.ignore(*_IGNORED)
  summary = (
    'summary_type',
    'summary_use_proj',
    'summary_proj_to_labels',
    'summary_activation',
  )
  if task is Task.SEQUENCE_CLASSIFICATION:
    options.require('summary_type', 'first')
    options.require('summary_use_proj', True)
    options.require('summary_proj_to_labels', True)
    options.require('summary_activation', None, '')
  else:
    options.ignore(*summary)
  num_languages = options.get('n_langs', 1)
  embedded = options.get('use_lang_emb', True) and num_languages > 1
  fields |= options.head('tied', predicts=task.predicts_tokens)
  return fields | {
    'mlp_dim': 4 * fields['hidden_dim'],
    'activation': 'gelu' if options.get('gelu_activation', True) else 'relu',
    'position_embedding': (
      'sinusoidal' if options.get('sinusoidal_embeddings', False) else 'learned'
    ),
    'use_language_embeddings': embedded,
    'num_languages': num_languages if embedded else None,
    'zero_padding_states': True,
  }


def _write(config: encoder_config.EncoderConfig):
  options = config_options.write_fields(config, _FIELDS)
  options |= {
    'gelu_activation': config.activation == 'gelu',
    'sinusoidal_embeddings': config.position_embedding == 'sinusoidal',
    'use_lang_emb': config.use_language_embeddings,
    'n_langs': config.num_languages or 1,
    'tie_word_embeddings': config.tie_word_embeddings,
  }
  problems = bert.find_differences(
    config,
    free=('use_language_embeddings',),
    zero_padding_states=True,
    position_offset=0,
    type_vocab_size=0,
    mlp_dim=4 * config.hidden_dim,
  )
  if config.position_embedding not in ('learned', 'sinusoidal'):
    problems.append(f'position_embedding is {config.position_embedding!r}')
  if config.activation not in ('gelu', 'relu'):
    problems.append(f'activation is {config.activation!r}')
  if config.mlm_head == 'transform':
    problems.append("mlm_head is 'transform'")
  if config.use_language_embeddings and (config.num_languages or 1) < 2:
    problems.append(
      'use_language_embeddings is True, but there is only one language'
    )
  return options, problems


def _positions(config: encoder_config.EncoderConfig):
  """Returns the constant position table, which transformers stores in files."""
  if config.position_embedding != 'sinusoidal':
    return None
  return embeddings.sinusoidal_positions(
    config.max_position_embeddings, config.hidden_dim
  )


ARCHITECTURES = {
  'xlm': Architecture(
    model_type='xlm',
    prefix='transformer.',
    classes={
      Task.STATES: 'XLMModel',
      Task.MASKED_LM: 'XLMWithLMHeadModel',
      Task.SEQUENCE_CLASSIFICATION: 'XLMForSequenceClassification',
      Task.TOKEN_CLASSIFICATION: 'XLMForTokenClassification',
      Task.QUESTION_ANSWERING: 'XLMForQuestionAnsweringSimple',
    },
    body=(
      Rule('embeddings.weight', 'model/embeddings/token', Transform.ROWS),
      Rule(_POSITIONS, 'model/embeddings/position'),
      Rule('lang_embeddings.weight', 'model/embeddings/language'),
      *norm_rules('layer_norm_emb', 'model/embeddings/norm'),
      *layer_rules(
        {
          'attentions.{layer}.q_lin': 'attention/query',
          'attentions.{layer}.k_lin': 'attention/key',
          'attentions.{layer}.v_lin': 'attention/value',
          'attentions.{layer}.out_lin': 'attention/output',
          'layer_norm1.{layer}': 'attention_norm',
          'ffns.{layer}.lin1': 'mlp/wi',
          'ffns.{layer}.lin2': 'mlp/wo',
          'layer_norm2.{layer}': 'mlp_norm',
        }
      ),
    ),
    head=(Rule('pred_layer.proj.bias', 'model/output_bias', Transform.ROWS),),
    heads=classifier_rules(output='sequence_summary.summary'),
    output=('pred_layer.proj.weight', 'pred_layer.proj.bias'),
    buffers=(r'(^|\.)position_ids$',),
    constants={_POSITIONS: _positions},
    aliases={
      'n_words': 'vocab_size',
      'hidden_size': 'emb_dim',
      'num_attention_heads': 'n_heads',
      'num_hidden_layers': 'n_layers',
      'bos_index': 'bos_token_id',
      'eos_index': 'eos_token_id',
      'pad_index': 'pad_token_id',
    },
    read=_read,
    write=_write,
  )
}
