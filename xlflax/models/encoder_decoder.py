"""Encoder-decoder for T5, mT5, umT5, mBART and VECO's translation model."""

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
  """Encoder-decoder that computes hidden states and logits of the target.

  The methods take the same arguments as the methods of
  `xlflax.models.encoder.Encoder`. The relative positions of T5 are distances
  within a sequence, which do not depend on `positions`. T5 has no language
  embeddings and no token type embeddings.

  The parameters are 'encoder', which has the structure of an `Encoder` and can
  be initialized from one, 'decoder', and 'output' if T5 has separate output
  embeddings.
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
    if config.is_t5 and not config.tie_word_embeddings:
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
    """Returns the decoder's logits, which depend on every parameter.

    Args:
      token_ids: Token ids of the source, int32 of shape [B, T].
      decoder_token_ids: Token ids of the target, int32 of shape [B, S]. If
        None, the decoder reads the same inputs as the encoder.
      segment_ids: Segment ids of the source, as in `Encoder`.
      positions: Positions of the source, as in `Encoder`.
      language_ids: Language ids of the source, as in `Encoder`.
      token_type_ids: Token types of the source, as in `Encoder`.
      decoder_segment_ids: Segment ids of the target, as in `decode`.
      decoder_positions: Positions of the target, as in `decode`.
      decoder_language_ids: Language ids of the target, as in `decode`.
      deterministic: Whether to disable dropout.

    Returns:
      A float32 array of shape [B, S, V].
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
    """Returns the hidden states of the last encoder layer, [B, T, H].

    The states have the compute dtype.
    """
    return self.encoder.encode(token_ids, **self._encoder_inputs(inputs))

  def encode_layers(self, token_ids: jax.Array, **inputs) -> jax.Array:
    """Returns the embeddings and encoder states, of shape [L + 1, B, T, H]."""
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
    """Returns the decoder's hidden states for complete target sequences.

    Each state depends on the tokens up to its own position.

    Args:
      decoder_token_ids: Target token ids, which start with the start symbol,
        int32 of shape [B, S].
      memory: Encoder states returned by `encode`, of shape [B, T, H].
      memory_segment_ids: Segment ids of the source, int32 of shape [B, T], with
        0 for padding. If None, every position attends to the complete memory.
      segment_ids: Segment ids of the target, int32 of shape [B, S]. A position
        attends to itself and to earlier positions of its segment, and to the
        same segment of the memory. If None, there is one segment.
      positions: Positions of the target tokens, int32 of shape [B, S]. If None,
        the positions are 0 to S - 1.
      language_ids: Language ids of the target tokens, int32 of shape [B, S],
        read if `config.use_language_embeddings` is set.
      deterministic: Whether to disable dropout. Dropout draws from the random
        stream 'dropout'.

    Returns:
      An array of shape [B, S, H] and the compute dtype.

    Raises:
      ConfigError: If the sequences are longer than
        `config.max_position_embeddings`.
    """
    length = decoder_token_ids.shape[1]
    states = self._embed(
      decoder_token_ids, positions, language_ids, deterministic
    )
    return self.decoder(
      states,
      memory,
      shared=self._shared_layers(),
      mask=masks.make_self_attention_mask(segment_ids, causal=True),
      memory_mask=masks.make_cross_attention_mask(
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
    """Returns a cache for `decode_step` with the source's keys and values.

    Args:
      memory: Encoder states returned by `encode`, of shape [M, T, H].
      length: Maximum number of tokens to decode per sequence.
      memory_segment_ids: Segment ids of the source, int32 of shape [M, T], with
        one segment per sequence and 0 for padding. If None, every position
        attends to the complete memory.
      rows_per_memory: Number of beams or samples per source sequence. The
        number of decoded sequences is B = M * rows_per_memory. Adjacent
        sequences use the same sequence of the memory.
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
    """Decodes one token, with the same result as `decode` at this position.

    Args:
      token_ids: Token ids of the current tokens, int32 of shape [B, 1].
      cache: Cache from `start_decoding` or from the preceding step.
      position: Position of the current tokens, an int32 scalar.
      language_ids: Language ids of the current tokens, int32 of shape [B, 1],
        read if `config.use_language_embeddings` is set.

    Returns:
      Hidden states of shape [B, 1, H], and the cache for the next position.
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
    """Applies the head's layers that precede the output embeddings.

    Args:
      states: Hidden states of shape [..., H].

    Returns:
      States of shape [..., H].
    """
    if not self.config.is_t5:
      return self.encoder.transform(states)
    if not self.config.scales_output:
      return states
    return states * self.config.hidden_dim**-0.5

  def output_table(self) -> tuple[jax.Array, jax.Array]:
    """Returns the output embeddings [R, H] and the output bias [R].

    Both arrays have the same properties as the results of
    `Encoder.output_table`.
    """
    config = self.config
    if not config.is_t5:
      return self.encoder.output_table()
    table = self.encoder.token if config.tie_word_embeddings else self.output
    rows = jnp.arange(config.table_size)
    assert config.vocab_size is not None  # `table_size` requires it.
    bias = jnp.where(rows < config.vocab_size, 0.0, MASKED_SCORE)
    return layers.gather_output_table(table, self.config.compute_dtype), bias

  def logits(self, states: jax.Array) -> jax.Array:
    """Returns logits over the vocabulary.

    Args:
      states: Hidden states of shape [..., H].

    Returns:
      A float32 array of shape [..., V].
    """
    table, bias = self.output_table()
    table_logits = layers.logits(self.transform(states), table, bias)
    return table_logits[..., : self.config.vocab_size]

  def _encoder_inputs(self, inputs) -> dict[str, Any]:
    """Returns the keyword arguments that the encoder supports."""
    if not self.config.is_t5:
      return inputs
    return {
      name: inputs[name]
      for name in ('segment_ids', 'deterministic')
      if name in inputs
    }

  def _embed(self, token_ids, positions, language_ids, deterministic):
    """Embeds token ids [B, S] of the decoder as states [B, S, H]."""
    if self.config.is_t5:
      return self.encoder.embed(token_ids, deterministic=deterministic)
    decoder_embeddings = (
      self.encoder.embeddings
      if self.config.tie_decoder
      else self.decoder.embeddings
    )
    return decoder_embeddings.complete(
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
    """Returns the encoder layers' parameters, or None if no layers are tied."""
    config = self.config
    if not config.tie_decoder:
      return None
    return scan_layers.layer_parameters(
      self.encoder, config.num_encoder_layers, scan=config.scan_layers
    )
