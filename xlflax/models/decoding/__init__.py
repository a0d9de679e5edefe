"""Text generation with encoder-decoders."""

from xlflax.models.decoding.decoding_options import (
  DecodingOptions,
  EarlyStopping,
  Method,
)
from xlflax.models.decoding.decoding_step import Hypotheses
from xlflax.models.decoding.generation import generate

__all__ = [
  'DecodingOptions',
  'EarlyStopping',
  'Hypotheses',
  'Method',
  'generate',
]
