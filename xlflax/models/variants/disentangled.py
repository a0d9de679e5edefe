"""Disentangled attention (He et al. 2021): DeBERTa-v2 and v3.

A token's content and its distance to another are vectors of their own. The
score of query i and key j is

    (q_i k_j + q_i K(r_ij) + k_j Q(r_ij)) / sqrt(3 D)

where r_ij is the embedding of the bucket of i - j, and Q and K are the layer's
own maps of queries and keys. Distances below half the buckets have one each;
beyond, buckets grow with the distance's logarithm.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import dropout, norms
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.linear import dense

_TERMS = 3  # of the score


class Relative(NamedTuple):
  """What all layers read about distances.

  Attributes:
    table: [2 S, H], an embedding of each bucket, -S to S - 1.
    rows: int32 [B or 1, T, T], the row of the table for each (query, key).
  """

  table: jax.Array
  rows: jax.Array


def log_bucket(distance: jax.Array, *, buckets: int, maximum: int) -> jax.Array:
  """The bucket of a distance, int32 of the same shape, odd in the distance.

  Args:
    distance: int32 [...], of a query from a key.
    buckets: S; distances below S / 2 have a bucket each.
    maximum: the distance of the last bucket.
  """
  middle = buckets // 2
  size = jnp.maximum(jnp.abs(distance), middle).astype(jnp.float32)
  growth = jnp.log(size / middle) / jnp.log((maximum - 1) / middle)
  far = jnp.ceil(growth * (middle - 1)).astype(jnp.int32) + middle
  near = jnp.abs(distance) <= middle
  return jnp.where(near, distance, jnp.sign(distance) * far)


class RelativeEmbeddings(nn.Module):
  """The embeddings of distances, normalised, and their rows for a batch."""

  config: model_config.EncoderConfig

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
    """Those of rows of `length` T.

    Args:
      positions: int32 [B, T], or None for 0 .. T - 1.
      length: T.
      deterministic: False turns dropout on.
    """
    config = self.config
    if positions is None:
      positions = jnp.arange(length, dtype=jnp.int32)[None]
    buckets = log_bucket(
      positions[:, :, None] - positions[:, None, :],
      buckets=config.relative_buckets,
      maximum=config.relative_max_distance,
    )
    last = 2 * config.relative_buckets - 1
    table = self.norm(self.table.astype(config.compute_dtype))
    return Relative(
      self.dropout(table, deterministic=deterministic),
      jnp.clip(buckets + config.relative_buckets, 0, last),
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
  """The context of each head, [B, T, N, D].

  Args:
    query: [B, T, N, D].
    key: [B, T, N, D].
    value: [B, T, N, D].
    relative_query: [2 S, N, D], Q of the embeddings of distances.
    relative_key: [2 S, N, D], K of them.
    index: int32 [B or 1, T, T], see `Relative`.
    mask: which keys are seen, [T, T]; None if all attend to all.
    dropout_rate: on probabilities.
    dropout_key: key of the dropout; None without dropout.
  """
  scores = _product('btnd,bsnd->bnts', query, key)
  batch, heads, length, _ = scores.shape
  rows = jnp.broadcast_to(index[:, None], (batch, heads, length, length))
  to_position = _product('btnd,rnd->bntr', query, relative_key)
  scores += jnp.take_along_axis(to_position, rows, axis=-1)
  from_position = _product('bsnd,rnd->bnsr', key, relative_query)
  turned = jnp.swapaxes(rows, -1, -2)  # [.., s, t]
  gathered = jnp.take_along_axis(from_position, turned, axis=-1)
  scores += jnp.swapaxes(gathered, -1, -2)
  scores *= (query.shape[-1] * _TERMS) ** -0.5
  visible = masks.mask_array(mask, length, length)
  if visible is not None:
    scores = jnp.where(visible, scores, MASKED_SCORE)
  weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
  if dropout_key is not None:
    weights = dropout.apply_dropout(dropout_key, weights, rate=dropout_rate)
  return jnp.einsum('bnts,bsnd->btnd', weights, value)


def _product(equation: str, first: jax.Array, second: jax.Array) -> jax.Array:
  """An einsum in float32."""
  return jnp.einsum(equation, first, second, preferred_element_type=jnp.float32)
