"""Decoder of encoder-decoders, for complete sequences and single tokens."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  decoder_layers,
  dropout,
  embeddings,
  encoder_config,
  encoder_decoder_config,
  layers,
  scan_layers,
)
from xlflax.models.attention import masks
from xlflax.models.variants import t5_layers


class Cache(NamedTuple):
  """Cached keys and values of the decoded tokens and the encoder memory.

  Attributes:
    keys: Self-attention keys of all layers, of shape [L, B, S, N, D], filled in
      up to the current position.
    values: Self-attention values of all layers, of shape [L, B, S, N, D],
      filled in up to the current position.
    memory_keys: Cross-attention keys of all layers, of shape [L, M, T, N, D].
      Each sequence of the memory is shared by B / M adjacent decoded sequences.
    memory_values: Cross-attention values of all layers, of shape
      [L, M, T, N, D].
    memory_mask: Mask of the memory, bool of shape [M, 1, 1, T]. If None, every
      position attends to the complete memory.
  """

  keys: jax.Array
  values: jax.Array
  memory_keys: jax.Array
  memory_values: jax.Array
  memory_mask: jax.Array | None


class DecoderEmbeddings(embeddings.Embeddings):
  """Decoder's position, type and language embeddings (not token embeddings)."""

  def setup(self):
    self.set_up_additions()


