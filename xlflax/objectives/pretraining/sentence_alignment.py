"""Sentence alignment: a translation is nearer than the other sentences."""

import dataclasses
import enum
import functools
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import (
  losses,
  model_calls,
  objective_base,
  objective_metrics,
  sentence_pairs,
)
from xlflax.objectives.corruption import masking
from xlflax.objectives.duplicate_detection import fingerprint_rows, same_rows
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining import momentum_contrast
from xlflax.objectives.pretraining.momentum_contrast import MomentumQueue
from xlflax.objectives.pretraining_heads import ProjectionHead
from xlflax.utils import class_registry, errors, validation


class Direction(enum.Enum):
  """Which side of a pair is the query and which one the key."""

  BOTH = 'both'  # the mean of the two
  FORWARD = 'forward'  # the first side finds the second


class Duplicates(enum.Enum):
  """Whether pairs that share a sentence are negatives of each other."""

  EXCLUDE = 'exclude'  # no negative
  NEGATIVE = 'negative'  # a negative like any other


class Normalize(enum.Enum):
  """What has length 1."""

  VECTORS = 'vectors'  # those that are compared, so that cosines are (MoCo)
  STATES = 'states'  # the pooled states before the projection (PPA)


@class_registry.register('sentence_alignment')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceAlignment(objective_base.Objective):
  """InfoNCE over the two sides of translation pairs.

  Sentence vectors are pooled, optionally projected, and L2-normalised. (PPA
  also normalises before its projection; as that has no biases, the unit
  vector after it is the same.) Each sentence must find its translation among
  others. A pair with a side without text has weight 0 and is not a
  negative. The loss is the mean over pairs (and directions).

  * In-batch contrast (SimCLR; `queue` None): the others are the sentences of
    all pairs of the global batch. Under gradient accumulation they are those
    of the micro-batch: k micro-batches of B / k pairs are an easier task than
    one batch of B.
  * Momentum contrast (MoCo, PPA): the first side is the query; the second
    one goes through the key encoder, with the same dropout rate and without
    gradient. The others are the keys in the queue when the step begins,
    without the batch's own; then the batch's keys replace the oldest ones. k
    micro-batches are one batch. A stream with `PairOptions` order 'random' lets
    both encoders see all languages. See `momentum_contrast` for the state.

  Metrics, per language of the query: loss, accuracy (no other
  sentence is more similar than the translation), and tokens of both sides.

  Attributes:
    temperature: of the softmax over cosine similarities (PPA: 0.05).
    pooling: MEAN of the states of text tokens, or the FIRST state.
    direction: BOTH or FORWARD.
    duplicates: whether pairs that share a sentence, such as translations of
      one sentence into two languages, are each other's negatives (MoCo and
      PPA: NEGATIVE).
    layer: None for the final states, else a layer (0 is the embeddings).
    projection_dim: None, or the width of a `ProjectionHead`.
    normalize: what is scaled to length 1: the VECTORS that are compared, or
      the pooled STATES that a projection reads (PPA, equations 2 and 3).
    queue: None for in-batch contrast, else that of momentum contrast, which
      has direction FORWARD only.
    name: the objective's name.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SIDES

  temperature: validation.PositiveFloat = 0.05
  pooling: Pooling = Pooling.MEAN
  direction: Direction = Direction.BOTH
  duplicates: Duplicates = Duplicates.EXCLUDE
  layer: validation.NonNegativeInt | None = None
  projection_dim: validation.Dimension | None = None
  normalize: Normalize = Normalize.VECTORS
  queue: MomentumQueue | None = None
  name: str = 'align'

  def __post_init__(self):
    if self.queue is not None and self.direction is not Direction.FORWARD:
      raise errors.ConfigError(
        'Momentum contrast has one direction: the first side asks',
        got=f'direction={self.direction.value!r} and a queue',
        expected="'forward'",
        where=f'objective {self.name!r}',
        fix="set direction to 'forward', and the stream's "
        "PairOptions.order to 'random' so that both sides ask",
      )

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Returns the projection head's parameters, if it has one; `rng` is a key.

    Raises:
      ConfigError: the model has fewer layers than `layer`.
    """
    if self.layer is not None and self.layer > model.config.num_layers:
      raise errors.ConfigError(
        'The layer of the sentence alignment does not exist',
        got=self.layer,
        expected=f'0 to {model.config.num_layers}',
        where=f'objective {self.name!r}',
      )
    if self.projection_dim is None:
      return {}
    vectors = jnp.zeros((1, model.config.hidden_dim))
    return ProjectionHead(self.projection_dim).init(rng, vectors)['params']

  def init_state(self, model, params, vocabulary) -> Any:
    """The key encoder and the queue of momentum contrast."""
    if self.queue is None:
      return ()
    return momentum_contrast.initial_state(
      self.queue,
      params,
      name=self.name,
      dim=self.projection_dim or model.config.hidden_dim,
      with_prints=self.duplicates is Duplicates.EXCLUDE,
    )

  def start_step(self, params, state) -> Any:
    """The momentum update."""
    if self.queue is None:
      return state
    return momentum_contrast.start_step(
      self.queue, params, state, name=self.name
    )

  def _vectors(self, model, params, rows, context, rng=None) -> jax.Array:
    """Returns unit vectors [N, D] of N rows (of one language with sharing)."""
    params = model_calls.bind_language_params(
      model, params, rows, context.vocabulary
    )
    states = model_calls.encode_batch(
      model,
      params,
      rows,
      context=context,
      rng=context.rng if rng is None else rng,
      layer=self.layer,
    )
    text = masking.is_text(rows, context.vocabulary)
    if self.pooling is Pooling.MEAN_ALL:
      text = masking.is_present(rows, context.vocabulary)
    vectors = model_calls.pool_hidden_states(states, text, self.pooling)
    if self.normalize is Normalize.STATES:
      vectors = losses.l2_normalize(vectors)
    if self.projection_dim is not None:
      vectors = cast(
        jax.Array,
        ProjectionHead(self.projection_dim).apply(
          {'params': params['heads'][self.name]}, vectors
        ),
      )
    if self.normalize is Normalize.STATES:
      return vectors
    return losses.l2_normalize(vectors)

  def _excluded(self, first, second) -> jax.Array | None:
    """Pairs [B, B] that are not each other's negatives; symmetric."""
    if self.duplicates is Duplicates.NEGATIVE:
      return None
    return same_rows(first[batch_keys.TOKEN_IDS]) | same_rows(
      second[batch_keys.TOKEN_IDS]
    )

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    first, second = sentence_pairs.split_sides(batch, objective=self.name)
    rows = sentence_pairs.interleave_sides(first, second)
    text = masking.is_text(rows, context.vocabulary)
    valid = jnp.all(jnp.any(text, axis=1).reshape(-1, 2), axis=1)
    weights = valid.astype(jnp.float32)
    state = context.state
    if self.queue is None:
      results = self._in_batch(model, params, first, second, context, weights)
    else:
      results, state = self._with_queue(
        model, params, first, second, context, valid
      )
    loss = sum(result.loss for result in results) / len(results)
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(jnp.sum(loss), jnp.sum(weights)),
      self._metrics(rows, context, results, weights),
      state,
    )

  def _in_batch(self, model, params, first, second, context, weights):
    """Loss and correctness [B] of each direction."""
    vectors = self._pair_vectors(model, params, first, second, context)
    info_nce = functools.partial(
      losses.info_nce,
      temperature=self.temperature,
      weights=weights,
      excluded=self._excluded(first, second),
    )
    results = [info_nce(vectors[:, 0], vectors[:, 1])]
    if self.direction is Direction.BOTH:
      results.append(info_nce(vectors[:, 1], vectors[:, 0]))
    return results

  def _pair_vectors(self, model, params, first, second, context) -> jax.Array:
    """Unit vectors [B, 2, D]; side by side where languages have own parts."""
    if parameter_sharing.plan_of(model) is None:
      vectors = self._vectors(
        model, params, sentence_pairs.interleave_sides(first, second), context
      )
      return vectors.reshape(-1, 2, vectors.shape[-1])
    rngs = jax.random.split(context.rng)
    return jnp.stack(
      [
        self._vectors(model, params, side, context, rng)
        for side, rng in zip((first, second), rngs, strict=True)
      ],
      axis=1,
    )

  def _with_queue(self, model, params, first, second, context, valid):
    """Loss and correctness [B] of one direction, and the new state."""
    assert self.queue is not None
    self.queue.check_batch(
      valid.shape[0] * context.micro_batches, f'objective {self.name!r}'
    )
    query_rng, key_rng = jax.random.split(context.rng)
    queries = self._vectors(model, params, first, context, query_rng)
    state = jax.lax.stop_gradient(context.state)
    new = {
      'keys': jax.lax.stop_gradient(
        self._vectors(model, state['key_encoder'], second, context, key_rng)
      )
    }
    excluded = None
    if self.duplicates is Duplicates.EXCLUDE:
      new['prints'] = jnp.concatenate(
        [
          fingerprint_rows(side[batch_keys.TOKEN_IDS])
          for side in (first, second)
        ],
        axis=1,
      )
      excluded = momentum_contrast.shared_sentences(
        new['prints'], state['negatives']['prints']
      )
    result = momentum_contrast.info_nce(
      queries,
      new['keys'],
      state['negatives']['keys'],
      temperature=self.temperature,
      weights=valid.astype(jnp.float32),
      excluded=excluded,
    )
    return [result], momentum_contrast.enqueue(state, new, valid, context)

  def _metrics(self, rows, context, results, weights):
    vocabulary = context.vocabulary
    asking = model_calls.row_languages(rows, vocabulary).reshape(-1, 2)
    asking = asking[:, : len(results)].T  # [directions, B]
    weights = jnp.broadcast_to(weights[None, :], asking.shape)
    loss, correct = (jnp.stack(values) for values in zip(*results, strict=True))
    return objective_metrics.metrics_by_language(
      self.name,
      {'loss': loss, 'accuracy': correct},
      weights,
      asking,
      vocabulary,
    ) | objective_metrics.token_counts(self.name, vocabulary, rows)
