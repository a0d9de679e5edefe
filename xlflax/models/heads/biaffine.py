"""The deep biaffine scorer of dependency arcs and relations.

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
  """How the states of a word's tokens become its vector."""

  FIRST = 'first'  # the state of its first token (ECS, section 3)
  MEAN = 'mean'  # the mean of its tokens' states


@class_registry.register('biaffine_config')
@dataclasses.dataclass(frozen=True)
class BiaffineConfig:
  """Sizes of the scorer.

  Attributes:
    num_relations: R.
    arc_dim: width of the vectors that arcs are scored from (paper: 500).
    relation_dim: of those for relations (paper: 100).
    dropout_rate: on a word's vector before and after the first linear maps.
  """

  num_relations: validation.PositiveInt
  arc_dim: validation.Dimension = 500
  relation_dim: validation.Dimension = 100
  dropout_rate: validation.FractionBelowOne = 0.33


class Biaffine(nn.Module):
  """Scores of arcs and of relations, from vectors of words.

  A word's vector goes through four small networks (linear, leaky ReLU with
  slope 0.1, orthonormal at first): as dependent and as head, for arcs and for
  relations. The maps that follow start at zero, so that all heads and all
  relations have the same score at first.
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
    """`arcs`, and `relations` at the arcs from each word to word 0."""
    heads = jnp.zeros(words.shape[:2], jnp.int32)
    return (
      self.arcs(words, deterministic=deterministic),
      self.relations(words, heads, deterministic=deterministic),
    )

  def arcs(self, words: jax.Array, *, deterministic: bool = True) -> jax.Array:
    """Equation 6 for every two words.

    s_ij = [d_i : 1] U h_j, d_i word i as dependent and h_j word j as head.

    Args:
      words: [B, W, H]; word 0 is the root.
      deterministic: False turns dropout on.

    Returns:
      float32 [B, W, W]: place (i, j) scores j as the head of i. It takes a mask
      (see `only_words`) before a softmax over j.
    """
    words = self.dropout(words, deterministic=deterministic)
    dependent = self._one(self.arc_dependent, words, deterministic)
    head = self._vector(self.arc_head, words, deterministic)
    return jnp.einsum('bid,de,bje->bij', dependent, self.arc, head)

  def relations(
    self, words: jax.Array, heads: jax.Array, *, deterministic: bool = True
  ) -> jax.Array:
    """Scores of the relations of each word to a given head.

    Equation 9: s_ir = [d_i : 1] U_r [h_i : 1], h_i the given head of word i.

    Args:
      words: [B, W, H].
      heads: int [B, W] in 0 .. W - 1.
      deterministic: False turns dropout on.

    Returns:
      float32 [B, W, R].
    """
    words = self.dropout(words, deterministic=deterministic)
    dependent = self._one(self.relation_dependent, words, deterministic)
    head = self._one(self.relation_head, words, deterministic)
    head = jnp.take_along_axis(head, heads[..., None], axis=1)
    return jnp.einsum('bid,rde,bie->bir', dependent, self.relation, head)

  def best_relations(self, words: jax.Array, allowed: jax.Array) -> jax.Array:
    """Returns the best relation of every possible arc, without dropout.

    Args:
      words: [B, W, H].
      allowed: bool [2, R]: relations to the root, to any other head.

    Returns:
      int32 [B, W, W]: place (i, j) for j as the head of i.
    """
    dependent = self._one(self.relation_dependent, words, True)
    heads = self._one(self.relation_head, words, True)
    projected = jnp.einsum('bid,rde->bire', dependent, self.relation)

    def column(j):
      scores = jnp.einsum('bire,be->bir', projected, heads[:, j])
      return jnp.argmax(
        jnp.where(allowed[jnp.minimum(j, 1)][None, None], scores, MASKED_SCORE),
        axis=-1,
      )

    relations = jax.lax.map(column, jnp.arange(words.shape[1]))  # [W, B, W]
    return jnp.moveaxis(relations, 0, -1).astype(jnp.int32)

  def _vector(self, dense, words, deterministic) -> jax.Array:
    """[B, W, H] -> float32 [B, W, d]."""
    hidden = nn.leaky_relu(dense(words.astype(jnp.float32)), 0.1)
    return self.dropout(hidden, deterministic=deterministic)

  def _one(self, dense, words, deterministic) -> jax.Array:
    """Returns `_vector` with a 1 appended, [B, W, d + 1]."""
    vectors = self._vector(dense, words, deterministic)
    return jnp.concatenate([vectors, jnp.ones_like(vectors[..., :1])], axis=-1)


def only_words(scores: jax.Array, is_word: jax.Array) -> jax.Array:
  """Masks arcs whose head is not a word or is the dependent itself.

  Args:
    scores: [B, W, W].
    is_word: bool [B, W], the root among the words.
  """
  itself = jnp.eye(scores.shape[1], dtype=bool)[None]
  return jnp.where(is_word[:, None, :] & ~itself, scores, MASKED_SCORE)


def word_vectors(
  states: jax.Array, starts: jax.Array, lengths: jax.Array, pooling: Pooling
) -> jax.Array:
  """Vectors of words from states of their tokens.

  Args:
    states: [B, T, H].
    starts: int [B, W], the place of each word's first token; anything where
      there is no word.
    lengths: int [B, W], its number of tokens, 0 for no word.
    pooling: FIRST or MEAN.

  Returns:
    [B, W, H] in the states' dtype; zeros where there is no word.
  """
  present = (lengths > 0)[..., None]
  if pooling is Pooling.FIRST:
    first_states = jnp.take_along_axis(
      states, jnp.maximum(starts, 0)[..., None], axis=1
    )
    return jnp.where(present, first_states, jnp.zeros_like(first_states))
  places = jnp.arange(states.shape[1])[None, None]
  inside = (places >= starts[..., None]) & (
    places < (starts + lengths)[..., None]
  )  # [B, W, T]
  share = inside / jnp.maximum(lengths, 1)[..., None]
  return jnp.einsum(
    'bwt,bth->bwh',
    share.astype(states.dtype),
    states,
    precision=jax.lax.Precision.HIGHEST,
  )
