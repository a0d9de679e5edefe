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
    'silu': recompute.recomputed(jax.nn.silu),
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


class Attention(nn.Module):
  """Multi-head attention with biases (Vaswani et al. 2017, 3.2).

  `__call__` is `attend` on `keys_values`; a decoder that keeps keys and
  values from one step to the next calls the two by themselves.
  """

  config: _Config

  def setup(self):
    config = self.config
    heads = (config.num_heads, config.dim_per_head)
    self.query, self.key, self.value = (
        Linear(config, heads, ('embed', 'heads', 'kv')) for _ in range(3))
    self.output = Linear(config, (config.hidden_dim,),
                         ('heads', 'kv', 'embed'))

  def keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[B, S, H] -> keys and values, [B, S, N, D] each."""
    return _heads(self.key(memory)), _heads(self.value(memory))

  def attend(self, states: jax.Array, key: jax.Array, value: jax.Array,
             mask: jax.Array | None, *, deterministic: bool) -> jax.Array:
    """What `states` [B, T, H] read from keys and values: [B, T, H].

    Args:
      states: [B, T, H], the queries' source.
      key: [B, S, N, D].
      value: [B, S, N, D].
      mask: bool [B, 1, T, S], or None if everything is seen.
      deterministic: False turns dropout on.
    """
    query = _heads(self.query(states))
    return self.output(self._context(query, key, value, mask, deterministic))

  def _context(self, query, key, value, mask, deterministic) -> jax.Array:
    """[B, T, N, D] of each head."""
    config = self.config
    drop = config.attention_dropout_rate and not deterministic
    return attention.attend(
        query, key, value, mask, backend=config.attention_backend,
        dropout_rate=config.attention_dropout_rate,
        dropout_key=self.make_rng('dropout') if drop else None)


class SelfAttention(Attention):
  """Queries, keys and values of one sequence (VECO, equations 2 to 5)."""

  def __call__(self, states: jax.Array, mask: jax.Array | None, *,
               deterministic: bool) -> jax.Array:
    """[B, T, H] and bool [B, 1, T, T] -> [B, T, H]."""
    return self.attend(states, *self.keys_values(states), mask,
                       deterministic=deterministic)


class CrossAttention(Attention):
  """Queries of one sequence, keys and values of another's states.

  VECO's plug-in module (equations 6 to 9), and the attention of a decoder to
  its encoder. A query that sees nothing of the memory reads zeros.
  """

  def __call__(self, states: jax.Array, memory: jax.Array,
               mask: jax.Array | None, *, deterministic: bool) -> jax.Array:
    """[B, T, H], [B, S, H] and bool [B, 1, T, S] -> [B, T, H]."""
    return self.attend(states, *self.keys_values(memory), mask,
                       deterministic=deterministic)

  def _context(self, query, key, value, mask, deterministic) -> jax.Array:
    context = super()._context(query, key, value, mask, deterministic)
    if mask is None:
      return context
    sees = jnp.any(mask, axis=-1)[:, 0, :, None, None]  # [B, T, 1, 1]
    return jnp.where(sees, context, jnp.zeros_like(context))


def _heads(states: jax.Array) -> jax.Array:
  """[B, T, N, D] with its logical axes."""
  return constrain(states, 'batch', 'length', 'heads', 'kv')


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
  """Self-attention, cross-attention to a memory, feed-forward.

  Each is a block with residual and layer norm. The cross-attention exists if
  `config.cross_attention` does, and is skipped without a memory (VECO's layer
  with the module plugged out, section 2.2). The blocks are methods, so that a
  decoder can run them one by one.
  """

  config: _Config

  def setup(self):
    self.attention = SelfAttention(self.config)
    self.attention_norm = LayerNorm(self.config)
    if self.config.cross_attention:
      self.cross_attention = CrossAttention(self.config)
      self.cross_attention_norm = LayerNorm(self.config)
    self.mlp = FeedForward(self.config)
    self.mlp_norm = LayerNorm(self.config)
    self.dropout = dropout.Dropout(self.config.dropout_rate)

  def __call__(self, states: jax.Array, mask: jax.Array | None, *,
               deterministic: bool, memory: jax.Array | None = None,
               memory_mask: jax.Array | None = None) -> jax.Array:
    """The blocks in turn: [B, T, H] -> [B, T, H].

    Args:
      states: [B, T, H].
      mask: bool [B, 1, T, T], or None if all attend to all.
      deterministic: False turns dropout on.
      memory: [B, S, H] that the cross-attention reads; None skips it.
      memory_mask: bool [B, 1, T, S], or None if all see all of the memory.
    """
    states = self.attention_block(states, mask, deterministic=deterministic)
    if memory is not None:
      states = self.cross_attention_block(
          states, memory, memory_mask, deterministic=deterministic)
    return self.mlp_block(states, deterministic=deterministic)

  def attention_block(self, states: jax.Array, mask: jax.Array | None, *,
                      deterministic: bool) -> jax.Array:
    """Self-attention: [B, T, H] and bool [B, 1, T, T] -> [B, T, H]."""
    def attend(inputs):
      return self.attention(inputs, mask, deterministic=deterministic)

    return self.residual(attend, states, self.attention_norm,
                         deterministic=deterministic)

  def cross_attention_block(
      self, states: jax.Array, memory: jax.Array, mask: jax.Array | None, *,
      deterministic: bool) -> jax.Array:
    """[B, T, H], [B, S, H] and bool [B, 1, T, S] -> [B, T, H]."""
    def attend(inputs):
      return self.cross_attention(inputs, memory, mask,
                                  deterministic=deterministic)

    return self.residual(attend, states, self.cross_attention_norm,
                         deterministic=deterministic)

  def mlp_block(self, states: jax.Array, *, deterministic: bool) -> jax.Array:
    """Feed-forward: [B, T, H] -> [B, T, H]."""
    return self.residual(self.mlp, states, self.mlp_norm,
                         deterministic=deterministic)

  def residual(self, function: Callable[[jax.Array], jax.Array],
               states: jax.Array, norm: nn.Module, *, deterministic: bool
               ) -> jax.Array:
    """x + f(norm(x)), or norm(x + f(x)), with dropout on f's output."""
    pre = self.config.norm_position is model_config.NormPosition.PRE
    inputs = norm(states) if pre else states
    outputs = self.dropout(function(inputs), deterministic=deterministic)
    states = states + outputs
    if not pre:
      states = norm(states)
    return constrain(states, 'batch', 'length', 'embed')
