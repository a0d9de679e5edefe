"""Disentangled attention (He et al. 2021), as in DeBERTa-v2 and v3.

A token's content and its distance to a second token are represented by separate
vectors. The score of query i and key j is

    (q_i k_j + q_i K(r_ij) + k_j Q(r_ij)) / sqrt(3 D)

where r_ij is the embedding of the bucket of i - j, and Q and K are the query
and key projections of the layer. Each distance below half the number of buckets
has its own bucket. Above that, the size of the buckets grows with the logarithm
of the distance.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import dropout, encoder_config, norms
from xlflax.models.attention import masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.linear import dense

_NUM_TERMS = 3  # Number of terms of the score.


class Relative(NamedTuple):
  """Embeddings of relative distances, which all layers share.

  Attributes:
    table: Embeddings of the distance buckets from -S to S - 1, of shape
      [2 S, H].
    rows: Row of `table` for each query and key, int32 of shape [B or 1, T, T].
  """

  table: jax.Array
  rows: jax.Array


def log_bucket(distance: jax.Array, *, buckets: int, maximum: int) -> jax.Array:
  """Returns the bucket index of each distance.

  The bucket of -d is the negative bucket of d.

  Args:
    distance: Query position minus key position, an int32 array of any
      shape.
    buckets: Number S of buckets per direction. Each distance up to S / 2 has
      its own bucket.
    maximum: Distance that is assigned to the last bucket.

  Returns:
    An int32 array with the same shape as `distance`.
  """
  middle = buckets // 2
  far_distance = jnp.maximum(jnp.abs(distance), middle).astype(jnp.float32)
  growth = jnp.log(far_distance / middle) / jnp.log((maximum - 1) / middle)
  far_bucket = jnp.ceil(growth * (middle - 1)).astype(jnp.int32) + middle
  is_near = jnp.abs(distance) <= middle
  return jnp.where(is_near, distance, jnp.sign(distance) * far_bucket)


class RelativeEmbeddings(nn.Module):
  """Module that embeds the relative distances between queries and keys."""

  config: encoder_config.EncoderConfig

  def setup(self):
    config = self.config
    self.table = self.param(
      'table',
      dense.weights_init(config, 'position', 'embed'),
      (2 * config.relative_buckets, config.hidden_dim),
      jnp.float32,
    )
    self.norm = norms.LayerNorm(config)
    self.dropout = dropout.Dropout(config.dropout_rate)

  def __call__(
    self, positions: jax.Array | None, length: int, *, deterministic: bool
  ) -> Relative:
    """Returns distance embeddings, and the row for each pair of query and key.

    Args:
      positions: Positions of the tokens, int32 of shape [B, T]. If None, the
        positions are 0 to T - 1.
      length: Sequence length T.
      deterministic: Whether to disable dropout.
    """
    config = self.config
    if positions is None:
      positions = jnp.arange(length, dtype=jnp.int32)[None]
    buckets = log_bucket(
      positions[:, :, None] - positions[:, None, :],
      buckets=config.relative_buckets,
      maximum=config.relative_max_distance,
    )
    last_row = 2 * config.relative_buckets - 1
    table = self.norm(self.table.astype(config.compute_dtype))
    return Relative(
      self.dropout(table, deterministic=deterministic),
      jnp.clip(buckets + config.relative_buckets, 0, last_row),
    )


def disentangled_attention(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  *,
  relative_query: jax.Array,
  relative_key: jax.Array,
  index: jax.Array,
  mask: masks.Mask | jax.Array | None,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """Computes disentangled attention.

  Args:
    query: Queries of shape [B, T, N, D].
    key: Keys of shape [B, T, N, D].
    value: Values of shape [B, T, N, D].
    relative_query: Query projection Q of the distance embeddings, of shape
      [2 S, N, D].
    relative_key: Key projection K of the distance embeddings, of shape
      [2 S, N, D].
    index: Row of the distance embeddings for each query and key, int32 of shape
      [B or 1, T, T].
    mask: Attention mask between queries and keys, of shape [T, T]. If None,
      every position attends to all positions.
    dropout_rate: Dropout rate for the attention probabilities.
    dropout_key: Random key for dropout. If None, dropout is not applied.

  Returns:
    An array of shape [B, T, N, D].
  """
  scores = _float32_einsum('btnd,bsnd->bnts', query, key)
  batch, heads, length, _ = scores.shape
  rows = jnp.broadcast_to(index[:, None], (batch, heads, length, length))
  to_position = _float32_einsum('btnd,rnd->bntr', query, relative_key)
  scores += jnp.take_along_axis(to_position, rows, axis=-1)
  from_position = _float32_einsum('bsnd,rnd->bnsr', key, relative_query)
  transposed_rows = jnp.swapaxes(rows, -1, -2)  # [.., s, t]
  gathered = jnp.take_along_axis(from_position, transposed_rows, axis=-1)
  scores += jnp.swapaxes(gathered, -1, -2)
  scores *= (query.shape[-1] * _NUM_TERMS) ** -0.5
  visible = masks.mask_array(mask, length, length)
  if visible is not None:
    scores = jnp.where(visible, scores, MASKED_SCORE)
  weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
  if dropout_key is not None:
    weights = dropout.apply_dropout(dropout_key, weights, rate=dropout_rate)
  return jnp.einsum('bnts,bsnd->btnd', weights, value)


def _float32_einsum(
  equation: str, first: jax.Array, second: jax.Array
) -> jax.Array:
  """Computes an einsum with a float32 result."""
  return jnp.einsum(equation, first, second, preferred_element_type=jnp.float32)
