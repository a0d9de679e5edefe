"""Contrastive sentence alignment objective for translation pairs."""

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
from xlflax.objectives.duplicate_detection import (
  find_equal_rows,
  fingerprint_rows,
)
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining import momentum_contrast
from xlflax.objectives.pretraining.momentum_contrast import MoCoQueue
from xlflax.objectives.pretraining_heads import ProjectionHead
from xlflax.utils import class_registry, errors, validation


class Direction(enum.Enum):
  """Assignment of a pair's two sentences to query and key.

  Attributes:
    BOTH: Each sentence of a pair serves as the query once. The loss is the mean
      over both directions.
    FORWARD: The first sentence is the query, and the second sentence is its
      key.
  """

  BOTH = 'both'
  FORWARD = 'forward'


class Duplicates(enum.Enum):
  """Treatment of pairs that share a sentence.

  Attributes:
    EXCLUDE: Pairs that share a sentence are not negatives of each other.
    NEGATIVE: Pairs that share a sentence are negatives of each other, like any
      other pairs.
  """

  EXCLUDE = 'exclude'
  NEGATIVE = 'negative'


class Normalize(enum.Enum):
  """Stage at which vectors are scaled to length 1.

  Attributes:
    VECTORS: The final vectors are scaled to length 1, so that their dot
      products are cosine similarities (MoCo).
    STATES: The pooled hidden states are scaled to length 1 before the
      projection (PPA).
  """

  VECTORS = 'vectors'
  STATES = 'states'


