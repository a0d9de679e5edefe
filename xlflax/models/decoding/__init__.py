"""Generating text with an encoder-decoder."""

from xlflax.models.decoding.generation import generate
from xlflax.models.decoding.options import (
  DecodingOptions,
  EarlyStopping,
  Method,
)
from xlflax.models.decoding.stepping import Hypotheses

__all__ = [
  'DecodingOptions',
  'EarlyStopping',
  'Hypotheses',
  'Method',
  'generate',
]
