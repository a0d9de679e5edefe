"""Layers of decoders: whole rows in training, one token with a cache."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import dropout, encoder_decoder_config, layers
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import masks
from xlflax.models.variants import t5_layers


class DecoderLayer(layers.EncoderLayer):
  """An encoder layer with cross-attention that can also run token by token.

  Its parameters are those of `EncoderLayer`, so that a decoder can start from
  an encoder's, or be tied to it (VECO, section 3.2).
  """

  def attention_inputs(self, relative: jax.Array | None) -> dict:
    """Returns further keyword arguments of the self-attention."""
    assert relative is None
    return {}

  def step(
    self,
    states: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    memory_keys: jax.Array,
    memory_values: jax.Array,
    *,
    layer: jax.Array | int,
    position: jax.Array,
    memory_mask: jax.Array | None,
    relative: jax.Array | None = None,
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Runs the layer on one token of each row, without dropout.

    Args:
      states: [B, 1, H], of the position.
      keys: [L, B, S, N, D], every layer's; those of earlier positions are
        filled in.
      values: likewise.
      memory_keys: [M, T, N, D], this layer's of the memory. B is a multiple
        of M: each row of the memory serves B / M neighbouring rows.
      memory_values: likewise.
      layer: the index of this layer in `keys`.
      position: int32 scalar in 0 .. S - 1.
      memory_mask: bool [M, 1, 1, T], or None if everything is seen.
      relative: as of `attention_inputs`, for one query.

    Returns:
      The states after the layer, and keys and values with this token's.
    """

    def attend(inputs):
      nonlocal keys, values
      key, value = self.attention.keys_values(inputs)  # [B, 1, N, D]
      keys, values = (
        jax.lax.dynamic_update_slice(
          cache, new[None], (layer, 0, position, 0, 0)
        )
        for cache, new in ((keys, key), (values, value))
      )
      visible = jnp.arange(keys.shape[2])[None, None, None] <= position
      visible = jnp.broadcast_to(
        visible, (inputs.shape[0], 1, 1, keys.shape[2])
      )
      return self.attention.attend(
        inputs,
        keys[layer],
        values[layer],
        visible,
        deterministic=True,
        **self.attention_inputs(relative),
      )

    def attend_memory(inputs):
      rows = memory_keys.shape[0]
      grouped = inputs.reshape(rows, -1, inputs.shape[-1])  # [M, B / M, H]
      context = self.cross_attention.attend(
        grouped, memory_keys, memory_values, memory_mask, deterministic=True
      )
      return context.reshape(inputs.shape)

    for function, norm in (
      (attend, self.attention_norm),
      (attend_memory, self.cross_attention_norm),
    ):
      states = self.residual(function, states, norm, deterministic=True)
    return self.mlp_block(states, deterministic=True), keys, values

  def memory(self, states: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[M, T, H] -> keys and values of the cross-attention, [M, T, N, D]."""
    return self.cross_attention.keys_values(states)

  def decode(
    self,
    states: jax.Array,
    mask: masks.Mask | None,
    memory: jax.Array,
    memory_mask: masks.Mask | None,
    *,
    deterministic: bool,
    relative: jax.Array | None = None,
  ) -> jax.Array:
    """Whole rows: [B, S, H] -> [B, S, H]; see `EncoderLayer.__call__`."""
    assert relative is None
    return self(
      states,
      mask,
      deterministic=deterministic,
      memory=memory,
      memory_mask=memory_mask,
    )


class CrossAttentionBlock(nn.Module):
  """The parameters of a tied decoder's layer that are its own."""

  config: model_config.EncoderConfig

  def setup(self):
    self.cross_attention = layers.CrossAttention(self.config)
    self.cross_attention_norm = layers.LayerNorm(self.config)

  def decode(
    self, states, mask, memory, memory_mask, *, deterministic: bool
  ) -> jax.Array:
    """Makes the parameters; [B, S, H], ..., -> [B, S, H]."""
    return self.cross_attention_norm(
      self.cross_attention(
        states, memory, memory_mask, deterministic=deterministic
      )
    )


class T5Layer(DecoderLayer):
  """T5's layer; an encoder's without `config.cross_attention`.

  Where it says `relative`, that is the bias float32 [1, N, T, S] of every
  layer or, with `t5.per_layer_relative_bias`, the rows int32 [T, S] of this
  layer's table.
  """

  t5: encoder_decoder_config.EncoderDecoderConfig | None = None

  def setup(self):
    config: Any = self.t5
    blocks: Any = t5_layers  # in place of the other families'
    self.attention = blocks.Attention(config)
    self.attention_norm = blocks.RmsNorm(config)
    if config.per_layer_relative_bias:
      self.relative_bias = blocks.RelativeBias(config)
    if self.config.cross_attention:
      self.cross_attention = blocks.Attention(config)
      self.cross_attention_norm = blocks.RmsNorm(config)
    self.mlp = blocks.FeedForward(config)
    self.mlp_norm = blocks.RmsNorm(config)
    self.dropout = dropout.Dropout(config.dropout_rate)

  def attention_inputs(self, relative: jax.Array | None) -> dict:
    config: Any = self.t5
    if config.per_layer_relative_bias:
      relative = self.relative_bias(relative)
    return {'bias': relative}

  def encode(
    self,
    states: jax.Array,
    mask: masks.Mask | None,
    *,
    relative: jax.Array | None,
    deterministic: bool,
  ) -> jax.Array:
    """Self-attention and feed-forward: [B, T, H] -> [B, T, H].

    A decoder's layer leaves the feed-forward block to `decode`.
    """
    attention: Any = self.attention

    def attend(inputs):
      return attention(
        inputs,
        inputs,
        mask,
        deterministic=deterministic,
        **self.attention_inputs(relative),
      )

    states = self.residual(
      attend, states, self.attention_norm, deterministic=deterministic
    )
    if self.config.cross_attention:
      return states
    return self.mlp_block(states, deterministic=deterministic)

  def decode(
    self,
    states: jax.Array,
    mask: masks.Mask | None,
    memory: jax.Array,
    memory_mask: masks.Mask | None,
    *,
    deterministic: bool,
    relative: jax.Array | None = None,
  ) -> jax.Array:
    states = self.encode(
      states, mask, relative=relative, deterministic=deterministic
    )
    states = self.cross_attention_block(
      states, memory, memory_mask, deterministic=deterministic
    )
    return self.mlp_block(states, deterministic=deterministic)

  def mlp_block(self, states: jax.Array, *, deterministic: bool) -> jax.Array:
    mlp: Any = self.mlp

    def feed(inputs):
      return mlp(inputs, deterministic=deterministic)

    return self.residual(
      feed, states, self.mlp_norm, deterministic=deterministic
    )
