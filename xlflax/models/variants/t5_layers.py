"""T5's layers: RMS norm, no biases, relative positions (Raffel et al. 2020).

T5 v1.1, mT5 and umT5 differ from the first T5 by the gated feed-forward block
(Shazeer 2020) and an output table of their own; umT5 has a table of relative
positions in each layer (Chung et al. 2023).
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  activations,
  dropout,
  encoder_decoder_config,
  layers,
  norms,
)
from xlflax.models.attention import attention_backends, masks
from xlflax.models.linear import dense


def normal_init(stddev: float, *axes: str):
  """Normal initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(nn.initializers.normal(stddev), axes)


class RmsNorm(nn.Module):
  """Scale by the root mean square over the last axis, in float32.

  Source: Zhang & Sennrich (2019).
  """

  config: encoder_decoder_config.EncoderDecoderConfig

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """[..., H] -> [..., H] in the compute dtype."""
    ones = nn.with_logical_partitioning(nn.initializers.ones_init(), ('norm',))
    scale = self.param('scale', ones, (states.shape[-1],), jnp.float32)
    function = norms.rms_norm(
      self.config.layer_norm_epsilon, self.config.compute_dtype
    )
    return function(states, scale)


class Projection(nn.Module):
  """Linear map without bias over the last axes.

  Attributes:
    config: dtype.
    features: shape of the output's last axes.
    axes: logical axes of the kernel, [*contracted, *features].
    stddev: of initial weights.
  """

  config: encoder_decoder_config.EncoderDecoderConfig
  features: tuple[int, ...]
  axes: tuple[str, ...]
  stddev: float

  @nn.compact
  def __call__(self, inputs: jax.Array) -> jax.Array:
    """[..., *contracted] -> [..., *features] in the compute dtype."""
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
      'kernel',
      normal_init(self.stddev, *self.axes),
      (*inputs.shape[-contracted:], *self.features),
      jnp.float32,
    )
    return dense.sharded_matmul(
      inputs, kernel, dtype, self.axes, contracted, self.config.products
    )


def relative_buckets(
  query_positions: jax.Array,
  key_positions: jax.Array,
  *,
  causal: bool,
  config: encoder_decoder_config.EncoderDecoderConfig,
) -> jax.Array:
  """Returns the row of the relative position table for each query and key.

  Half of the rows are for exact distances. The other half grow logarithmically
  up to `relative_max_distance`; larger distances share the last row. Without
  `causal`, the second half of the table is for keys after the query; with it,
  those count as distance 0, for they are never seen.

  Args:
    query_positions: int32 [T].
    key_positions: int32 [S].
    causal: whether no query sees a later key.
    config: number of rows and largest distance.

  Returns:
    int32 [T, S].
  """
  distance = query_positions[:, None] - key_positions[None, :]
  rows = config.relative_buckets
  if causal:
    first = jnp.zeros_like(distance)
    distance = jnp.maximum(distance, 0)
  else:
    rows //= 2
    first = rows * (distance < 0).astype(distance.dtype)
    distance = jnp.abs(distance)
  exact = rows // 2
  octaves = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact)
  octaves = octaves / math.log(config.relative_max_distance / exact)
  far = exact + (octaves * (rows - exact)).astype(jnp.int32)
  return first + jnp.where(
    distance < exact, distance, jnp.minimum(far, rows - 1)
  )


class RelativeBias(nn.Module):
  """A number for each head and relative position, added to the logits."""

  config: encoder_decoder_config.EncoderDecoderConfig

  @nn.compact
  def __call__(self, buckets: jax.Array) -> jax.Array:
    """int32 [T, S] -> float32 [1, N, T, S]."""
    config = self.config
    table = self.param(
      'table',
      normal_init(config.hidden_dim**-0.5, 'position', 'heads'),
      (config.relative_buckets, config.num_heads),
      jnp.float32,
    )
    bias = jnp.take(table, buckets, axis=0)  # [T, S, N]
    return jnp.transpose(bias, (2, 0, 1))[None]


class Attention(nn.Module):
  """Multi-head attention without biases and without 1 / sqrt(D).

  The scale is part of the initial weights of the query.
  """

  config: encoder_decoder_config.EncoderDecoderConfig

  def setup(self):
    config = self.config
    heads = (config.num_heads, config.dim_per_head)
    width = config.hidden_dim**-0.5
    project = functools.partial(
      Projection, config, heads, ('embed', 'heads', 'kv')
    )
    self.query = project(width * config.dim_per_head**-0.5)
    self.key, self.value = project(width), project(width)
    self.output = Projection(
      config,
      (config.hidden_dim,),
      ('heads', 'kv', 'embed'),
      math.prod(heads) ** -0.5,
    )

  def keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[B, S, H] -> keys and values, [B, S, N, D] each."""
    return _heads(self.key(memory)), _heads(self.value(memory))

  def __call__(
    self,
    states: jax.Array,
    memory: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    bias: jax.Array | None = None,
    deterministic: bool,
  ) -> jax.Array:
    """What `states` [B, T, H] read from `memory` [B, S, H]: [B, T, H]."""
    return self.attend(
      states,
      *self.keys_values(memory),
      mask,
      bias=bias,
      deterministic=deterministic,
    )

  def attend(
    self,
    states: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    bias: jax.Array | None = None,
    deterministic: bool,
  ) -> jax.Array:
    """What `states` read from keys and values.

    Args:
      states: [B, T, H], the queries' source.
      key: [B, S, N, D].
      value: [B, S, N, D].
      mask: a `Mask` or bool [B or 1, 1, T, S]; None if everything is seen.
      bias: float32 [1, N, T, S] added to the logits, or None.
      deterministic: False turns dropout on.

    Returns:
      [B, T, H]; a query that sees nothing reads zeros.
    """
    config = self.config
    drop = config.attention_dropout_rate and not deterministic
    context = attention_backends.dot_product_attention(
      _heads(self.query(states)),
      key,
      value,
      mask,
      backend=config.attention_backend,
      bias=bias,
      scale=1.0,
      dropout_rate=config.attention_dropout_rate,
      dropout_key=self.make_rng('dropout') if drop else None,
    )
    return self.output(context)


def _heads(states: jax.Array) -> jax.Array:
  """[B, T, N, D] with its logical axes."""
  return layers.constrain(states, 'batch', 'length', 'heads', 'kv')


class FeedForward(nn.Module):
  """act(x W) or, gated, act(x W0) * (x W1), then a linear map."""

  config: encoder_decoder_config.EncoderDecoderConfig

  def setup(self):
    config = self.config
    project = functools.partial(
      Projection,
      config,
      (config.mlp_dim,),
      ('embed', 'mlp'),
      config.hidden_dim**-0.5,
    )
    self.wi = project()
    if config.gated_mlp:
      self.gate = project()
    self.wo = Projection(
      config, (config.hidden_dim,), ('mlp', 'embed'), config.mlp_dim**-0.5
    )
    self.dropout = dropout.Dropout(config.dropout_rate)

  def __call__(self, states: jax.Array, *, deterministic: bool) -> jax.Array:
    """[B, T, H] -> [B, T, H]."""
    activation = activations.activation_function(self.config.activation)
    if self.config.gated_mlp:
      hidden = activation(self.gate(states)) * self.wi(states)
    else:
      hidden = activation(self.wi(states))
    hidden = layers.constrain(hidden, 'batch', 'length', 'mlp')
    return self.wo(self.dropout(hidden, deterministic=deterministic))
