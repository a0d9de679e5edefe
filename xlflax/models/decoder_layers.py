"""Decoder layers for complete sequences and for single tokens with a cache."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  dropout,
  encoder_config,
  encoder_decoder_config,
  layers,
)
from xlflax.models.attention import masks
from xlflax.models.variants import t5_layers


class DecoderLayer(layers.EncoderLayer):
  """Decoder layer, which decodes complete sequences or single tokens.

  It has the same parameters as `EncoderLayer`, so that a decoder can be
  initialized from an encoder or tied to it (VECO, section 3.2).
  """

  def attention_inputs(self, relative: jax.Array | None) -> dict:
    """Returns additional keyword arguments for the self-attention.

    Args:
      relative: Relative position bias of T5, or rows of the relative position
        table (see `T5Layer`). None for other model families.
    """
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
    """Runs the layer on a single token per sequence, without dropout.

    Args:
      states: Hidden states of the current tokens, of shape [B, 1, H].
      keys: Self-attention keys of all layers, of shape [L, B, S, N, D]. The
        keys of earlier positions are filled in.
      values: Self-attention values of all layers, of shape [L, B, S, N, D].
      memory_keys: Memory keys of this layer, of shape [M, T, N, D]. Each
        sequence of the memory is shared by B / M adjacent sequences. B is a
        multiple of M.
      memory_values: Memory values of this layer, of shape [M, T, N, D].
      layer: Index of this layer in `keys` and `values`.
      position: Position of the current tokens, an int32 scalar from 0 to S - 1.
      memory_mask: Mask of the memory, bool of shape [M, 1, 1, T]. If None,
        every position attends to the complete memory.
      relative: Relative positions of T5 for the current query, as in
        `attention_inputs`.

    Returns:
      The hidden states after the layer, and the keys and values of all layers,
      which now include these tokens.
    """

    def attend(inputs):
      nonlocal keys, values
      key, value = self.attention.keys_values(inputs)  # [B, 1, N, D]
      start = (layer, 0, position, 0, 0)
      keys = jax.lax.dynamic_update_slice(keys, key[None], start)
      values = jax.lax.dynamic_update_slice(values, value[None], start)
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
    """Returns the cross-attention keys and values, each of shape [M, T, N, D].

    Args:
      states: Hidden states of the encoder, of shape [M, T, H].
    """
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
    """Runs the layer on complete sequences.

    Args:
      states: Hidden states of shape [B, S, H].
      mask: Mask of the self-attention.
      memory: Hidden states of the encoder, of shape [B, T, H].
      memory_mask: Mask of the cross-attention.
      deterministic: Whether to disable dropout.
      relative: Relative positions of T5 for all queries, as in
        `attention_inputs`.

    Returns:
      Hidden states of shape [B, S, H].
    """
    assert relative is None
    return self(
      states,
      mask,
      deterministic=deterministic,
      memory=memory,
      memory_mask=memory_mask,
    )


class CrossAttentionBlock(nn.Module):
  """Cross-attention block that a tied decoder adds to shared encoder layers."""

  config: encoder_config.EncoderConfig

  def setup(self):
    self.cross_attention = layers.CrossAttention(self.config)
    self.cross_attention_norm = layers.LayerNorm(self.config)

  def decode(
    self, states, mask, memory, memory_mask, *, deterministic: bool
  ) -> jax.Array:
    """Applies the cross-attention block to initialize its parameters."""
    return self.cross_attention_norm(
      self.cross_attention(
        states, memory, memory_mask, deterministic=deterministic
      )
    )


class T5Layer(DecoderLayer):
  """T5 decoder layer. Without cross-attention, it is a T5 encoder layer.

  The argument `relative` of the methods is the bias of all layers, float32 of
  shape [1, N, T, S]. If `t5.per_layer_relative_bias` is set, it contains rows
  of the relative position table of each layer, int32 of shape [T, S].

  Attributes:
    t5: Configuration of the T5 encoder-decoder.
  """

  t5: encoder_decoder_config.EncoderDecoderConfig | None = None

  def setup(self):
    config: Any = self.t5
    # Any, because the blocks of the base class have other types.
    blocks: Any = t5_layers
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
    """Returns the self-attention bias as a keyword argument."""
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
    """Applies the self-attention and, in an encoder, the feed-forward block.

    In a decoder, `decode` applies the feed-forward block after the
    cross-attention.

    Args:
      states: Hidden states of shape [B, T, H].
      mask: Mask of the self-attention.
      relative: Relative position bias of all layers, or rows of the relative
        position table (see the class docstring).
      deterministic: Whether to disable dropout.

    Returns:
      Hidden states of shape [B, T, H].
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
    """Runs the layer on complete sequences. See `DecoderLayer.decode`."""
    states = self.encode(
      states, mask, relative=relative, deterministic=deterministic
    )
    states = self.cross_attention_block(
      states, memory, memory_mask, deterministic=deterministic
    )
    return self.mlp_block(states, deterministic=deterministic)

  def mlp_block(self, states: jax.Array, *, deterministic: bool) -> jax.Array:
    """Applies the feed-forward block to states [B, T, H]."""
    mlp: Any = self.mlp

    def feed(inputs):
      return mlp(inputs, deterministic=deterministic)

    return self.residual(
      feed, states, self.mlp_norm, deterministic=deterministic
    )
