"""Embeddings of tokens, positions, types and languages."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import dropout, layers
from xlflax.models import encoder_config as model_config
from xlflax.models.linear import dense
from xlflax.utils import errors

_Config = model_config.EncoderConfig


def sinusoidal_positions(length: int, dim: int) -> np.ndarray:
  """Sinusoidal positions (Vaswani et al. 2017, section 3.5).

  Columns 2i and 2i + 1 hold the sine and cosine of p / 10000^(2i / dim).

  Args:
    length: number of positions.
    dim: width.

  Returns:
    float32 [length, dim].
  """
  periods = 10000.0 ** (2.0 * (np.arange(dim) // 2) / dim)
  angles = np.arange(length)[:, None] / periods[None, :]
  even = np.arange(dim)[None, :] % 2 == 0
  return np.where(even, np.sin(angles), np.cos(angles)).astype(np.float32)


def sinusoid_halves(length: int, dim: int) -> np.ndarray:
  """Sinusoidal positions as in tensor2tensor: sines first, then cosines.

  Column i of the first half holds the sine of p / 10000^(i / (dim / 2 - 1)),
  the same column of the second half its cosine; an odd width ends in zeros.

  Args:
    length: number of positions.
    dim: width.

  Returns:
    float32 [length, dim].
  """
  half = dim // 2
  periods = 10000.0 ** (np.arange(half) / max(half - 1, 1))
  angles = np.arange(length)[:, None] / periods[None, :]
  table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
  return np.pad(table, [(0, 0), (0, dim - 2 * half)]).astype(np.float32)


def embedding_lookup(table: jax.Array, ids: jax.Array, axis: str) -> jax.Array:
  """Rows of a table that may be sharded over `axis` and its width.

  Of a table with more rows than a device has tokens, each device picks the
  rows of its neighbours' batches, too, from its part of the width; then they
  exchange widths for rows (all-to-all). The table stays where it is, and so
  does its gradient. The width of a smaller table is gathered first. Left
  alone, the partitioner gathers both whole.

  Args:
    table: [R, H].
    ids: int32 [B, T].
    axis: logical axis of the rows.

  Returns:
    [B, T, H]; NaN where an id is R or more, so that a mismatch of model and
    data shows at once.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if not mesh.empty and table.shape[0] > ids.size // mesh.size:
    if mesh.size > 1:
      table = dense.constrain_table(table)  # and so its gradient
    width = dense.width_axes(table.shape[1])
    ids = dense.constrain_beside_width(ids, width, 'batch', 'length')
    rows = jnp.take(table, ids, axis=0, mode='fill')
    rows = dense.constrain_beside_width(rows, width, 'batch', 'length', 'embed')
  else:
    table = layers.constrain(table, axis, None)
    ids = layers.constrain(ids, 'batch', 'length')
    rows = jnp.take(table, ids, axis=0, mode='fill')
  return layers.constrain(rows, 'batch', 'length', 'embed')


_NOT_ADDED = (
  model_config.PositionEmbedding.ROTARY,
  model_config.PositionEmbedding.DISENTANGLED,
)
_CONSTANT = {
  model_config.PositionEmbedding.SINUSOIDAL: sinusoidal_positions,
  model_config.PositionEmbedding.SINUSOIDAL_HALVES: sinusoid_halves,
}


class Embeddings(nn.Module):
  """Sum of token, position, type and language embeddings, normalised."""

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
    """Makes all embeddings except the table of tokens."""
    config = self.config
    if config.position_embedding is model_config.PositionEmbedding.LEARNED:
      self.position = self._table(
        'position', config.max_length + config.position_offset, 'position'
      )
    if config.type_vocab_size:
      self.token_type = self._table(
        'token_type', config.type_vocab_size, 'type'
      )
    if config.use_language_embeddings:
      self.language = self._table(
        'language',
        model_config.known_languages(self.config, 'The encoder'),
        'language',
      )
    if config.embedding_norm:
      self.norm = layers.LayerNorm(config)
    self.dropout = dropout.Dropout(config.dropout_rate)

  def _table(self, name: str, rows: int, axis: str) -> jax.Array:
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
    """[B, T] int32 ids -> [B, T, H] in the compute dtype."""
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
    """Adds the other embeddings to token embeddings [B, T, H]."""
    config = self.config
    if config.scale_embeddings:
      states = states * config.hidden_dim**0.5
    states = self._add_positions(states, token_ids.shape, positions)
    if config.type_vocab_size:
      if token_type_ids is None:
        token_type_ids = jnp.zeros_like(token_ids)
      # A single type (RoBERTa, XLM-R) serves both sides of a pair.
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
    """Those of each token, [B, T, H] or, for running positions, [1, T, H]."""
    config = self.config
    length = shape[1]
    if length > config.max_length:
      raise errors.ConfigError(
        'The rows are longer than the encoder has positions',
        got=f'{length} tokens',
        expected=f'at most {config.max_length}',
        where='EncoderConfig.max_length',
        fix='shorten the rows of the stream, or raise max_length',
      )
    if config.position_embedding in _NOT_ADDED:
      return states
    if config.position_embedding is model_config.PositionEmbedding.LEARNED:
      table = self.position
    else:
      table = jnp.asarray(
        _CONSTANT[config.position_embedding](
          config.max_length + config.position_offset, config.hidden_dim
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
    if language_ids is None:
      if not self.is_initializing():
        raise errors.ConfigError(
          'The encoder has language embeddings but got no language ids',
          expected='language_ids of the shape of token_ids',
          where='EncoderConfig.use_language_embeddings',
          fix="pass the batch's language_ids, or set "
          'use_language_embeddings to False',
        )
      language_ids = jnp.zeros_like(token_ids)
    return embedding_lookup(self.language, language_ids, 'language')