class Decoder(nn.Module):
  """Decoder layers with causal self-attention and cross-attention.

  The argument `shared` of the methods contains the parameters of the encoder
  layers (`scan_layers.layer_parameters`) for a tied decoder. It is None if the
  decoder is not tied.
  """

  config: encoder_decoder_config.EncoderDecoderConfig

  def setup(self):
    config = self.config
    if not (config.is_t5 or config.tie_decoder):
      self.embeddings = DecoderEmbeddings(config.encoder)
    self.layers = scan_layers.make_layers(
      self._layer, config.num_decoder_layers, scan=config.scan_layers
    )
    if config.is_t5:
      if not config.per_layer_relative_bias:
        self.relative_bias = t5_layers.RelativeBias(config)
      self.final_norm: Any = t5_layers.RmsNorm(config)
      self.dropout = dropout.Dropout(config.dropout_rate)
    elif config.family is encoder_decoder_config.EncoderDecoderFamily.PRE_LN:
      self.final_norm = layers.LayerNorm(config.encoder)

  def __call__(
    self,
    states: jax.Array,
    memory: jax.Array,
    *,
    shared=None,
    mask: masks.Mask | None,
    memory_mask: masks.Mask | None,
    deterministic: bool,
  ) -> jax.Array:
    """Runs the layers on complete sequences.

    Args:
      states: Embeddings of the target tokens, of shape [B, S, H].
      memory: Hidden states of the encoder, of shape [B, T, H].
      shared: Parameters of the encoder layers that a tied decoder shares. None
        for other decoders.
      mask: Causal mask of the self-attention.
      memory_mask: Mask of the cross-attention. If None, every position attends
        to the complete memory.
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [B, S, H] and the compute dtype.
    """
    positions = jnp.arange(states.shape[1])
    relative_inputs = self._relative_inputs(positions, positions)
    if self.is_initializing():
      scan_layers.init_layers(
        self.layers,
        self.config.num_decoder_layers,
        'decode',
        states,
        mask,
        memory,
        memory_mask,
        deterministic=True,
        **relative_inputs,
      )
    layer = self._make_unbound_layer()
    is_training = not deterministic

    def body(states, params, index, key):
      del index
      return layer.apply(
        {'params': params},
        states,
        mask,
        memory,
        memory_mask,
        **relative_inputs,
        deterministic=deterministic,
        method='decode',
        rngs={'dropout': key} if is_training else None,
      ), None

    states, _ = scan_layers.run_layers(
      body,
      states,
      self._parameters(shared),
      remat=self.config.remat,
      unroll=scan_layers.is_unrolled(self.config),
      count=self.config.num_decoder_layers,
      dropout_key=self.make_rng('dropout') if is_training else None,
    )
    return self._finish(states, deterministic)

  def start(
    self,
    memory: jax.Array,
    memory_mask: jax.Array | None,
    *,
    rows: int,
    length: int,
    shared=None,
  ) -> Cache:
    """Creates a decoder cache that contains the source's keys and values.

    The cache does not contain any target tokens yet.

    Args:
      memory: Hidden states of the encoder, of shape [M, T, H].
      memory_mask: Mask of the memory, bool of shape [M, 1, 1, T]. If None,
        every position attends to the complete memory.
      rows: Number B of sequences to decode.
      length: Maximum number S of tokens per sequence.
      shared: Parameters of the encoder layers that a tied decoder shares. None
        for other decoders.
    """
    config, layer = self.config, self._make_unbound_layer()

    def body(carry, params, index, key):
      del index, key
      return carry, layer.apply({'params': params}, memory, method='memory')

    count = config.num_decoder_layers
    _, (keys, values) = scan_layers.run_layers(
      body, (), self._parameters(shared), count=count
    )
    shape = (count, rows, length, config.num_heads, config.dim_per_head)
    empty = layers.constrain(
      jnp.zeros(shape, config.compute_dtype),
      'layers',
      'batch',
      'length',
      'heads',
      'kv',
    )
    return Cache(empty, empty, keys, values, memory_mask)

  def step(
    self, states: jax.Array, cache: Cache, position: jax.Array, *, shared=None
  ) -> tuple[jax.Array, Cache]:
    """Runs the decoder on one token per sequence.

    Args:
      states: Embeddings of the current tokens, of shape [B, 1, H].
      cache: Cached keys and values of the earlier positions.
      position: Position of the current tokens in their sequences, an int32
        scalar.
      shared: Parameters of the encoder layers that a tied decoder shares. None
        for other decoders.

    Returns:
      Hidden states of shape [B, 1, H], and the cache for the next position.
    """
    # cuDNN is not suitable for a single query.
    layer = self._make_unbound_layer(
      attention_backend=encoder_config.AttentionBackend.XLA
    )
    key_positions = jnp.arange(cache.keys.shape[2])
    relative_inputs = self._relative_inputs(position[None], key_positions)

    def body(carry, inputs, index, key):
      del key
      params, memory = inputs
      return layer.apply(
        {'params': params},
        *carry,
        *memory,
        **relative_inputs,
        layer=index,
        position=position,
        memory_mask=cache.memory_mask,
        method='step',
      ), None

    memory: Any = (cache.memory_keys, cache.memory_values)
    params = self._parameters(shared)
    if isinstance(params, list):
      inputs: Any = [
        (layer_params, jax.tree.map(lambda x, i=i: x[i], memory))
        for i, layer_params in enumerate(params)
      ]
    else:
      inputs = params, memory
    (states, keys, values), _ = scan_layers.run_layers(
      body,
      (states, cache.keys, cache.values),
      inputs,
      count=self.config.num_decoder_layers,
    )
    return self._finish(states, True), cache._replace(keys=keys, values=values)

  def _relative_inputs(self, query_positions, key_positions) -> dict[str, Any]:
    """Returns {'relative': ...} for the layers of T5, and {} otherwise."""
    if not self.config.is_t5:
      return {}
    buckets = t5_layers.relative_buckets(
      query_positions, key_positions, causal=True, config=self.config
    )
    if self.config.per_layer_relative_bias:
      return {'relative': buckets}
    return {'relative': self.relative_bias(buckets)}

  def _finish(self, states: jax.Array, deterministic: bool) -> jax.Array:
    """Applies the final norm and T5's final dropout."""
    family = self.config.family
    if family is encoder_decoder_config.EncoderDecoderFamily.POST_LN:
      return states
    states = self.final_norm(states)
    if not self.config.is_t5:
      return states
    return self.dropout(states, deterministic=deterministic)

  def _parameters(self, shared):
    """Returns the parameters of the layers, including the shared parameters."""
    config = self.config
    layer_params = scan_layers.layer_parameters(
      self, config.num_decoder_layers, scan=config.scan_layers
    )
    if not config.tie_decoder:
      return layer_params
    if config.tied_layers is encoder_decoder_config.TiedLayers.FIRST:
      first = 0
    else:
      first = config.num_encoder_layers - config.num_decoder_layers
    shared_params = scan_layers.select_layers(
      shared, first, first + config.num_decoder_layers
    )
    return scan_layers.merge_layers(shared_params, layer_params)

  def _layer(self) -> nn.Module:
    """Returns a layer with the parameters that are not shared."""
    config = self.config
    encoder = dataclasses.replace(config.encoder, cross_attention=True)
    if config.is_t5:
      return decoder_layers.T5Layer(encoder, t5=config)
    if config.tie_decoder:
      return decoder_layers.CrossAttentionBlock(encoder)
    return decoder_layers.DecoderLayer(encoder)

  def _make_unbound_layer(self, **changes) -> decoder_layers.DecoderLayer:
    """Returns a layer to apply to parameters of this or a different module.

    Args:
      **changes: Fields of the configuration to replace.
    """
    config = self.config
    encoder = dataclasses.replace(
      config.encoder, cross_attention=True, **changes
    )
    if config.is_t5:
      t5 = dataclasses.replace(config, **changes)
      return decoder_layers.T5Layer(encoder, t5=t5, parent=None)
    return decoder_layers.DecoderLayer(encoder, parent=None)
