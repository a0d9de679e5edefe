"""Gin file for runs that are initialized from an imported model."""

import dataclasses
import enum

from xlflax.interop.huggingface.architectures.architecture_registry import (
  Config,
)
from xlflax.models import encoder_decoder_config

FILE = 'model.gin'
# Fields that are derived from the vocabulary.
_VOCABULARY_FIELDS = ('vocab_size', 'num_languages')

_HEAD = """\
from __gin__ import dynamic_registration

# The model of this directory. Every field is set, so pass this file after all
# others. To continue training from it:
#   xlflax train --gin_file=pretrain/... --gin_file={file} \\
#     --vocabulary={directory}/vocabulary --gin.INIT_FROM="'{directory}'" ...

{model}"""
_ENCODER = """\
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder

MODEL = @encoder.Encoder()
encoder.Encoder.config = @model_config.EncoderConfig()
"""
_ENCODER_DECODER = """\
from xlflax.models import encoder_decoder
from xlflax.models import encoder_decoder_config

MODEL = @encoder_decoder.EncoderDecoder()
encoder_decoder.EncoderDecoder.config = \
@encoder_decoder_config.EncoderDecoderConfig()
"""


def format_gin_file(config: Config, directory: str) -> str:
  """Returns a gin file that binds every field of the model.

  Because every field is bound, no value of an earlier gin file remains in
  effect.

  Args:
    config: Configuration of the model.
    directory: Directory in which the gin file will be stored.
  """
  if isinstance(config, encoder_decoder_config.EncoderDecoderConfig):
    model = _ENCODER_DECODER
    config_name = 'encoder_decoder_config.EncoderDecoderConfig'
  else:
    model = _ENCODER
    config_name = 'model_config.EncoderConfig'
  lines = [
    _HEAD.format(file=f'{directory}/{FILE}', directory=directory, model=model)
  ]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if field.name in _VOCABULARY_FIELDS:
      continue
    value = value.value if isinstance(value, enum.Enum) else value
    lines.append(f'{config_name}.{field.name} = {value!r}')
  return '\n'.join(lines) + '\n'
