"""The decoder's half of an encoder-decoder, whole rows or token by token."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  decoder_layers,
  dropout,
  embeddings,
  encoder_decoder_config,
  layers,
  scan_layers,
)
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import masks
from xlflax.models.variants import t5_layers


class Cache(NamedTuple):
  """Keys and values of the tokens decoded so far, and of the memory.

  Attributes:
    keys: [L, B, S, N, D], of the self-attentions, filled up to a position.
    values: likewise.
    memory_keys: [L, M, T, N, D], of the cross-attentions; each row of the
      memory serves B / M neighbouring rows.
    memory_values: likewise.
    memory_mask: bool [M, 1, 1, T], or None if everything is seen.
  """

  keys: jax.Array
  values: jax.Array
  memory_keys: jax.Array
  memory_values: jax.Array
  memory_mask: jax.Array | None


class DecoderEmbeddings(embeddings.Embeddings):
  """Embeddings of positions, types and languages; tokens are passed in."""

  def setup(self):
    self.set_up_additions()


class Decoder(nn.Module):
  """Causal layers with cross-attention to a memory.

  Its methods take `shared`, the encoder's layers (`scan_layers.layer_parameters`)
  that a tied decoder runs on; None if the decoder has its own.
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
    """Runs the layers over whole rows of embeddings.

    Args:
      states: [B, S, H].
      memory: [B, T, H].
      shared: see the class.
      mask: of the self-attention, causal.
      memory_mask: of the cross-attention; None if everything is seen.
      deterministic: False turns dropout on.

    Returns:
      [B, S, H] in the compute dtype.
    """
    places = jnp.arange(states.shape[1])
    more = self._relative(places, places)
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
        **more,
      )
    layer, training = self._detached(), not deterministic

    def body(states, params, index, key):
      del index
      return layer.apply(
        {'params': params},
        states,
        mask,
        memory,
        memory_mask,
        **more,
        deterministic=deterministic,
        method='decode',
        rngs={'dropout': key} if training else None,
      ), None

    states, _ = scan_layers.run_layers(
      body,
      states,
      self._parameters(shared),
      remat=self.config.remat,
      unroll=scan_layers.is_unrolled(self.config),
      count=self.config.num_decoder_layers,
      dropout_key=self.make_rng('dropout') if training else None,
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
    """Returns an empty cache for `rows` rows of up to `length` tokens.

    `memory` is [M, T, H], `memory_mask` bool [M, 1, 1, T] or None.
    """
    config, layer = self.config, self._detached()

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
    """Decodes one more token a row: [B, 1, H] -> [B, 1, H] and the cache."""
    # One query at a time is no case for cuDNN.
    layer = self._detached(attention_backend=model_config.AttentionBackend.XLA)
    places = jnp.arange(cache.keys.shape[2])
    more = self._relative(position[None], places)

    def body(carry, inputs, index, key):
      del key
      params, memory = inputs
      return layer.apply(
        {'params': params},
        *carry,
        *memory,
        **more,
        layer=index,
        position=position,
        memory_mask=cache.memory_mask,
        method='step',
      ), None

    memory: Any = (cache.memory_keys, cache.memory_values)
    params = self._parameters(shared)
    if isinstance(params, list):
      inputs: Any = [
        (p, jax.tree.map(lambda x, i=i: x[i], memory))
        for i, p in enumerate(params)
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

  def _relative(self, query_places, key_places) -> dict[str, Any]:
    """Keyword argument of T5's layers."""
    if not self.config.is_t5:
      return {}
    buckets = t5_layers.relative_buckets(
      query_places, key_places, causal=True, config=self.config
    )
    if self.config.per_layer_relative_bias:
      return {'relative': buckets}
    return {'relative': self.relative_bias(buckets)}

  def _finish(self, states: jax.Array, deterministic: bool) -> jax.Array:
    if (
      self.config.family is encoder_decoder_config.EncoderDecoderFamily.POST_LN
    ):
      return states
    states = self.final_norm(states)
    if not self.config.is_t5:
      return states
    return self.dropout(states, deterministic=deterministic)

  def _parameters(self, shared):
    config = self.config
    layer_params = scan_layers.layer_parameters(
      self, config.num_decoder_layers, scan=config.scan_layers
    )
    if not config.tie_decoder:
      return layer_params
    first = (
      0
      if config.tied_layers is encoder_decoder_config.TiedLayers.FIRST
      else config.num_encoder_layers - config.num_decoder_layers
    )
    return scan_layers.merge_layers(
      scan_layers.select_layers(
        shared, first, first + config.num_decoder_layers
      ),
      layer_params,
    )

  def _layer(self) -> nn.Module:
    """Makes the parameters that a layer of the decoder does not share."""
    config = self.config
    encoder = dataclasses.replace(config.encoder, cross_attention=True)
    if config.is_t5:
      return decoder_layers.T5Layer(encoder, t5=config)
    if config.tie_decoder:
      return decoder_layers.CrossAttentionBlock(encoder)
    return decoder_layers.DecoderLayer(encoder)

  def _detached(self, **changes) -> decoder_layers.DecoderLayer:
    """A layer to be applied to parameters, of the decoder's or another's."""
    config = self.config
    encoder = dataclasses.replace(
      config.encoder, cross_attention=True, **changes
    )
    if config.is_t5:
      t5 = dataclasses.replace(config, **changes)
      return decoder_layers.T5Layer(encoder, t5=t5, parent=None)
    return decoder_layers.DecoderLayer(encoder, parent=None)
