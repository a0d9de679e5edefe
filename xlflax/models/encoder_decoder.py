"""Encoder-decoders: T5, mT5, umT5, mBART and VECO's translation model."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import (
  decoder,
  embeddings,
  encoder,
  encoder_decoder_config,
  layers,
  scan_layers,
)
from xlflax.models.attention import masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.variants import t5_encoder
from xlflax.utils import class_registry


@class_registry.register('encoder_decoder')
class EncoderDecoder(nn.Module):
  """From token ids of two sides to states and logits of the second.

  Methods take the same arguments as those of `xlflax.models.encoder.Encoder`.
  T5's relative positions are distances within a row, for which `positions` do
  not matter, and it has neither languages nor types.

  The parameters are 'encoder', as of an `Encoder` (so that it can start from
  one), 'decoder', and 'output' for T5's table of output embeddings.
  """

  config: encoder_decoder_config.EncoderDecoderConfig

  def setup(self):
    config = self.config
    self.encoder: Any = (
      t5_encoder.T5Encoder(config)
      if config.is_t5
      else encoder.Encoder(config.encoder)
    )
    self.decoder = decoder.Decoder(config)
    if config.is_t5 and self._has_own_output():
      assert config.vocab_size is not None  # `table_size` requires it.
      self.output = self.param(
        'output',
        layers.table_init(config.hidden_dim**-0.5, config.vocab_size),
        (config.table_size, config.hidden_dim),
        jnp.float32,
      )

  def __call__(
    self,
    token_ids: jax.Array,
    *,
    decoder_token_ids: jax.Array | None = None,
    segment_ids: jax.Array | None = None,
    positions: jax.Array | None = None,
    language_ids: jax.Array | None = None,
    token_type_ids: jax.Array | None = None,
    decoder_segment_ids: jax.Array | None = None,
    decoder_positions: jax.Array | None = None,
    decoder_language_ids: jax.Array | None = None,
    deterministic: bool = True,
  ) -> jax.Array:
    """Logits [B, S, V] of the decoder; touches every parameter.

    Without `decoder_token_ids` the decoder reads what the encoder reads.
    """
    memory = self.encode(
      token_ids,
      segment_ids=segment_ids,
      positions=positions,
      language_ids=language_ids,
      token_type_ids=token_type_ids,
      deterministic=deterministic,
    )
    if decoder_token_ids is None:
      decoder_token_ids, decoder_segment_ids = token_ids, segment_ids
      decoder_positions, decoder_language_ids = positions, language_ids
    return self.logits(
      self.decode(
        decoder_token_ids,
        memory,
        memory_segment_ids=segment_ids,
        segment_ids=decoder_segment_ids,
        positions=decoder_positions,
        language_ids=decoder_language_ids,
        deterministic=deterministic,
      )
    )

  def encode(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [B, T, H] of the encoder's last layer, in the compute dtype."""
    return self.encoder.encode(token_ids, **self._encoder_inputs(inputs))

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """States [L + 1, B, T, H]: of the embeddings, then each encoder layer."""
    return self.encoder.encode_layers(token_ids, **self._encoder_inputs(inputs))

  def decode(
    self,
    decoder_token_ids: jax.Array,
    memory: jax.Array,
    *,
    memory_segment_ids: jax.Array | None = None,
    segment_ids: jax.Array | None = None,
    positions: jax.Array | None = None,
    language_ids: jax.Array | None = None,
    deterministic: bool = True,
  ) -> jax.Array:
    """Returns states of the decoder, each from the tokens up to its own.

    Args:
      decoder_token_ids: int32 [B, S], beginning with the start symbol.
      memory: [B, T, H], from `encode`.
      memory_segment_ids: int32 [B, T], 0 is padding; None: all is seen.
      segment_ids: int32 [B, S]; a position attends to earlier ones of its own
        segment, and to that segment of the memory. None: one segment.
      positions: int32 [B, S], from 0. None: 0 .. S - 1.
      language_ids: int32 [B, S]; read if `config.use_language_embeddings`.
      deterministic: False turns dropout on, which draws from 'dropout'.

    Returns:
      [B, S, H] in the compute dtype.

    Raises:
      ConfigError: the rows are longer than `config.max_length`.
    """
    length = decoder_token_ids.shape[1]
    states = self._embed(
      decoder_token_ids, positions, language_ids, deterministic
    )
    return self.decoder(
      states,
      memory,
      shared=self._shared_layers(),
      mask=masks.within_segments(segment_ids, causal=True),
      memory_mask=masks.of_memory(
        segment_ids, memory_segment_ids, length=length
      ),
      deterministic=deterministic,
    )

  def start_decoding(
    self,
    memory: jax.Array,
    *,
    length: int,
    memory_segment_ids: jax.Array | None = None,
    rows_per_memory: int = 1,
  ) -> decoder.Cache:
    """Returns a cache for `decode_step` with the cross-attention's keys.

    Args:
      memory: [M, T, H], from `encode`.
      length: number of tokens that will be decoded at most.
      memory_segment_ids: int32 [M, T], one segment a row, 0 is padding; None:
        all is seen.
      rows_per_memory: beams or samples: B = M * rows_per_memory rows are
        decoded, neighbouring ones from the same row of the memory.
    """
    mask = None
    if memory_segment_ids is not None:
      mask = (memory_segment_ids > 0)[:, None, None, :]
    return self.decoder.start(
      memory,
      mask,
      rows=memory.shape[0] * rows_per_memory,
      length=length,
      shared=self._shared_layers(),
    )

  def decode_step(
    self,
    token_ids: jax.Array,
    cache: decoder.Cache,
    position: jax.Array,
    *,
    language_ids: jax.Array | None = None,
  ) -> tuple[jax.Array, decoder.Cache]:
    """Decodes one more token, as `decode` would at that position.

    Args:
      token_ids: int32 [B, 1].
      cache: from `start_decoding`, and then from the position before.
      position: int32 scalar: 0, then 1, ..
      language_ids: int32 [B, 1]; read if `config.use_language_embeddings`.

    Returns:
      States [B, 1, H], and the cache for the next position.
    """
    position = jnp.asarray(position, jnp.int32)
    states = self._embed(
      token_ids,
      jnp.broadcast_to(position, token_ids.shape),
      language_ids,
      deterministic=True,
    )
    return self.decoder.step(
      states, cache, position, shared=self._shared_layers()
    )

  def transform(self, states: jax.Array) -> jax.Array:
    """Applies the head before the output table: [..., H] -> [..., H]."""
    if not self.config.is_t5:
      return self.encoder.transform(states)
    if not self.config.scales_output:
      return states
    return states * self.config.hidden_dim**-0.5

  def output_table(self) -> tuple[jax.Array, jax.Array]:
    """Output embeddings [R, H] and bias [R]; see `Encoder`."""
    config = self.config
    if not config.is_t5:
      return self.encoder.output_table()
    table = self.output if self._has_own_output() else self.encoder.token
    rows = jnp.arange(config.table_size)
    assert config.vocab_size is not None  # `table_size` refuses that
    bias = jnp.where(rows < config.vocab_size, 0.0, MASKED_SCORE)
    return layers.for_head(table, self.config.compute_dtype), bias

  def logits(self, states: jax.Array) -> jax.Array:
    """float32 logits over the vocabulary: [..., H] -> [..., V]."""
    table, bias = self.output_table()
    table_logits = layers.logits(self.transform(states), table, bias)
    return table_logits[..., : self.config.vocab_size]

  def _has_own_output(self) -> bool:
    own_embeddings = encoder_decoder_config.OutputEmbeddings.OWN
    return self.config.output_embeddings is own_embeddings

  def _encoder_inputs(self, inputs) -> dict[str, Any]:
    if not self.config.is_t5:
      return inputs
    return {
      name: inputs[name]
      for name in ('segment_ids', 'deterministic')
      if name in inputs
    }

  def _embed(self, token_ids, positions, language_ids, deterministic):
    """[B, S] -> [B, S, H] of the decoder's embeddings."""
    if self.config.is_t5:
      return self.encoder.embed(token_ids, deterministic=deterministic)
    additions = (
      self.encoder.embeddings
      if self.config.tie_decoder
      else self.decoder.embeddings
    )
    return additions.complete(
      embeddings.embedding_lookup(
        self.encoder.embeddings.token, token_ids, 'vocab'
      ),
      token_ids,
      positions=positions,
      language_ids=language_ids,
      token_type_ids=None,
      deterministic=deterministic,
    )

  def _shared_layers(self):
    """Returns the encoder's layers for a tied decoder."""
    config = self.config
    if not config.tie_decoder:
      return None
    return scan_layers.layer_parameters(
      self.encoder, config.num_encoder_layers, scan=config.scan_layers
    )
