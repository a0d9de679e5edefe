"""An encoder-decoder's first parameters from an encoder (VECO, section 4).

| encoder-decoder | encoder |
| --- | --- |
| the encoder, and the decoder's embeddings | the encoder |
| the decoder's self-attention and feed-forward | those of the encoder |
| its encoder-to-decoder attention | the plug-in cross-attention |

A tied decoder has only the last row's parameters of its own.
"""

import dataclasses
import enum
import re

from xlflax import enums, registry


class Layers(enum.Enum):
  """Which layers of the encoder a shallow decoder is made of (table 4)."""

  FIRST = 'first'
  LAST = 'last'


class CrossAttention(enum.Enum):
  """Where encoder-to-decoder attention comes from."""

  PLUG_IN = 'plug_in'  # VECO's cross-attention
  FRESH = 'fresh'  # it stays random: from an encoder without (XLM-R)


_SIDE = re.compile(r'^model/(encoder|decoder)/')
_OWN = re.compile(r'^model/decoder/layers(_\d+)?/cross_attention')


@registry.register('decoder_initialization')
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderInitialization:
  """How an `EncoderDecoder` starts from the run of an `Encoder`.

  Attributes:
    layers: those of the encoder that a decoder with fewer layers takes. For a
      tied decoder, what `EncoderDecoderConfig.tied_layers` says.
    cross_attention: PLUG_IN, or FRESH.
  """

  layers: Layers = Layers.LAST
  cross_attention: CrossAttention = CrossAttention.PLUG_IN

  def __post_init__(self):
    enums.coerce(self, 'layers', Layers)
    enums.coerce(self, 'cross_attention', CrossAttention)

  def wants(self, name: str) -> bool:
    """Whether a parameter comes from the encoder's run."""
    fresh = self.cross_attention is CrossAttention.FRESH
    return not (fresh and _OWN.match(name))

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
