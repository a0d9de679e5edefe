"""T5 layers: RMS norm, no biases, relative positions (Raffel et al. 2020).

T5 v1.1, mT5 and umT5 differ from the first T5 by the gated feed-forward block
(Shazeer 2020) and separate output embeddings. umT5 has a relative position
table in each layer (Chung et al. 2023).
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
  """Returns a normal initializer for a parameter with logical axes.

  Args:
    stddev: Standard deviation of the initial values.
    *axes: Logical axes of the parameter.
  """
  return nn.with_logical_partitioning(nn.initializers.normal(stddev), axes)


class RmsNorm(nn.Module):
  """RMS norm over the last axis, in float32 (Zhang & Sennrich 2019)."""

  config: encoder_decoder_config.EncoderDecoderConfig

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """Normalizes states [..., H]. The result has the compute dtype."""
    ones = nn.with_logical_partitioning(nn.initializers.ones_init(), ('norm',))
    scale = self.param('scale', ones, (states.shape[-1],), jnp.float32)
    function = norms.rms_norm(
      self.config.layer_norm_epsilon, self.config.compute_dtype
    )
    return function(states, scale)


class Projection(nn.Module):
  """Linear map of the last axes, without a bias.

  Attributes:
    config: Configuration of the model, which specifies the compute dtype.
    features: Sizes of the last axes of the output, which replace the contracted
      axes of the inputs.
    axes: Logical axes of the kernel, [*contracted, *features].
    stddev: Standard deviation of the initial weights.
  """

  config: encoder_decoder_config.EncoderDecoderConfig
  features: tuple[int, ...]
  axes: tuple[str, ...]
  stddev: float

  @nn.compact
  def __call__(self, inputs: jax.Array) -> jax.Array:
    """Maps inputs [..., *contracted] to outputs [..., *features]."""
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
      'kernel',
      normal_init(self.stddev, *self.axes),
      (*inputs.shape[-contracted:], *self.features),
      jnp.float32,
    )
    return dense.sharded_matmul(
      inputs, kernel, dtype, self.axes, contracted, self.config.matmul_precision
    )


def relative_buckets(
  query_positions: jax.Array,
  key_positions: jax.Array,
  *,
  causal: bool,
  config: encoder_decoder_config.EncoderDecoderConfig,
) -> jax.Array:
  """Returns the row of the relative position table for each query-key pair.

  Half of the rows are for exact distances. The distances of the other half grow
  logarithmically up to `relative_max_distance`. Larger distances share the last
  row. If `causal` is false, the second half of the table is for keys after the
  query. If it is true, these keys count as distance 0, because queries do not
  attend to them.

  Args:
    query_positions: Positions of the queries, int32 of shape [T].
    key_positions: Positions of the keys, int32 of shape [S].
    causal: Whether queries attend only to their own and earlier positions.
    config: Configuration of the model, which specifies the number of rows and
      the maximum distance.

  Returns:
    An int32 array of shape [T, S].
  """
  distance = query_positions[:, None] - key_positions[None, :]
  num_rows = config.relative_buckets
  if causal:
    first_row = jnp.zeros_like(distance)
    distance = jnp.maximum(distance, 0)
  else:
    num_rows //= 2
    first_row = num_rows * (distance < 0).astype(distance.dtype)
    distance = jnp.abs(distance)
  num_exact = num_rows // 2
  growth = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / num_exact)
  growth = growth / math.log(config.relative_max_distance / num_exact)
  far_bucket = num_exact + (growth * (num_rows - num_exact)).astype(jnp.int32)
  return first_row + jnp.where(
    distance < num_exact, distance, jnp.minimum(far_bucket, num_rows - 1)
  )


class RelativeBias(nn.Module):
  """Bias of the attention scores for each head and relative position."""

  config: encoder_decoder_config.EncoderDecoderConfig

  @nn.compact
  def __call__(self, buckets: jax.Array) -> jax.Array:
    """Maps buckets, int32 of shape [T, S], to float32 of shape [1, N, T, S]."""
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
  """Multi-head attention without biases and without the factor 1 / sqrt(D).

  The factor is part of the initial weights of the query.
  """

  config: encoder_decoder_config.EncoderDecoderConfig

  def setup(self):
    config = self.config
    heads = (config.num_heads, config.dim_per_head)
    stddev = config.hidden_dim**-0.5
    project = functools.partial(
      Projection, config, heads, ('embed', 'heads', 'kv')
    )
    self.query = project(stddev * config.dim_per_head**-0.5)
    self.key, self.value = project(stddev), project(stddev)
    self.output = Projection(
      config,
      (config.hidden_dim,),
      ('heads', 'kv', 'embed'),
      math.prod(heads) ** -0.5,
    )

  def keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Projects hidden states [B, S, H] to keys and values [B, S, N, D]."""
    return _constrain_heads(self.key(memory)), _constrain_heads(
      self.value(memory)
    )

  def __call__(
    self,
    states: jax.Array,
    memory: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    bias: jax.Array | None = None,
    deterministic: bool,
  ) -> jax.Array:
    """Attends from hidden states to a memory.

    Args:
      states: Hidden states from which queries are computed, of shape [B, T, H].
      memory: Hidden states from which keys and values are computed, of shape
        [B, S, H].
      mask: Attention mask, a `Mask` or a bool array of shape [B or 1, 1, T, S].
        If None, every query attends to every key.
      bias: Bias added to the attention scores, float32 of shape [1, N, T, S],
        or None.
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [B, T, H].
    """
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
    """Computes attention from hidden states to given keys and values.

    Args:
      states: Hidden states from which queries are computed, of shape [B, T, H].
      key: Keys of shape [B, S, N, D].
      value: Values of shape [B, S, N, D].
      mask: Attention mask, a `Mask` or a bool array of shape [B or 1, 1, T, S].
        If None, every query attends to every key.
      bias: Bias added to the attention scores, float32 of shape [1, N, T, S],
        or None.
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [B, T, H]. A query that attends to no key yields zeros.
    """
    config = self.config
    has_dropout = config.attention_dropout_rate and not deterministic
    context = attention_backends.dot_product_attention(
      _constrain_heads(self.query(states)),
      key,
      value,
      mask,
      backend=config.attention_backend,
      bias=bias,
      scale=1.0,
      dropout_rate=config.attention_dropout_rate,
      dropout_key=self.make_rng('dropout') if has_dropout else None,
    )
    return self.output(context)


def _constrain_heads(states: jax.Array) -> jax.Array:
  """Constrains the sharding of an array of shape [B, T, N, D]."""
  return layers.constrain(states, 'batch', 'length', 'heads', 'kv')


class FeedForward(nn.Module):
  """T5's feed-forward block, which computes act(x W) followed by a linear map.

  The gated block computes act(x W0) * (x W1) followed by a linear map.
  """

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
    """Maps hidden states [B, T, H] to [B, T, H]."""
    activation = activations.activation_function(self.config.activation)
    if self.config.gated_mlp:
      hidden = activation(self.gate(states)) * self.wi(states)
    else:
      hidden = activation(self.wi(states))
    hidden = layers.constrain(hidden, 'batch', 'length', 'mlp')
    return self.wo(self.dropout(hidden, deterministic=deterministic))
