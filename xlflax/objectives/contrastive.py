"""Sentence alignment: a translation is nearer than the other sentences."""

import dataclasses
import enum
import functools
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax import enums, errors
from xlflax.data import batch as batch_lib
from xlflax.objectives import base, inputs, losses, masking, metrics
from xlflax.objectives.inputs import Pooling


class Direction(enum.Enum):
  """Which side asks and which one answers."""

  BOTH = 'both'  # the mean of the two
  FORWARD = 'forward'  # the first side finds the second


class Duplicates(enum.Enum):
  """What a pair is to another pair that shares a sentence with it."""

  EXCLUDE = 'exclude'  # no negative
  NEGATIVE = 'negative'  # a negative like any other


class ProjectionHead(nn.Module):
  """W2 relu(W1 h) without biases (PPA, section 2; Chen et al. 2020).

  Attributes:
    dim: width of the output (PPA: 300).
  """

  dim: int

  @nn.compact
  def __call__(self, vectors: jax.Array) -> jax.Array:
    """[..., H] -> [..., dim], float32."""
    def dense(width, axes, name):
      kernel_init = nn.with_logical_partitioning(
          nn.initializers.xavier_uniform(), axes)
      return nn.Dense(width, use_bias=False, kernel_init=kernel_init,
                      name=name)

    hidden = dense(vectors.shape[-1], ('embed', 'mlp'), 'inner')(vectors)
    return dense(self.dim, ('mlp', None), 'outer')(nn.relu(hidden))


def _fingerprints(token_ids: jax.Array) -> jax.Array:
  """Two 32-bit hashes of each row of `token_ids [B, T]`: uint32 [B, 2]."""
  ids = token_ids.astype(jnp.uint32)
  place = jnp.arange(ids.shape[1], dtype=jnp.uint32)[None, :]

  def hashed(multiplier, offset):
    mixed = (ids + jnp.uint32(1)) * jnp.uint32(multiplier)
    mixed ^= (place + jnp.uint32(offset)) * jnp.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    return jnp.sum(mixed ^ (mixed >> 16), axis=1, dtype=jnp.uint32)

  return jnp.stack([hashed(0x27D4EB2F, 1), hashed(0x165667B1, 77)], axis=1)


def same_rows(token_ids: jax.Array) -> jax.Array:
  """bool [B, B]: rows of `token_ids [B, T]` that are equal, by 64-bit hash."""
  prints = _fingerprints(token_ids)
  return jnp.all(prints[:, None] == prints[None, :], axis=-1)


