"""Embeddings of tokens, positions, token types and languages."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import dropout, encoder_config, layers
from xlflax.models.linear import dense
from xlflax.utils import errors

_Config = encoder_config.EncoderConfig


def sinusoidal_positions(length: int, dim: int) -> np.ndarray:
  """Returns sinusoidal position embeddings (Vaswani et al. 2017, section 3.5).

  Columns 2i and 2i + 1 hold the sine and cosine of p / 10000^(2i / dim).

  Args:
    length: Number of positions.
    dim: Width of the embeddings.

  Returns:
    A float32 array of shape [length, dim].
  """
  periods = 10000.0 ** (2.0 * (np.arange(dim) // 2) / dim)
  angles = np.arange(length)[:, None] / periods[None, :]
  even = np.arange(dim)[None, :] % 2 == 0
  return np.where(even, np.sin(angles), np.cos(angles)).astype(np.float32)


def sinusoid_halves(length: int, dim: int) -> np.ndarray:
  """Returns sinusoidal position embeddings whose first half contains sines.

  Tensor2Tensor uses this order of columns.

  Column i of the first half holds the sine of p / 10000^(i / (dim / 2 - 1)).
  The same column of the second half holds its cosine. If the width is odd, the
  last column is zero.

  Args:
    length: Number of positions.
    dim: Width of the embeddings.

  Returns:
    A float32 array of shape [length, dim].
  """
  half = dim // 2
  periods = 10000.0 ** (np.arange(half) / max(half - 1, 1))
  angles = np.arange(length)[:, None] / periods[None, :]
  table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
  return np.pad(table, [(0, 0), (0, dim - 2 * half)]).astype(np.float32)


def embedding_lookup(table: jax.Array, ids: jax.Array, axis: str) -> jax.Array:
  """Looks up rows of an embedding table that may be sharded.

  If the table has more rows than a device has tokens, each device looks up the
  ids of several devices in its shard of the width. An all-to-all exchange then
  replaces the sharding of the width by the sharding of the batch. The table and
  its gradient remain sharded. The width of a smaller table is gathered before
  the lookup. Without these sharding constraints, the partitioner gathers the
  complete table and gradient.

  Args:
    table: Embedding table of shape [R, H].
    ids: Indices of the rows to look up, int32 of shape [B, T].
    axis: Name of the logical axis of the table's rows, such as 'vocab'.

  Returns:
    An array of shape [B, T, H]. The embeddings of ids of R or more are NaN, so
    that a mismatch of model and data becomes visible.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if not mesh.empty and table.shape[0] > ids.size // mesh.size:
    if mesh.size > 1:
      # This also constrains the gradient.
      table = dense.constrain_table(table)
    width = dense.width_axes(table.shape[1])
    ids = dense.constrain_like_weights(ids, width, 'batch', 'length')
    rows = jnp.take(table, ids, axis=0, mode='fill')
    rows = dense.constrain_like_weights(rows, width, 'batch', 'length', 'embed')
  else:
    table = layers.constrain(table, axis, None)
    ids = layers.constrain(ids, 'batch', 'length')
    rows = jnp.take(table, ids, axis=0, mode='fill')
  return layers.constrain(rows, 'batch', 'length', 'embed')


# Position embeddings that are part of the attention.
_ATTENTION_POSITIONS = (
  encoder_config.PositionEmbedding.ROTARY,
  encoder_config.PositionEmbedding.DISENTANGLED,
)
_CONSTANT_TABLES = {
  encoder_config.PositionEmbedding.SINUSOIDAL: sinusoidal_positions,
  encoder_config.PositionEmbedding.SINUSOIDAL_HALVES: sinusoid_halves,
}


