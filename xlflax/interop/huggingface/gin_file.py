"""An imported model as a gin file, for runs that start from it."""

import dataclasses
import enum

from xlflax.interop.huggingface.architectures.architecture_registry import (
  Config,
)
from xlflax.models import encoder_decoder_config

FILE = 'model.gin'
# The vocabulary tells these.
_LEFT_OUT = ('vocab_size', 'num_languages')

_HEAD = """\
from __gin__ import dynamic_registration

# The model of this directory. Every field is set, so give this file after
# others. To train on from it:
#   xlflax train --gin_file=pretrain/... --gin_file={file} \\
#     --vocabulary={directory}/vocabulary --gin.INIT_FROM={directory} ...

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


def of_model(config: Config, directory: str) -> str:
  """Bindings of every field, so that none of an earlier file stays.

  Args:
    config: the model's.
    directory: where the file will lie.
  """
  is_pair = isinstance(config, encoder_decoder_config.EncoderDecoderConfig)
  owner = (
    'encoder_decoder_config.EncoderDecoderConfig'
    if is_pair
    else 'model_config.EncoderConfig'
  )
  lines = [
    _HEAD.format(
      file=f'{directory}/{FILE}',
      directory=directory,
      model=_ENCODER_DECODER if is_pair else _ENCODER,
    )
  ]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if field.name in _LEFT_OUT:
      continue
    value = value.value if isinstance(value, enum.Enum) else value
    lines.append(f'{owner}.{field.name} = {value!r}')
  return '\n'.join(lines) + '\n'