@class_registry.register('sentence_alignment')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceAlignment(objective_base.Objective):
  """InfoNCE loss over the two sentences of translation pairs.

  With q_i and k_i the vectors of the two sentences of pair i and N_i the set of
  negatives,

    loss_i = -log exp(q_i . k_i / t)
                  / (exp(q_i . k_i / t) + sum_{n in N_i} exp(q_i . n / t)).

  The vectors are pooled hidden states, which are optionally projected, and
  L2-normalized. (PPA also normalizes before its projection. As the projection
  has no biases, the unit vector after it is the same.) A pair with an empty
  sentence has weight 0 and is not a negative. The loss is the mean over pairs
  (and directions).

  * In-batch contrast (SimCLR; `queue` is None): the negatives are the sentences
    of all other pairs in the global batch. With gradient accumulation, they are
    the sentences of the same micro-batch. k micro-batches of B / k pairs are
    therefore an easier task than one batch of B pairs.
  * Momentum contrast (MoCo, PPA): the first sentence is the query. The second
    sentence is encoded by the key encoder, with the same dropout rate and
    without gradient. The negatives are the keys in the queue at the start of
    the step, which do not include the batch's own keys. Afterwards, the batch's
    keys replace the oldest ones. k micro-batches are equivalent to one batch.
    With `PairOptions.order` 'random', both encoders read all languages. See
    `momentum_contrast` for the state.

  Metrics by language of the query: loss, accuracy (no other sentence is more
  similar than the translation), and tokens of both sentences.

  Attributes:
    temperature: Temperature t of the softmax over cosine similarities (PPA:
      0.05).
    pooling: Method of pooling hidden states to a sentence vector.
    direction: Sentence of each pair that serves as the query: FORWARD for the
      first sentence, or BOTH for each sentence in turn.
    duplicates: Treatment of pairs that share a sentence, such as translations
      of one sentence into two languages: EXCLUDE them as negatives of each
      other, or keep them (NEGATIVE; MoCo and PPA).
    layer: Index of the layer whose hidden states are pooled, where 0 is the
      embedding layer. If None, the final hidden states are pooled.
    projection_dim: Output width of the projection head (`ProjectionHead`). If
      None, vectors are not projected.
    normalize: Stage at which vectors are scaled to length 1: the final VECTORS,
      or the pooled STATES before the projection (PPA, equations 2 and 3).
    queue: Settings for momentum contrast (MoCo), which requires `direction` to
      be FORWARD. If None, in-batch contrast is used.
    name: Name of the objective, which prefixes its metrics.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.DUAL

  temperature: validation.PositiveFloat = 0.05
  pooling: Pooling = Pooling.MEAN
  direction: Direction = Direction.BOTH
  duplicates: Duplicates = Duplicates.EXCLUDE
  layer: validation.NonNegativeInt | None = None
  projection_dim: validation.Dimension | None = None
  normalize: Normalize = Normalize.VECTORS
  queue: MoCoQueue | None = None
  name: str = 'align'

  def __post_init__(self):
    if self.queue is not None and self.direction is not Direction.FORWARD:
      raise errors.ConfigError(
        f'Objective {self.name!r} has a queue for momentum contrast, which '
        "requires direction='forward'",
        got=repr(self.direction.value),
        fix="Set direction='forward'. To use both sentences as queries, set "
        "`order` in the PairOptions of the dataset to 'random', such as "
        "sides/dataset_config.PairOptions.order = 'random'.",
      )

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Initializes the projection head, if `projection_dim` is set.

    Args:
      model: Linen module of the model.
      rng: Random key.

    Raises:
      ConfigError: If `layer` is larger than the model's number of layers.
    """
    if self.layer is not None and self.layer > model.config.num_layers:
      raise errors.ConfigError(
        f'The `layer` of objective {self.name!r} must be between 0 and '
        f'{model.config.num_layers}, the number of layers of the model',
        got=self.layer,
      )
    if self.projection_dim is None:
      return {}
    vectors = jnp.zeros((1, model.config.hidden_dim))
    return ProjectionHead(self.projection_dim).init(rng, vectors)['params']

  def init_state(self, model, params, vocabulary) -> Any:
    """Returns the key encoder and the queue for momentum contrast."""
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
    """Applies the momentum update to the key encoder."""
    if self.queue is None:
      return state
    return momentum_contrast.start_step(
      self.queue, params, state, name=self.name
    )

  def _vectors(self, model, params, rows, context, rng=None) -> jax.Array:
    """Encodes N sequences to normalized vectors [N, D].

    If parameters are separate for each language (a sharing plan), all sequences
    must have the same language.
    """
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
    """Returns the pairs that are not negatives of each other, bool [B, B].

    The array is symmetric. It is None if no pairs are excluded.
    """
    if self.duplicates is Duplicates.NEGATIVE:
      return None
    equal_first = find_equal_rows(first[batch_keys.TOKEN_IDS])
    equal_second = find_equal_rows(second[batch_keys.TOKEN_IDS])
    return equal_first | equal_second

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the InfoNCE loss of the pairs of a batch."""
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
    """Returns loss and correctness [B] of each direction."""
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
    """Encodes both sentences of the pairs to vectors [B, 2, D].

    With a sharing plan, which selects parameters by language, the first and the
    second sentences are encoded separately.
    """
    if parameter_sharing.get_sharing_plan(model) is None:
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
    """Returns the forward loss and correctness [B], and the new state."""
    assert self.queue is not None
    self.queue.check_batch(
      valid.shape[0] * context.micro_batches, f'objective {self.name!r}'
    )
    query_rng, key_rng = jax.random.split(context.rng)
    queries = self._vectors(model, params, first, context, query_rng)
    state = jax.lax.stop_gradient(context.state)
    new_entries = {
      'keys': jax.lax.stop_gradient(
        self._vectors(model, state['key_encoder'], second, context, key_rng)
      )
    }
    excluded = None
    if self.duplicates is Duplicates.EXCLUDE:
      new_entries['prints'] = jnp.concatenate(
        [
          fingerprint_rows(side[batch_keys.TOKEN_IDS])
          for side in (first, second)
        ],
        axis=1,
      )
      excluded = momentum_contrast.shared_sentences(
        new_entries['prints'], state['negatives']['prints']
      )
    result = momentum_contrast.info_nce(
      queries,
      new_entries['keys'],
      state['negatives']['keys'],
      temperature=self.temperature,
      weights=valid.astype(jnp.float32),
      excluded=excluded,
    )
    state = momentum_contrast.enqueue(state, new_entries, valid, context)
    return [result], state

  def _metrics(self, rows, context, results, weights):
    """Returns the metrics by language of the query."""
    vocabulary = context.vocabulary
    languages = model_calls.row_languages(rows, vocabulary).reshape(-1, 2)
    query_languages = languages[:, : len(results)].T  # [directions, B]
    weights = jnp.broadcast_to(weights[None, :], query_languages.shape)
    loss, correct = (jnp.stack(values) for values in zip(*results, strict=True))
    return objective_metrics.metrics_by_language(
      self.name,
      {'loss': loss, 'accuracy': correct},
      weights,
      query_languages,
      vocabulary,
    ) | objective_metrics.token_counts(self.name, vocabulary, rows)
