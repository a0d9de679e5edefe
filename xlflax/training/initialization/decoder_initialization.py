"""An encoder-decoder's first parameters from an encoder (VECO, section 4).

| encoder-decoder | encoder |
| --- | --- |
| the encoder, and the decoder's embeddings | the encoder |
| the decoder's self-attention and feed-forward | those of the encoder |
| its encoder-to-decoder attention | the plug-in cross-attention |
| the map to the vocabulary (VECO's f, equations 10 to 13) | the encoder's |

The model needs `mlm_head='transform'` to take that map whole.

A tied decoder has only the last row's parameters of its own.
"""

import dataclasses
import enum
import re
from collections.abc import Collection
from typing import Any

from xlflax.utils import class_registry, errors


class Layers(enum.Enum):
  """Which layers of the encoder a shallow decoder is made of (table 4)."""

  FIRST = 'first'
  LAST = 'last'


class CrossAttention(enum.Enum):
  """Where encoder-to-decoder attention comes from."""

  PLUG_IN = 'plug_in'  # VECO's cross-attention
  FRESH = 'fresh'  # it stays random: from an encoder without (XLM-R)


_SIDE = re.compile(r'^model/(encoder|decoder)/')
_PLUG_IN = re.compile(r'^model/layers(_\d+)?/cross_attention')
_OWN = re.compile(r'^model/decoder/layers(_\d+)?/cross_attention')


@class_registry.register('decoder_initialization')
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderInitialization:
  """How an `EncoderDecoder` starts from the run of an `Encoder`.

  Attributes:
    layers: those of the encoder that a decoder with fewer layers takes. None:
      for a tied decoder `EncoderDecoderConfig.tied_layers`, else the last.
    cross_attention: PLUG_IN, or FRESH.
  """

  layers: Layers | None = None
  cross_attention: CrossAttention = CrossAttention.PLUG_IN

  def of_model(self, model) -> 'DecoderInitialization':
    """With the layers that a tied decoder shares.

    Raises:
      ConfigError: others are asked for.
    """
    config: Any = getattr(model, 'config', None)
    if not getattr(config, 'tie_decoder', False):
      return self
    tied = Layers(config.tied_layers.value)
    if self.layers is not None and self.layers is not tied:
      raise errors.ConfigError(
        'A tied decoder would take attention of layers that it does not share',
        got=f'layers={self.layers.value!r}',
        expected=f'{tied.value!r}, as EncoderDecoderConfig.tied_layers',
        where='DecoderInitialization.layers',
      )
    return dataclasses.replace(self, layers=tied)

  def wants(self, name: str) -> bool:
    """Whether a parameter comes from the encoder's run."""
    fresh = self.cross_attention is CrossAttention.FRESH
    return not (fresh and _OWN.match(name))

  def must_take(self, source_name: str, taken: Collection[str]) -> bool:
    """Whether a parameter of the encoder must not be left behind.

    The plug-in module of a layer may be: a shallow decoder takes that of some
    layers, a fresh attention none.

    Args:
      source_name: its name.
      taken: names of the encoder's parameters that are taken.
    """
    if not _PLUG_IN.match(source_name):
      return True
    if self.cross_attention is CrossAttention.FRESH:
      return False
    return not any(_PLUG_IN.match(name) for name in taken)

  def source_name(self, name: str) -> str:
    """The encoder's name of a parameter.

    Before: 'model/decoder/layers/mlp/wi/kernel'; after:
    'model/layers/mlp/wi/kernel'.
    """
    return _SIDE.sub('model/', name)

  def choose(self, depth: int, available: int) -> tuple[int, ...]:
    """Layers of an encoder of `available` for a stack of `depth`."""
    depth = min(depth, available)
    first = 0 if self.layers is Layers.FIRST else available - depth
    return tuple(range(first, first + depth))
