"""Deep biaffine scorer for dependency arcs and relations.

Source: Dozat and Manning (2017), sections 3.1 and 3.2, equations 4 to 9.
"""

import dataclasses
import enum

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import dropout
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.utils import class_registry, validation


class Pooling(enum.StrEnum):
  """Method of computing a word's vector from its tokens' hidden states."""

  # The state of the first token (ECS, section 3).
  FIRST = 'first'
  # The mean of the states of all tokens.
  MEAN = 'mean'


@class_registry.register('biaffine_config')
@dataclasses.dataclass(frozen=True)
class BiaffineConfig:
  """Hyperparameters of the biaffine scorer.

  Attributes:
    num_relations: Number of dependency relations, R.
    arc_dim: Width of the word vectors from which arcs are scored (paper: 500).
    relation_dim: Width of the word vectors from which relations are scored
      (paper: 100).
    dropout_rate: Dropout rate for the word vectors, both before and after the
      first linear maps.
  """

  num_relations: validation.PositiveInt
  arc_dim: validation.Dimension = 500
  relation_dim: validation.Dimension = 100
  dropout_rate: validation.FractionBelowOne = 0.33


class Biaffine(nn.Module):
  """Module that scores dependency arcs and relations between words.

  The vector of a word passes through four small networks: as dependent and as
  head, for arcs and for relations. Each network is a linear map with
  orthonormal initial weights and a leaky ReLU of slope 0.1. The maps that
  follow these networks are initialized with zeros, so that all heads and all
  relations initially have the same score.
  """

  config: BiaffineConfig

  def setup(self):
    config = self.config

    def dense(width):
      return nn.Dense(
        width,
        kernel_init=nn.with_logical_partitioning(
          nn.initializers.orthogonal(), ('embed', None)
        ),
      )

    self.arc_dependent, self.arc_head = (
      dense(config.arc_dim) for _ in range(2)
    )
    self.relation_dependent, self.relation_head = (
      dense(config.relation_dim) for _ in range(2)
    )
    zeros = nn.initializers.zeros_init()
    self.arc = self.param(
      'arc', zeros, (config.arc_dim + 1, config.arc_dim), jnp.float32
    )
    width = config.relation_dim + 1
    self.relation = self.param(
      'relation', zeros, (config.num_relations, width, width), jnp.float32
    )
    self.dropout = dropout.Dropout(config.dropout_rate)

  def __call__(self, words: jax.Array, *, deterministic: bool = True):
    """Returns the arc scores, and the relation scores with word 0 as each head.

    Args:
      words: Word vectors of shape [B, W, H].
      deterministic: Whether to disable dropout.

    Returns:
      The results of `arcs` and `relations`.
    """
    heads = jnp.zeros(words.shape[:2], jnp.int32)
    return (
      self.arcs(words, deterministic=deterministic),
      self.relations(words, heads, deterministic=deterministic),
    )

  def arcs(self, words: jax.Array, *, deterministic: bool = True) -> jax.Array:
    """Scores all possible dependency arcs (Dozat and Manning 2017, equation 6).

    The score is s_ij = [d_i : 1] U h_j, where d_i represents word i as a
    dependent and h_j represents word j as a head.

    Args:
      words: Word vectors of shape [B, W, H]. Word 0 is the root.
      deterministic: Whether to disable dropout.

    Returns:
      A float32 array of shape [B, W, W]. Element (i, j) is the score of j as
      the head of i. Apply `mask_non_words` before a softmax over j.
    """
    vectors = self.dropout(words, deterministic=deterministic)
    dependent = self._vector_with_bias(
      self.arc_dependent, vectors, deterministic
    )
    head = self._vector(self.arc_head, vectors, deterministic)
    return jnp.einsum('bid,de,bje->bij', dependent, self.arc, head)

  def relations(
    self, words: jax.Array, heads: jax.Array, *, deterministic: bool = True
  ) -> jax.Array:
    """Scores the relations between each word and its given head.

    The score is s_ir = [d_i : 1] U_r [h_i : 1], where h_i represents the given
    head of word i (equation 9).

    Args:
      words: Word vectors of shape [B, W, H].
      heads: Index of each word's head, int from 0 to W - 1, of shape [B, W].
      deterministic: Whether to disable dropout.

    Returns:
      A float32 array of shape [B, W, R].
    """
    vectors = self.dropout(words, deterministic=deterministic)
    dependent = self._vector_with_bias(
      self.relation_dependent, vectors, deterministic
    )
    head = self._vector_with_bias(self.relation_head, vectors, deterministic)
    head = jnp.take_along_axis(head, heads[..., None], axis=1)
    return jnp.einsum('bid,rde,bie->bir', dependent, self.relation, head)

  def best_relations(self, words: jax.Array, allowed: jax.Array) -> jax.Array:
    """Returns the best relation for every possible arc, without dropout.

    Args:
      words: Word vectors of shape [B, W, H].
      allowed: Mask of the allowed relations, bool of shape [2, R]. Row 0
        applies to arcs whose head is the root, and row 1 to all other arcs.

    Returns:
      An int32 array of shape [B, W, W]. Element (i, j) is the relation of word
      i to the head j.
    """
    dependent = self._vector_with_bias(self.relation_dependent, words, True)
    heads = self._vector_with_bias(self.relation_head, words, True)
    projected = jnp.einsum('bid,rde->bire', dependent, self.relation)

    def best_relations_to_head(j):
      scores = jnp.einsum('bire,be->bir', projected, heads[:, j])
      return jnp.argmax(
        jnp.where(allowed[jnp.minimum(j, 1)][None, None], scores, MASKED_SCORE),
        axis=-1,
      )

    head_indices = jnp.arange(words.shape[1])
    relations = jax.lax.map(best_relations_to_head, head_indices)  # [W, B, W]
    return jnp.moveaxis(relations, 0, -1).astype(jnp.int32)

  def _vector(self, dense, words, deterministic) -> jax.Array:
    """Applies a network to words [B, W, H] and returns float32 [B, W, d]."""
    hidden = nn.leaky_relu(dense(words.astype(jnp.float32)), 0.1)
    return self.dropout(hidden, deterministic=deterministic)

  def _vector_with_bias(self, dense, words, deterministic) -> jax.Array:
    """Returns `_vector` with a 1 appended, [B, W, d + 1]."""
    vectors = self._vector(dense, words, deterministic)
    return jnp.concatenate([vectors, jnp.ones_like(vectors[..., :1])], axis=-1)


