"""Settings that all heads have, and their initial parameters."""

import enum
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import encoder_config as model_config


class Features(enum.StrEnum):
  """The features of each position that a head reads."""

  PLUG_OUT = 'plug_out'  # H^L: the states of an ordinary encoder
  PLUG_IN = 'plug_in'  # [H^L : S^L] (VECO, section 3.1); needs `paired_*` rows


class StatesFrom(enum.StrEnum):
  """The part of an encoder-decoder whose states a head reads."""

  ENCODER = 'encoder'
  DECODER = 'decoder'


class Body(enum.StrEnum):
  """Whether the encoder is trained."""

  TRAINED = 'trained'
  FROZEN = 'frozen'  # its states are constants, without dropout


class HeadKind(enum.StrEnum):
  """The layers between features and classes; see `xlflax.models.heads.classification_heads`."""

  OUTPUT = 'output'  # one linear map
  DENSE = 'dense'  # dense and activation before it (BERT, RoBERTa)
  DENSE_NORM = 'dense_norm'  # and a layer norm (ModernBERT)


def body_config(model) -> model_config.EncoderConfig:
  """Returns the configuration of a model's encoder."""
  return getattr(model.config, 'encoder', model.config)


def init_linear(
  rng: jax.Array,
  shape: tuple[int, ...],
  *,
  config: model_config.EncoderConfig,
  axes: tuple[str | None, ...] = ('embed', None),
) -> dict[str, Any]:
  """Makes a head's linear map, boxed: normal(initializer_range), bias zero.

  Args:
    rng: key.
    shape: of the kernel, [inputs, *outputs].
    config: of the encoder.
    axes: logical axes of the kernel.
  """
  kernel = config.initializer_range * jax.random.normal(rng, shape, jnp.float32)
  return {
    'kernel': nn.LogicallyPartitioned(kernel, axes),
    'bias': nn.LogicallyPartitioned(
      jnp.zeros(shape[1:], jnp.float32), axes[1:]
    ),
  }