def _interleave(first, second):
  """Both sides in one batch: rows 2b and 2b + 1 are the sides of pair b.

  Unlike an end-to-end concatenation it moves no row to another device.
  """
  return {key: jnp.stack([first[key], second[key]], axis=1).reshape(
      (-1,) + first[key].shape[1:]) for key in first if key in second}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceAlignment(base.Objective):
  """In-batch InfoNCE over the two sides of translation pairs.

  Sentence vectors are pooled, optionally projected, and L2-normalised. Each
  sentence must find its translation among those of all pairs of the global
  batch. Under gradient accumulation the negatives are those of the
  micro-batch: k micro-batches of B / k pairs are an easier task than one
  batch of B. A pair with a side without text has weight 0 and is nobody's
  negative. The loss is the mean over pairs (and directions).

  Metrics, per language of the sentence that asks: loss, accuracy (no other
  sentence is more similar than the translation), and tokens of both sides.

  Attributes:
    temperature: of the softmax over cosine similarities (PPA: 0.05).
    pooling: MEAN of the states of text tokens, or the FIRST state.
    direction: BOTH or FORWARD.
    duplicates: whether pairs that share a sentence, such as translations of
      one sentence into two languages, are each other's negatives.
    layer: None for the final states, else a layer (0 is the embeddings).
    projection_dim: None, or the width of a `ProjectionHead`.
    name_prefix: the objective's name.
  """

  temperature: float = 0.05
  pooling: Pooling = Pooling.MEAN
  direction: Direction = Direction.BOTH
  duplicates: Duplicates = Duplicates.EXCLUDE
  layer: int | None = None
  projection_dim: int | None = None
  name_prefix: str = 'align'

  def __post_init__(self):
    enums.coerce(self, 'pooling', Pooling)
    enums.coerce(self, 'direction', Direction)
    enums.coerce(self, 'duplicates', Duplicates)
    if not self.temperature > 0:
      raise errors.ConfigError('The temperature is out of range',
                               got=self.temperature,
                               expected='a number above 0')
    if self.projection_dim is not None and self.projection_dim < 1:
      raise errors.ConfigError('projection_dim is out of range',
                               got=self.projection_dim,
                               expected='a width of at least 1, or None')
    if self.layer is not None and self.layer < 0:
      raise errors.ConfigError('The layer is out of range', got=self.layer,
                               expected='0 (embeddings) to the number of '
                               'layers, or None for the final states')

  @property
  def name(self) -> str:
    return self.name_prefix

  def init_heads(self, model, rng: jax.Array) -> Any:
    """The projection head's parameters, if there is one.

    Raises:
      ConfigError: the model has fewer layers than `layer`.
    """
    if self.layer is not None and self.layer > model.config.num_layers:
      raise errors.ConfigError(
          'The layer of the sentence alignment does not exist',
          got=self.layer, expected=f'0 to {model.config.num_layers}',
          where=f'objective {self.name!r}')
    if self.projection_dim is None:
      return {}
    vectors = jnp.zeros((1, model.config.hidden_dim))
    return ProjectionHead(self.projection_dim).init(rng, vectors)['params']

  def _vectors(self, model, params, rows, context) -> jax.Array:
    """Unit vectors [2B, D] of interleaved rows."""
    states = inputs.encode(model, params, rows, context=context,
                           rng=context.rng, layer=self.layer)
    text = masking.is_text(rows, context.vocabulary)
    vectors = inputs.pool(states, text, self.pooling)
    if self.projection_dim is not None:
      vectors = cast(jax.Array, ProjectionHead(self.projection_dim).apply(
          {'params': params['heads'][self.name]}, vectors))
    return losses.l2_normalize(vectors)

  def _excluded(self, first, second) -> jax.Array | None:
    """Pairs [B, B] that aren't each other's negatives; symmetric."""
    if self.duplicates is Duplicates.NEGATIVE:
      return None
    return (same_rows(first[batch_lib.TOKEN_IDS])
            | same_rows(second[batch_lib.TOKEN_IDS]))

  def __call__(self, model, params, batch, context: base.Context
               ) -> base.ObjectiveOutput:
    first, second = (batch_lib.side(batch, prefix)
                     for prefix in ('', batch_lib.PAIRED))
    if not second:
      raise errors.ConfigError(
          'Sentence alignment needs the two sides of a pair as separate rows',
          got=f'a batch with {sorted(batch)}',
          expected=f'also {batch_lib.PAIRED}{batch_lib.TOKEN_IDS}',
          where=f'objective {self.name!r}',
          fix='use a stream with Layout.SIDES or Layout.ADJACENT')
    rows = _interleave(first, second)
    vectors = self._vectors(model, params, rows, context)
    vectors = vectors.reshape(-1, 2, vectors.shape[-1])  # [B, 2, D]
    text = masking.is_text(rows, context.vocabulary)
    valid = jnp.all(jnp.any(text, axis=1).reshape(-1, 2), axis=1)
    weights = valid.astype(jnp.float32)
    info_nce = functools.partial(
        losses.info_nce, temperature=self.temperature, weights=weights,
        excluded=self._excluded(first, second))
    results = [info_nce(vectors[:, 0], vectors[:, 1])]
    if self.direction is Direction.BOTH:
      results.append(info_nce(vectors[:, 1], vectors[:, 0]))
    loss = sum(result.loss for result in results) / len(results)
    return base.ObjectiveOutput(
        base.Sum(jnp.sum(loss), jnp.sum(weights)),
        self._metrics(rows, context, results, weights))

  def _metrics(self, rows, context, results, weights):
    vocabulary = context.vocabulary
    count = len(vocabulary.languages)
    asking = inputs.row_languages(rows, vocabulary).reshape(-1, 2)
    asking = asking[:, :len(results)].T  # [directions, B]
    weights = jnp.broadcast_to(weights[None, :], asking.shape)
    loss, correct = (jnp.stack(values) for values in zip(*results,
                                                         strict=True))
    return {
        f'{self.name}/loss': metrics.by_language(
            jax.lax.stop_gradient(loss), weights, asking, count),
        f'{self.name}/accuracy': metrics.by_language(
            correct, weights, asking, count),
        f'{self.name}/{metrics.TOKENS}': metrics.count_by_language(
            masking.is_present(rows, vocabulary),
            rows[batch_lib.LANGUAGE_IDS], count),
    }