def mask_non_words(scores: jax.Array, is_word: jax.Array) -> jax.Array:
  """Masks the scores of arcs whose head is no word or is the dependent itself.

  Args:
    scores: Scores of all pairs of words as arcs, of shape [B, W, W].
    is_word: Mask of the positions that contain a word or the root, bool of
      shape [B, W].

  Returns:
    The scores, with `MASKED_SCORE` at impossible arcs.
  """
  is_dependent = jnp.eye(scores.shape[1], dtype=bool)[None]
  return jnp.where(is_word[:, None, :] & ~is_dependent, scores, MASKED_SCORE)


def pool_words(
  states: jax.Array, starts: jax.Array, lengths: jax.Array, pooling: Pooling
) -> jax.Array:
  """Computes word vectors from the hidden states of the words' tokens.

  Args:
    states: Hidden states of shape [B, T, H].
    starts: Position of each word's first token, int of shape [B, W]. Slots
      without a word may have any value.
    lengths: Number of tokens of each word, int of shape [B, W]. Slots without a
      word have 0.
    pooling: Method of pooling the tokens of a word: FIRST or MEAN.

  Returns:
    An array of shape [B, W, H] and the dtype of the states. The vectors of
    positions without a word are zero.
  """
  has_word = (lengths > 0)[..., None]
  if pooling is Pooling.FIRST:
    first_states = jnp.take_along_axis(
      states, jnp.maximum(starts, 0)[..., None], axis=1
    )
    return jnp.where(has_word, first_states, jnp.zeros_like(first_states))
  positions = jnp.arange(states.shape[1])[None, None]
  is_inside = (positions >= starts[..., None]) & (
    positions < (starts + lengths)[..., None]
  )  # [B, W, T]
  weights = is_inside / jnp.maximum(lengths, 1)[..., None]
  return jnp.einsum(
    'bwt,bth->bwh',
    weights.astype(states.dtype),
    states,
    precision=jax.lax.Precision.HIGHEST,
  )