class Embeddings(nn.Module):
  """Normalized sum of token, position, type and language embeddings."""

  config: _Config

  def setup(self):
    config = self.config
    assert config.vocab_size is not None  # `table_size` requires it.
    self.token = self.param(
      'token',
      layers.table_init(config.initializer_range, config.vocab_size),
      (config.table_size, config.hidden_dim),
      jnp.float32,
    )
    self.set_up_additions()

  def set_up_additions(self) -> None:
    """Creates the position, type and language embeddings."""
    config = self.config
    if config.position_embedding is encoder_config.PositionEmbedding.LEARNED:
      self.position = self._table(
        'position',
        config.max_position_embeddings + config.position_offset,
        'position',
      )
    if config.type_vocab_size:
      self.token_type = self._table(
        'token_type', config.type_vocab_size, 'type'
      )
    if config.use_language_embeddings:
      self.language = self._table(
        'language',
        encoder_config.require_num_languages(self.config, 'The encoder'),
        'language',
      )
    if config.embedding_norm:
      self.norm = layers.LayerNorm(config)
    self.dropout = dropout.Dropout(config.dropout_rate)

  def _table(self, name: str, rows: int, axis: str) -> jax.Array:
    """Creates an embedding table."""
    return self.param(
      name,
      layers.weights_init(self.config, axis, 'embed'),
      (rows, self.config.hidden_dim),
      jnp.float32,
    )

  def __call__(
    self,
    token_ids,
    *,
    positions,
    language_ids,
    token_type_ids,
    deterministic: bool,
  ) -> jax.Array:
    """Returns the sum of token, position, type and language embeddings.

    Args:
      token_ids: Token ids, int32 of shape [B, T].
      positions: Positions of the tokens, int32 of shape [B, T]. If None, the
        positions are 0 to T - 1.
      language_ids: Language ids, int32 of shape [B, T]. They are required if
        `config.use_language_embeddings` is set.
      token_type_ids: Token types, int32 of shape [B, T]. If None, all tokens
        have type 0.
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [B, T, H] and the compute dtype.

    Raises:
      ConfigError: If T exceeds `config.max_position_embeddings`, or the
        language ids are missing.
    """
    return self.complete(
      embedding_lookup(self.token, token_ids, 'vocab'),
      token_ids,
      positions=positions,
      language_ids=language_ids,
      token_type_ids=token_type_ids,
      deterministic=deterministic,
    )

  def complete(
    self,
    states: jax.Array,
    token_ids: jax.Array,
    *,
    positions,
    language_ids,
    token_type_ids,
    deterministic: bool,
  ) -> jax.Array:
    """Adds position, type and language embeddings to token embeddings.

    Args:
      states: Token embeddings of shape [B, T, H].
      token_ids: Token ids, int32 of shape [B, T].
      positions: Positions, as in `__call__`.
      language_ids: Language ids, as in `__call__`.
      token_type_ids: Token types, as in `__call__`.
      deterministic: Whether to disable dropout.

    Returns:
      An array of shape [B, T, H] and the compute dtype.

    Raises:
      ConfigError: If T exceeds `config.max_position_embeddings`, or the
        language ids are missing.
    """
    config = self.config
    if config.scale_embeddings:
      states = states * config.hidden_dim**0.5
    states = self._add_positions(states, token_ids.shape, positions)
    if config.type_vocab_size:
      if token_type_ids is None:
        token_type_ids = jnp.zeros_like(token_ids)
      # Models with a single type (RoBERTa, XLM-R) use it for both segments of a
      # pair.
      token_type_ids = jnp.minimum(token_type_ids, config.type_vocab_size - 1)
      states = states + embedding_lookup(
        self.token_type, token_type_ids, 'type'
      )
    if config.use_language_embeddings:
      states = states + self._languages(token_ids, language_ids)
    if config.embedding_norm:
      states = self.norm(states)
    return self.dropout(
      states.astype(config.compute_dtype), deterministic=deterministic
    )

  def _add_positions(
    self, states, shape, positions: jax.Array | None
  ) -> jax.Array:
    """Adds position embeddings to states [B, T, H]."""
    config = self.config
    length = shape[1]
    if length > config.max_position_embeddings:
      raise errors.ConfigError(
        f'The sequences have {length} tokens, but `max_position_embeddings` is '
        f'{config.max_position_embeddings}',
        where=errors.field_location(config, 'max_position_embeddings'),
        fix='Shorten the sequences of the dataset, or increase '
        'max_position_embeddings.',
      )
    if config.position_embedding in _ATTENTION_POSITIONS:
      return states
    if config.position_embedding is encoder_config.PositionEmbedding.LEARNED:
      table = self.position
    else:
      table = jnp.asarray(
        _CONSTANT_TABLES[config.position_embedding](
          config.max_position_embeddings + config.position_offset,
          config.hidden_dim,
        )
      )
    if positions is None:
      first = config.position_offset
      table = layers.constrain(table, None, None)
      return states + table[None, first : first + length]
    return states + embedding_lookup(
      table, positions + config.position_offset, 'position'
    )

  def _languages(self, token_ids, language_ids: jax.Array | None):
    """Returns language embeddings of shape [B, T, H]."""
    if language_ids is None:
      if not self.is_initializing():
        raise errors.ConfigError(
          'An encoder with language embeddings requires `language_ids`, which '
          'must have the shape of `token_ids`',
          where=errors.field_location(self.config, 'use_language_embeddings'),
          fix='Pass the language_ids of the batch, or set '
          'use_language_embeddings to False.',
        )
      language_ids = jnp.zeros_like(token_ids)
    return embedding_lookup(self.language, language_ids, 'language')
