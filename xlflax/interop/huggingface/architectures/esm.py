"""ESM (Lin et al., 2023) with rotary positions and ungated pre-LN blocks.

ESM was published for proteins, but text models such as `recipes/small.gin`
also fit its format. The published ESM checkpoints scale embeddings by the
fraction of masked tokens (`token_dropout`). xlflax does not implement this
scaling and rejects these checkpoints.
"""

import dataclasses
from typing import Any

import numpy as np

from xlflax.interop.huggingface.architectures import (
  bert,
  config_options,
  roberta,
)
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.interop.huggingface.architectures.tensor_rules import norm_rules
from xlflax.models import encoder_config

_LAYER = 'encoder.layer.{layer}'
# Predicts contacts in proteins. No other head uses it.
_CONTACTS = 'contact_head.regression'


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  options.require('position_embedding_type', 'rotary')
  options.require('token_dropout', False, None)
  options.require('hidden_act', 'gelu')
  options.require('is_folding_model', False, None)
  for name in ('esmfold_config', 'vocab_list'):
    options.require(name, None)
  fields = bert.read_options(
    options, task, defaults={'max_position_embeddings': 1026}
  )
  return fields | {
    'type_vocab_size': 0,
    'norm_position': 'pre',
    'embedding_norm': options.get('emb_layer_norm_before', False),
    'position_embedding': 'rotary',
    'rope_theta': options.get('rope_theta', 10000.0),
  }


def _write(config: encoder_config.EncoderConfig):
  options, problems = bert.write_options(
    config,
    norm_position='pre',
    embedding_norm=config.embedding_norm,
    position_embedding='rotary',
    type_vocab_size=0,
    activation='gelu',
  )
  if config.head_activation not in (None, 'gelu'):
    problems.append(f'head_activation is {config.head_activation!r}')
  for name in ('hidden_act', 'type_vocab_size'):
    del options[name]
  return options | {
    'max_position_embeddings': config.max_position_embeddings,
    'position_embedding_type': 'rotary',
    'rope_theta': config.rope_theta,
    'emb_layer_norm_before': config.embedding_norm,
    'token_dropout': False,
  }, problems


ARCHITECTURES = {
  'esm': dataclasses.replace(
    roberta.make_architecture(
      'esm',
      'Esm',
      norms=(
        *norm_rules('embeddings.layer_norm', 'model/embeddings/norm'),
        *norm_rules(
          f'{_LAYER}.attention.LayerNorm', 'model/layers/attention_norm'
        ),
        *norm_rules(f'{_LAYER}.LayerNorm', 'model/layers/mlp_norm'),
        *norm_rules('encoder.emb_layer_norm_after', 'model/final_norm'),
      ),
      read=_read,
      write=_write,
      prefix='esm.',
      questions=False,
    ),
    output=('lm_head.decoder.weight', None),
    buffers=(
      *bert.BUFFERS,
      r'inv_freq$',
      r'embeddings\.position_embeddings\.weight$',
      _CONTACTS,
    ),
    constants={
      f'{_CONTACTS}.weight': lambda config: np.zeros(
        (1, config.num_layers * config.num_heads), np.float32
      ),
      f'{_CONTACTS}.bias': lambda config: np.zeros(1, np.float32),
    },
    positions_after_padding=False,
  )
}
