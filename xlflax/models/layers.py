"""Layers of the encoder, and the modules that they are made of."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import dropout, feed_forward, norms
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import attention_backends, masks, rotary
from xlflax.models.linear import dense
from xlflax.models.variants import disentangled

_Config = model_config.EncoderConfig

FeedForward = feed_forward.FeedForward
LayerNorm = norms.LayerNorm
Linear = dense.Linear
constrain = dense.constrain_sharding
for_head = dense.for_head
logits = dense.compute_logits
weights_init = dense.weights_init
table_init = dense.table_init
zeros_init = dense.zeros_init


class Attention(nn.Module):
  """Multi-head attention (Vaswani et al. 2017, 3.2).

  With `config.num_kv_heads` K, neighbouring heads share keys and values
  (Ainslie et al. 2023), whose shapes then have K in place of N.

  `__call__` is `attend` on `keys_values`; a decoder that caches keys and values
  calls the two separately.
  """

  config: _Config

  def setup(self):
    config = self.config
    groups = config.num_kv_heads or config.num_heads
    self.query, self.key, self.value = (
      Linear(
        config,
        (heads, config.dim_per_head),
        ('embed', 'heads', 'kv'),
        use_bias=config.attention_bias,
      )
      for heads in (config.num_heads, groups, groups)
    )
    self.output = Linear(
      config,
      (config.hidden_dim,),
      ('heads', 'kv', 'embed'),
      use_bias=config.attention_bias,
    )

  def keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[B, S, H] -> keys and values, [B, S, N, D] each."""
    return _heads(self.key(memory)), _heads(self.value(memory))

  def attend(
    self,
    states: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    rotation: rotary.Rotation | None = None,
  ) -> jax.Array:
    """Attends from `states` [B, T, H] to keys and values: [B, T, H].

    Args:
      states: [B, T, H], the queries' source.
      key: [B, S, N, D].
      value: [B, S, N, D].
      mask: a `Mask` or bool [B or 1, 1, T, S]; None if everything is seen.
      deterministic: False turns dropout on.
      rotation: of the queries; the keys are rotated already.
    """
    query = _heads(self.query(states))
    if rotation is not None:
      query = rotary.apply_rotary(query, rotation)
    return self.output(self._context(query, key, value, mask, deterministic))

  def _context(self, query, key, value, mask, deterministic) -> jax.Array:
    """[B, T, N, D] of each head."""
    config = self.config
    drop = config.attention_dropout_rate and not deterministic
    return attention_backends.dot_product_attention(
      query,
      key,
      value,
      mask,
      backend=config.attention_backend,
      dropout_rate=config.attention_dropout_rate,
      dropout_key=self.make_rng('dropout') if drop else None,
    )


class SelfAttention(Attention):
  """Queries, keys and values of one sequence (VECO, equations 2 to 5)."""

  def __call__(
    self,
    states: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    rotation: rotary.Rotation | disentangled.Relative | None = None,
  ) -> jax.Array:
    """[B, T, H] and a mask [T, T] -> [B, T, H]."""
    if isinstance(rotation, disentangled.Relative):
      return self._disentangled(states, mask, rotation, deterministic)
    key, value = self.keys_values(states)
    if rotation is not None:
      key = rotary.apply_rotary(key, rotation)
    return self.attend(
      states, key, value, mask, rotation=rotation, deterministic=deterministic
    )

  def _disentangled(self, states, mask, relative, deterministic) -> jax.Array:
    """Attention to contents and distances: [B, T, H]."""
    config = self.config
    key, value = self.keys_values(states)
    drop = config.attention_dropout_rate and not deterministic
    table = relative.table[None]
    return self.output(
      disentangled.disentangled_attention(
        _heads(self.query(states)),
        key,
        value,
        relative_query=self.query(table)[0],
        relative_key=self.key(table)[0],
        index=relative.rows,
        mask=mask,
        dropout_rate=config.attention_dropout_rate,
        dropout_key=self.make_rng('dropout') if drop else None,
      )
    )


class CrossAttention(Attention):
  """Queries of one sequence, keys and values of another's states.

  VECO's plug-in module (equations 6 to 9), and the attention of a decoder to
  its encoder. A query that sees nothing of the memory reads zeros.
  """

  def __call__(
    self,
    states: jax.Array,
    memory: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
  ) -> jax.Array:
    """[B, T, H], [B, S, H] and a mask [T, S] -> [B, T, H]."""
    return self.attend(
      states, *self.keys_values(memory), mask, deterministic=deterministic
    )


def _heads(states: jax.Array) -> jax.Array:
  """[B, T, N, D] with its logical axes."""
  return constrain(states, 'batch', 'length', 'heads', 'kv')


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

  def __call__(
    self,
    states: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    memory: jax.Array | None = None,
    memory_mask: masks.Mask | None = None,
    rotation: rotary.Rotation | disentangled.Relative | None = None,
    is_first: jax.Array | bool | None = None,
  ) -> jax.Array:
    """The blocks in turn: [B, T, H] -> [B, T, H].

    Args:
      states: [B, T, H].
      mask: of the self-attention; None if all attend to all.
      deterministic: False turns dropout on.
      memory: [B, S, H] that the cross-attention reads; None skips it.
    memory_mask: masks.Mask | None = None,
    rotation: rotary.Rotation | disentangled.Relative | None = None,
      is_first: whether the self-attention's input is not normalised, which
        its parameter does not tell; None for never.
    """
    states = self.attention_block(
      states,
      mask,
      deterministic=deterministic,
      rotation=rotation,
      is_first=is_first,
    )
    if memory is not None:
      states = self.cross_attention_block(
        states, memory, memory_mask, deterministic=deterministic
      )
    return self.mlp_block(states, deterministic=deterministic)

  def attention_block(
    self,
    states: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
    rotation=None,
    is_first=None,
  ) -> jax.Array:
    """Self-attention: [B, T, H] and a mask [T, T] -> [B, T, H]."""

    def attend(inputs):
      if is_first is not None:
        inputs = jnp.where(is_first, states, inputs)
      return self.attention(
        inputs, mask, rotation=rotation, deterministic=deterministic
      )

    return self.residual(
      attend, states, self.attention_norm, deterministic=deterministic
    )

  def cross_attention_block(
    self,
    states: jax.Array,
    memory: jax.Array,
    mask: masks.Mask | jax.Array | None,
    *,
    deterministic: bool,
  ) -> jax.Array:
    """[B, T, H], [B, S, H] and a mask [T, S] -> [B, T, H]."""

    def attend(inputs):
      return self.cross_attention(
        inputs, memory, mask, deterministic=deterministic
      )

    return self.residual(
      attend, states, self.cross_attention_norm, deterministic=deterministic
    )

  def mlp_block(self, states: jax.Array, *, deterministic: bool) -> jax.Array:
    """Feed-forward: [B, T, H] -> [B, T, H]."""
    return self.residual(
      self.mlp, states, self.mlp_norm, deterministic=deterministic
    )

  def residual(
    self,
    function: Callable[[jax.Array], jax.Array],
    states: jax.Array,
    norm: nn.Module,
    *,
    deterministic: bool,
  ) -> jax.Array:
    """x + f(norm(x)), or norm(x + f(x)), x and f(x) [B, T, H]; drops from f."""
    pre = self.config.norm_position is model_config.NormPosition.PRE
    inputs = norm(states) if pre else states
    outputs = self.dropout(function(inputs), deterministic=deterministic)
    states = states + outputs
    if not pre:
      states = norm(states)
    return constrain(states, 'batch', 'length', 'embed')
