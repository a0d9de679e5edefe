"""Initialization of an encoder-decoder from an encoder (VECO, section 4).

| encoder-decoder | encoder |
| --- | --- |
| encoder, and embeddings of the decoder | encoder |
| self-attention and feed-forward of the decoder | those of the encoder |
| encoder-to-decoder attention | plug-in cross-attention |
| map to the vocabulary (VECO's f, equations 10 to 13) | that of the encoder |

The model needs `mlm_head='transform'` to initialize that map completely.

In a tied decoder, only the parameters in the table's last row are separate.
"""

import dataclasses
import enum
import re
from collections.abc import Collection
from typing import Any

from xlflax.utils import class_registry, errors


class Layers(enum.Enum):
  """Choice of encoder layers that initialize a decoder (VECO, table 4)."""

  FIRST = 'first'
  LAST = 'last'


class CrossAttention(enum.Enum):
  """Initialization of the decoder's cross-attention."""

  PLUG_IN = 'plug_in'  # VECO's cross-attention.
  # Random, for an encoder without cross-attention such as XLM-R.
  RANDOM = 'random'


_SIDE = re.compile(r'^model/(encoder|decoder)/')
_PLUG_IN = re.compile(r'^model/layers(_\d+)?/cross_attention')
_DECODER_CROSS_ATTENTION = re.compile(
  r'^model/decoder/layers(_\d+)?/cross_attention'
)


@class_registry.register('init_decoder_from_encoder')
@dataclasses.dataclass(frozen=True, kw_only=True)
class InitDecoderFromEncoder:
  """Options for initializing an `EncoderDecoder` from an `Encoder` run.

  Attributes:
    layers: Encoder layers from which the decoder is initialized if it has fewer
      layers than the encoder: the FIRST or the LAST. If None,
      `EncoderDecoderConfig.tied_layers` is used for a tied decoder, and LAST
      otherwise.
    cross_attention: Initialization of the decoder's cross-attention: PLUG_IN
      for the cross-attention of a VECO encoder, or RANDOM.
  """

  layers: Layers | None = None
  cross_attention: CrossAttention = CrossAttention.PLUG_IN

  def resolve(self, model) -> 'InitDecoderFromEncoder':
    """Returns a copy whose `layers` are the layers that a tied decoder shares.

    The options of untied decoders are returned unchanged.

    Args:
      model: Encoder-decoder that is initialized.

    Raises:
      ConfigError: If `layers` differs from the layers that a tied decoder
        shares.
    """
    config: Any = getattr(model, 'config', None)
    if not getattr(config, 'tie_decoder', False):
      return self
    tied = Layers(config.tied_layers.value)
    if self.layers is not None and self.layers is not tied:
      raise errors.ConfigError(
        f'`layers` must be {tied.value!r}, the value of '
        '`EncoderDecoderConfig.tied_layers`, because the tied decoder shares '
        'these layers',
        got=self.layers.value,
        where=errors.field_location(self, 'layers'),
      )
    return dataclasses.replace(self, layers=tied)

  def should_initialize(self, name: str) -> bool:
    """Returns whether a parameter is initialized from the encoder."""
    fresh = self.cross_attention is CrossAttention.RANDOM
    return not (fresh and _DECODER_CROSS_ATTENTION.match(name))

  def must_use(self, source_name: str, used_names: Collection[str]) -> bool:
    """Returns whether an encoder parameter must be used in the decoder.

    The plug-in cross-attention of a layer may remain unused, because a shallow
    decoder uses only some layers and a random cross-attention uses none.

    Args:
      source_name: Name of the encoder's parameter.
      used_names: Names of all encoder parameters from which the decoder is
        initialized.
    """
    if not _PLUG_IN.match(source_name):
      return True
    if self.cross_attention is CrossAttention.RANDOM:
      return False
    return not any(_PLUG_IN.match(name) for name in used_names)

  def source_name(self, name: str) -> str:
    """Converts a decoder parameter's name to the encoder parameter's name.

    For example, 'model/decoder/layers/mlp/wi/kernel' becomes
    'model/layers/mlp/wi/kernel'.
    """
    return _SIDE.sub('model/', name)

  def select_layers(self, depth: int, available: int) -> tuple[int, ...]:
    """Selects the encoder layers that initialize a stack of decoder layers.

    Args:
      depth: Number of decoder layers.
      available: Number of layers in the encoder.
    """
    depth = min(depth, available)
    first = 0 if self.layers is Layers.FIRST else available - depth
    return tuple(range(first, first + depth))
