"""T5's encoder."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  decoder_layers,
  dropout,
  embeddings,
  encoder_decoder_config,
  scan_layers,
)
from xlflax.models.attention import masks
from xlflax.models.linear import dense
from xlflax.models.variants import t5_layers
from xlflax.utils import errors


def check_length(
  token_ids: jax.Array, config: encoder_decoder_config.EncoderDecoderConfig
) -> None:
  """Raises ConfigError if ids [B, T] are longer than `config.max_length`."""
  if token_ids.shape[1] > config.max_length:
    raise errors.ConfigError(
      'The rows are longer than the model takes',
      got=f'{token_ids.shape[1]} tokens',
      expected=f'at most {config.max_length}',
      where='EncoderDecoderConfig.max_length',
      fix='shorten the rows of the stream, or raise max_length',
    )


class T5Encoder(nn.Module):
  """From token ids to states; holds the table of token embeddings.

  Relative positions are distances in a row, which are those in a segment.
  """

  config: encoder_decoder_config.EncoderDecoderConfig

  def setup(self):
    config = self.config
    assert config.vocab_size is not None  # `table_size` requires it.
    self.token = self.param(
      'token',
      dense.table_init(1.0, config.vocab_size),
      (config.table_size, config.hidden_dim),
      jnp.float32,
    )
    self.layers = scan_layers.make_layers(
      self._layer, config.num_encoder_layers, scan=config.scan_layers
    )
    if not config.per_layer_relative_bias:
      self.relative_bias = t5_layers.RelativeBias(config)
    self.final_norm = t5_layers.RmsNorm(config)
    self.dropout = dropout.Dropout(config.dropout_rate)

  def encode(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [B, T, H] of the last layer, in the compute dtype."""
    return self._run(token_ids, collect=False, **inputs)[0]

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [L + 1, B, T, H]: the embeddings', then each layer's."""
    states, all_states = self._run(token_ids, collect=True, **inputs)
    return jnp.concatenate([all_states[:-1], states[None]], axis=0)

  def embed(self, token_ids: jax.Array, *, deterministic: bool) -> jax.Array:
    """[B, T] -> [B, T, H] in the compute dtype; the decoder uses it, too."""
    check_length(token_ids, self.config)
    states = embeddings.embedding_lookup(self.token, token_ids, 'vocab')
    return self.dropout(
      states.astype(self.config.compute_dtype), deterministic=deterministic
    )

  def _layer(self) -> decoder_layers.T5Layer:
    return decoder_layers.T5Layer(self.config.encoder, t5=self.config)

  def _run(
    self,
    token_ids,
    *,
    collect: bool,
    segment_ids=None,
    deterministic: bool = True,
  ):
    """Last states, and the inputs of every layer and the last's output."""
    config = self.config
    states = self.embed(token_ids, deterministic=deterministic)
    mask = masks.make_self_attention_mask(segment_ids)
    places = jnp.arange(token_ids.shape[1])
    relative = t5_layers.relative_buckets(
      places, places, causal=False, config=config
    )
    if not config.per_layer_relative_bias:
      relative = self.relative_bias(relative)
    embedded = states
    states, all_states = self._layers(
      states, mask, relative, collect, deterministic
    )
    states = self.dropout(self.final_norm(states), deterministic=deterministic)
    if collect:
      all_states = jnp.concatenate([embedded[None], all_states], axis=0)
    return states, all_states

  def _layers(self, states, mask, relative, collect, deterministic):
    config = self.config
    count, scan = config.num_encoder_layers, config.scan_layers
    if self.is_initializing():
      scan_layers.init_layers(
        self.layers,
        count,
        'encode',
        states,
        mask,
        relative=relative,
        deterministic=True,
      )
    layer = self._detached()
    training = not deterministic

    def body(states, params, index, key):
      del index
      states = layer.apply(
        {'params': params},
        states,
        mask,
        relative=relative,
        deterministic=deterministic,
        method='encode',
        rngs={'dropout': key} if training else None,
      )
      return states, states if collect else None

    return scan_layers.run_layers(
      body,
      states,
      scan_layers.layer_parameters(self, count, scan=scan),
      count=count,
      remat=config.remat,
      unroll=scan_layers.is_unrolled(config),
      dropout_key=self.make_rng('dropout') if training else None,
    )

  def _detached(self) -> decoder_layers.T5Layer:
    return decoder_layers.T5Layer(
      self.config.encoder, t5=self.config, parent=None
    )
