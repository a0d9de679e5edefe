"""An imported model as a gin file, for runs that start from it."""

import dataclasses
import enum

from xlflax.models import config as model_config

FILE = 'model.gin'
# The vocabulary tells these.
_LEFT_OUT = ('vocab_size', 'num_languages')

_HEAD = """\
from __gin__ import dynamic_registration

# The model of this directory. To train on from it:
#   xlflax train --gin_file=pretrain/... --gin_file={file} \\
#     --vocabulary={directory}/vocabulary --gin.INIT_FROM={directory} ...

from xlflax.models import config as model_config
from xlflax.models import encoder

MODEL = @encoder.Encoder()
encoder.Encoder.config = @model_config.EncoderConfig()
"""


def of_model(config: model_config.EncoderConfig, directory: str) -> str:
  """Bindings of every field that is not as `EncoderConfig` has it.

  Args:
    config: the model's.
    directory: where the file will lie.
  """
  lines = [_HEAD.format(file=f'{directory}/{FILE}', directory=directory)]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if field.name in _LEFT_OUT or value == field.default:
      continue
    value = value.value if isinstance(value, enum.Enum) else value
    lines.append(f'model_config.EncoderConfig.{field.name} = {value!r}')
  return '\n'.join(lines) + '\n'
