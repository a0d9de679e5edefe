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
  """Raises ConfigError if sequences exceed `max_position_embeddings`.

  Args:
    token_ids: Token ids of shape [B, T].
    config: Configuration of the encoder-decoder model.
  """
  if token_ids.shape[1] > config.max_position_embeddings:
    raise errors.ConfigError(
      f'The sequences have {token_ids.shape[1]} tokens, but '
      f'`max_position_embeddings` is {config.max_position_embeddings}',
      where=errors.field_location(config, 'max_position_embeddings'),
      fix='Shorten the sequences of the dataset, or increase '
      'max_position_embeddings.',
    )


class T5Encoder(nn.Module):
  """T5's encoder, which also contains the token embeddings.

  Relative positions are distances within a sequence. For two positions in the
  same segment, they equal the distance within the segment.
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
    """Returns the hidden states of the last layer, of shape [B, T, H].

    The states have the compute dtype.

    Args:
      token_ids: Token ids, int32 of shape [B, T].
      **inputs: `segment_ids` and `deterministic`, as in `Encoder`.
    """
    return self._run(token_ids, collect=False, **inputs)[0]

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Returns the embeddings and hidden states of all layers, [L + 1, B, T, H].

    Args:
      token_ids: Token ids, int32 of shape [B, T].
      **inputs: `segment_ids` and `deterministic`, as in `Encoder`.
    """
    states, all_states = self._run(token_ids, collect=True, **inputs)
    return jnp.concatenate([all_states[:-1], states[None]], axis=0)

  def embed(self, token_ids: jax.Array, *, deterministic: bool) -> jax.Array:
    """Returns the embeddings of token ids. The decoder also calls this method.

    Args:
      token_ids: Token ids, int32 of shape [B, T].
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [B, T, H] and the compute dtype.
    """
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
    """Returns the last hidden states and, if collected, all hidden states.

    The collected states are the embeddings and the output of each layer before
    the final norm.
    """
    config = self.config
    states = self.embed(token_ids, deterministic=deterministic)
    mask = masks.make_self_attention_mask(segment_ids)
    positions = jnp.arange(token_ids.shape[1])
    relative = t5_layers.relative_buckets(
      positions, positions, causal=False, config=config
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
    """Runs the layers, scanned or unrolled."""
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
    layer = self._make_unbound_layer()
    is_training = not deterministic

    def body(states, params, index, key):
      del index
      states = layer.apply(
        {'params': params},
        states,
        mask,
        relative=relative,
        deterministic=deterministic,
        method='encode',
        rngs={'dropout': key} if is_training else None,
      )
      return states, states if collect else None

    return scan_layers.run_layers(
      body,
      states,
      scan_layers.layer_parameters(self, count, scan=scan),
      count=count,
      remat=config.remat,
      unroll=scan_layers.is_unrolled(config),
      dropout_key=self.make_rng('dropout') if is_training else None,
    )

  def _make_unbound_layer(self) -> decoder_layers.T5Layer:
    """Returns a layer to apply to parameters of this module."""
    return decoder_layers.T5Layer(
      self.config.encoder, t5=self.config, parent=None
    )
