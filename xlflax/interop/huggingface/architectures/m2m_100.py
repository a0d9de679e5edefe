"""M2M-100 and NLLB-200 (Fan et al., 2021; NLLB Team, 2022).

The layers are the same as in mBART. There is no layer norm after the embeddings
and no bias of the logits, and the position embeddings are constant.
"""

import dataclasses
from typing import Any

from xlflax.interop.huggingface.architectures import config_options, mbart
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
)
from xlflax.models import encoder_decoder_config

# Option -> default value in transformers, if it differs from mBART's.
_DEFAULTS: dict[str, Any] = {
  'vocab_size': 128112,
  'attention_dropout': 0.1,
  'scale_embedding': True,
}
_FIXED = dict(
  embedding_norm=False,
  output_bias=False,
  position_embedding='sinusoidal_halves',
)


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  fields = mbart.read_options(
    options,
    task,
    defaults=_DEFAULTS,
    training_only=('encoder_layerdrop', 'decoder_layerdrop'),
  )
  offset = options.get('pad_token_id', 1) + 1
  # A missing option and an option that is null have different defaults.
  default = 'gelu' if 'activation_function' in options.values else 'relu'
  activation = options.activation('activation_function', default)
  return fields | _FIXED | {'position_offset': offset, 'activation': activation}


def _write(config: encoder_decoder_config.EncoderDecoderConfig):
  options, problems = mbart.write_options(
    config, position_offset=config.position_offset, **_FIXED
  )
  return options | {'pad_token_id': config.position_offset - 1}, problems


ARCHITECTURES: dict[str, Architecture] = {
  'm2m_100': dataclasses.replace(
    mbart.ARCHITECTURES['mbart'],
    model_type='m2m_100',
    classes={Task.SEQ2SEQ: 'M2M100ForConditionalGeneration'},
    head=(),
    buffers=(r'embed_positions\.weights$',),
    positions_after_padding=True,
    read=_read,
    write=_write,
  )
}
