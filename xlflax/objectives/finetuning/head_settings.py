"""Settings and parameter initialization that all heads share."""

import enum
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import encoder_config


class Features(enum.StrEnum):
  """Type of the features that a head reads at each position.

  Attributes:
    PLUG_OUT: The hidden states H^L of an ordinary encoder.
    PLUG_IN: The concatenation [H^L : S^L] (VECO, section 3.1). It requires
      `paired_*` sequences in the batch.
  """

  PLUG_OUT = 'plug_out'
  PLUG_IN = 'plug_in'


class StatesFrom(enum.StrEnum):
  """Component of an encoder-decoder whose hidden states a head reads."""

  ENCODER = 'encoder'
  DECODER = 'decoder'


class HeadKind(enum.StrEnum):
  """Architecture of a head (see `xlflax.models.heads.classification_heads`).

  Attributes:
    OUTPUT: One linear layer.
    DENSE: A dense layer with an activation, followed by a linear layer (BERT,
      RoBERTa).
    DENSE_NORM: A dense layer with an activation, a layer norm, and a linear
      layer (ModernBERT).
  """

  OUTPUT = 'output'
  DENSE = 'dense'
  DENSE_NORM = 'dense_norm'


def body_config(model) -> encoder_config.EncoderConfig:
  """Returns the encoder configuration of a model."""
  return getattr(model.config, 'encoder', model.config)


def init_linear(
  rng: jax.Array,
  shape: tuple[int, ...],
  *,
  config: encoder_config.EncoderConfig,
  axes: tuple[str | None, ...] = ('embed', None),
) -> dict[str, Any]:
  """Initializes the parameters of a head's linear layer.

  The kernel is drawn from a normal distribution with standard deviation
  `initializer_range`. The bias is zero.

  Args:
    rng: Random key.
    shape: Shape of the kernel, [inputs, *outputs].
    config: Configuration of the encoder, which specifies the standard deviation
      of the kernel.
    axes: Names of the kernel's logical axes.

  Returns:
    Boxed `kernel` and `bias`.
  """
  kernel = config.initializer_range * jax.random.normal(rng, shape, jnp.float32)
  return {
    'kernel': nn.LogicallyPartitioned(kernel, axes),
    'bias': nn.LogicallyPartitioned(
      jnp.zeros(shape[1:], jnp.float32), axes[1:]
    ),
  }
