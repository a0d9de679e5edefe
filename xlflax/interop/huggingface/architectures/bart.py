"""BART (Lewis et al., 2020) and post-LN encoder-decoders of xlflax.

The model has the same tensors as mBART. Layer norms follow the blocks, and no
layer norm follows the last layer.
"""

import dataclasses
from typing import Any

from xlflax.interop.huggingface.architectures import config_options, mbart
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  Rule,
  Transform,
)
from xlflax.models import encoder_decoder_config

_POST_LN = encoder_decoder_config.EncoderDecoderFamily.POST_LN


def _read(options: config_options.Options, task: Task) -> dict[str, Any]:
  return mbart.read_options(options, task, family=_POST_LN)


def _write(config: encoder_decoder_config.EncoderDecoderConfig):
  return mbart.write_options(config, family=_POST_LN)


ARCHITECTURES: dict[str, Architecture] = {
  'bart': dataclasses.replace(
    mbart.ARCHITECTURES['mbart'],
    model_type='bart',
    classes={Task.SEQ2SEQ: 'BartForConditionalGeneration'},
    body=(
      Rule(mbart.SHARED, 'model/encoder/embeddings/token', Transform.ROWS),
      *mbart.stack_rules('encoder', final_norm=False),
      *mbart.stack_rules('decoder', final_norm=False),
    ),
    read=_read,
    write=_write,
  )
}
