"""Layers of the encoder, and the modules that they are made of."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import attention, dropout, recompute
from xlflax.models import config as model_config

_Config = model_config.EncoderConfig


def constrain(states: jax.Array, *axes: str | None) -> jax.Array:
  """Activations with logical axes, such as 'batch', 'length', 'embed'."""
  return nn.with_logical_constraint(states, axes)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'gelu': recompute.recomputed(
        functools.partial(jax.nn.gelu, approximate=False)),
    'gelu_tanh': recompute.recomputed(
        functools.partial(jax.nn.gelu, approximate=True)),
    'relu': jax.nn.relu,
}


def weights_init(config: _Config, *axes: str):
  """Normal initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(
      nn.initializers.normal(config.initializer_range), axes)


def zeros_init(*axes: str):
  """Zero initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


class LayerNorm(nn.Module):
  """Layer norm over the last axis (Ba et al. 2016), in float32."""

  config: _Config

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """[..., H] -> [..., H] in the compute dtype."""
    ones = nn.with_logical_partitioning(nn.initializers.ones_init(), ('norm',))
    width = (states.shape[-1],)
    scale = self.param('scale', ones, width, jnp.float32)
    bias = self.param('bias', zeros_init('norm'), width, jnp.float32)
    function = _normalize(self.config.layer_norm_epsilon,
                          self.config.compute_dtype)
    return function(states, scale, bias)


@functools.lru_cache
def _normalize(epsilon: float, dtype: jnp.dtype):
  """(x [..., H], scale [H], bias [H]) -> [..., H] in `dtype`."""
  def normalize(states, scale, bias):
    states = states.astype(jnp.float32)
    states = states - states.mean(-1, keepdims=True)
    variance = jnp.square(states).mean(-1, keepdims=True)
    unit = states * jax.lax.rsqrt(variance + epsilon)
    rows = tuple(range(states.ndim - 1))
    scale, bias = (jnp.expand_dims(x, rows) for x in (scale, bias))
    return (unit * scale + bias).astype(dtype)

  return recompute.recomputed(normalize)


class Linear(nn.Module):
  """Linear map with bias over the last axes.

  Attributes:
    config: dtype and initialiser.
    features: shape of the output's last axes.
    axes: logical axes of the kernel, [*contracted, *features].
  """

  config: _Config
  features: tuple[int, ...]
  axes: tuple[str, ...]

  @nn.compact
  def __call__(self, inputs: jax.Array) -> jax.Array:
    """[..., *contracted] -> [..., *features] in the compute dtype."""
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
        'kernel', weights_init(self.config, *self.axes),
        (*inputs.shape[-contracted:], *self.features), jnp.float32)
    axes = ('norm' if axis == 'embed' else axis
            for axis in self.axes[contracted:])
    bias = self.param('bias', zeros_init(*axes), self.features, jnp.float32)
    outputs = jnp.tensordot(inputs.astype(dtype), kernel.astype(dtype),
                            axes=contracted)
    rows = tuple(range(inputs.ndim - contracted))
    return outputs + jnp.expand_dims(bias.astype(dtype), rows)


class SelfAttention(nn.Module):
  """Multi-head self-attention with biases (Vaswani et al. 2017, 3.2)."""

  config: _Config

  def setup(self):
    config = self.config
    heads = (config.num_heads, config.dim_per_head)
    self.query, self.key, self.value = (
        Linear(config, heads, ('embed', 'heads', 'kv')) for _ in range(3))
    self.output = Linear(config, (config.hidden_dim,),
                         ('heads', 'kv', 'embed'))

  def __call__(self, states: jax.Array, mask: jax.Array | None, *,
               deterministic: bool) -> jax.Array:
    """[B, T, H] and bool [B, 1, T, T] -> [B, T, H]."""
    config = self.config
    # [B, T, H] -> three of [B, T, N, D]
    query, key, value = (
        constrain(project(states), 'batch', 'length', 'heads', 'kv')
        for project in (self.query, self.key, self.value))
    drop = config.attention_dropout_rate and not deterministic
    context = attention.attend(
        query, key, value, mask, backend=config.attention_backend,
        dropout_rate=config.attention_dropout_rate,
        dropout_key=self.make_rng('dropout') if drop else None)
    return self.output(context)


class FeedForward(nn.Module):
  """Two linear maps with an activation between them."""

  config: _Config

  def setup(self):
    config = self.config
    self.wi = Linear(config, (config.mlp_dim,), ('embed', 'mlp'))
    self.wo = Linear(config, (config.hidden_dim,), ('mlp', 'embed'))

  def __call__(self, states: jax.Array) -> jax.Array:
    """[B, T, H] -> [B, T, H]."""
    hidden = ACTIVATIONS[self.config.activation](self.wi(states))
    return self.wo(constrain(hidden, 'batch', 'length', 'mlp'))


class EncoderLayer(nn.Module):
  """Self-attention and feed-forward, each with residual and layer norm."""

  config: _Config

  def setup(self):
    self.attention = SelfAttention(self.config)
    self.attention_norm = LayerNorm(self.config)
    self.mlp = FeedForward(self.config)
    self.mlp_norm = LayerNorm(self.config)
    self.dropout = dropout.Dropout(self.config.dropout_rate)

  def __call__(self, states: jax.Array, mask: jax.Array | None, *,
               deterministic: bool) -> jax.Array:
    """[B, T, H] and bool [B, 1, T, T] -> [B, T, H]."""
    def attend(inputs):
      return self.attention(inputs, mask, deterministic=deterministic)

    states = self._block(attend, states, self.attention_norm, deterministic)
    return self._block(self.mlp, states, self.mlp_norm, deterministic)

  def _block(self, function, states, norm, deterministic) -> jax.Array:
    """x + f(norm(x)), or norm(x + f(x))."""
    pre = self.config.norm_position is model_config.NormPosition.PRE
    inputs = norm(states) if pre else states
    outputs = self.dropout(function(inputs), deterministic=deterministic)
    states = states + outputs
    if not pre:
      states = norm(states)
    return constrain(states, 'batch', 'length', 'embed')
