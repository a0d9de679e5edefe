"""Contrastive fine-tuning for search: a query finds its document."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import annotated_types
import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.objectives import (
  losses,
  model_calls,
  objective_base,
  objective_metrics,
  sequence_packing,
)
from xlflax.objectives.duplicate_detection import same_rows
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import class_registry, errors, validation


@class_registry.register('search_contrast')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchContrast(objective_base.Objective):
  """Multiple negatives ranking loss (Henderson et al. 2017, section 4.4).

  Rows come in groups: a query, its document, then hard negatives, as the
  format `search` reads them. The candidates of a query are all documents of
  the global batch; a document that equals its own, and the document of an
  equal query, are no negatives. The loss is the mean over queries.

  With `rows_at_once` the memory of the encoder is that of so many rows: each
  part of the batch is encoded, its vectors are kept, and its states are
  computed again when the gradient of the vectors is known. Loss and gradients
  are those of the whole batch (GradCache; Gao et al. 2021, section 3).

  With `packed` the encoder reads rows that texts share, and little padding:
  loss and gradients are those of the rows apart. A query is left out if one of
  its texts finds no room; `left_out` is the share of these.

  With `dimensions` it is the sum of the losses of vectors that are cut to
  each of these sizes (Matryoshka; Kusupati et al. 2022, equation 1).

  The run's sentence vectors are those that are trained here, at length 1.
  Metrics by language of the query: loss, accuracy and, if packed, left_out.

  Attributes:
    group: texts of a query, itself included.
    temperature: of the softmax over cosines.
    pooling: how states become a vector.
    dimensions: sizes of the vectors; (): the whole vector.
    prompts: what the stream puts before a `query` and a `document`; saved
      with the run.
    rows_at_once: rows that are encoded together, all devices' together, a
      divisor of the batch; None: all.
    packed: tokens that the encoder reads, as a share of the batch's, padding
      included; None: all, in rows of their own.
    name: the objective's name.
  """

  GOLD: ClassVar[Mapping[str, int]] = {batch_keys.LABELS: 1}
  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  group: Annotated[int, annotated_types.Ge(2)] = 2
  temperature: validation.PositiveFloat = 0.05
  pooling: Pooling = Pooling.MEAN_ALL
  dimensions: tuple[validation.Dimension, ...] = ()
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  rows_at_once: validation.PositiveInt | None = None
  packed: validation.PositiveFraction | None = None
  name: str = 'search'

  def check_stream(self, stream) -> None:
    super().check_stream(stream)
    if stream.batch_size % (self.rows_at_once or 1):
      raise errors.ConfigError(
        'A batch has no whole number of parts',
        got=f'rows_at_once={self.rows_at_once}, batch_size={stream.batch_size}',
        expected='a divisor of the batch size',
        where=f'objective {self.name!r}, stream {stream.name!r}',
      )
    if stream.group_size != self.group:
      raise errors.ConfigError(
        'The texts of a query would not be in one batch',
        got=f'group_size={stream.group_size}',
        expected=f'group={self.group}',
        where=f'objective {self.name!r}, stream {stream.name!r}',
        fix='set the macro GROUP, which finetune/search.gin gives to both',
      )

  @property
  def sentence(self) -> dict[str, Any]:
    """The definition of the vectors (`evaluation.sentence_encoding`)."""
    return {
      'pooling': self.pooling.value,
      'normalize': True,
      'centre': 'none',
      'prompts': dict(self.prompts),
    }

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    if context.micro_batches > 1:
      raise errors.ConfigError(
        'Micro-batches part the texts of a query',
        got=f'{context.micro_batches} micro-batches',
        expected='1',
        fix='set ROWS_AT_ONCE in place of the accumulation',
      )
    vectors, placed = self._vectors(model, params, batch, context)
    is_labeled = jnp.min(self._grouped(batch[batch_keys.LABELS]), axis=1) >= 0
    valid = is_labeled & jnp.all(placed, axis=1)
    values = self._values(vectors, batch, valid)
    weights = valid.astype(jnp.float32)
    languages = model_calls.row_languages(batch, context.vocabulary)[
      :: self.group
    ]
    of_all = languages, context.vocabulary
    metrics = objective_metrics.metrics_by_language(
      self.name, values, weights, *of_all
    )
    if self.packed is not None:
      left_out = {'left_out': 1.0 * ~valid}
      metrics |= objective_metrics.metrics_by_language(
        self.name, left_out, 1.0 * is_labeled, *of_all
      )
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(
        jnp.sum(values['loss'] * weights), jnp.sum(weights)
      ),
      metrics,
    )

  def _values(self, vectors, batch, valid) -> dict[str, jax.Array]:
    """Loss and accuracy [N] of groups of vectors [N, group, H]."""
    excluded = self._excluded(self._grouped(batch[batch_keys.TOKEN_IDS]), valid)
    losses_by_size = [
      self.ranked(vectors[..., :size], excluded)
      for size in self.dimensions or (vectors.shape[-1],)
    ]
    loss = jnp.sum(
      jnp.stack([token_loss.loss for token_loss in losses_by_size]), axis=0
    )
    return {'loss': loss, 'accuracy': losses_by_size[-1].correct}

  def ranked(
    self, vectors: jax.Array, excluded: jax.Array | None = None
  ) -> losses.TokenLoss:
    """The loss of each query.

    Args:
      vectors: [N, group, D], of any length.
      excluded: bool [N, N * (group - 1)], documents that a query does not
        see: the first of each group, then the second, and so on.
    """
    vectors = losses.l2_normalize(vectors)
    documents = jnp.swapaxes(vectors[:, 1:], 0, 1)
    scores = jnp.matmul(
      vectors[:, 0],
      documents.reshape(-1, vectors.shape[-1]).T,
      precision=jax.lax.Precision.HIGHEST,
    )
    scores = scores / self.temperature
    if excluded is not None:
      scores = jnp.where(excluded, MASKED_SCORE, scores)
    return losses.cross_entropy(scores, jnp.arange(len(vectors)))

  def _grouped(self, values: jax.Array) -> jax.Array:
    """[N * group, ...] -> [N, group, ...]."""
    return values.reshape(-1, self.group, *values.shape[1:])

  def _vectors(self, model, params, batch, context):
    """The pooled states [N, group, H], and which had room [N, group]."""
    params = model_calls.bind_language_params(
      model, params, batch, context.vocabulary
    )

    def encoded(part, rng):
      if self.packed is None:
        vectors = model_calls.sentence_vectors(
          model, params, part, context=context, rng=rng, pooling=self.pooling
        )
        return vectors, jnp.ones(len(vectors), bool)
      packed = sequence_packing.pack_sequences(
        part,
        context.vocabulary,
        share=self.packed,
        longest=model.config.max_length,
      )
      states = model_calls.encode_batch(
        model, params, packed.batch, context=context, rng=rng
      )
      vectors = packed.pool(states, self.pooling, context.vocabulary)
      return vectors, packed.placed

    size = len(batch[batch_keys.TOKEN_IDS])
    count = size // (self.rows_at_once or size)
    if count == 1:
      return jax.tree.map(self._grouped, encoded(batch, context.rng))
    parts = {  # part j has the rows j, j + count, …: some of each device
      key: jnp.swapaxes(x.reshape(-1, count, *x.shape[1:]), 0, 1)
      for key, x in batch.items()
    }
    packed_states = jax.lax.map(
      lambda one: jax.checkpoint(encoded)(*one),
      (parts, jax.random.split(context.rng, count)),
    )  # [count, N * group / count, …]
    return jax.tree.map(
      lambda x: self._grouped(
        jnp.swapaxes(x, 0, 1).reshape(size, *x.shape[2:])
      ),
      packed_states,
    )

  def _excluded(self, tokens: jax.Array, valid: jax.Array) -> jax.Array:
    """What no query sees, of groups [N, group, T]; see `ranked`."""
    size, is_diagonal = len(tokens), jnp.eye(len(tokens), dtype=bool)
    documents = jnp.swapaxes(tokens[:, 1:], 0, 1).reshape(-1, tokens.shape[-1])
    out = same_rows(documents)[:size] | jnp.tile(~valid, self.group - 1)[None]
    out = out.at[:, :size].set(out[:, :size] | same_rows(tokens[:, 0]))
    return out.at[:, :size].set(out[:, :size] & ~is_diagonal)


@class_registry.register('search_distillation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchDistillation(SearchContrast):
  """Texts and their translations get a teacher's vector of the text.

  Reimers and Gurevych (2020), equation 1: the squared difference to the
  teacher's vector, the mean over the texts of a group and over dimensions, as
  Sentence-Transformers' MSELoss; with `dimensions` the sum over the sizes. The
  batch's `vectors` [B, D] are the teacher's (`TaughtRows`), which is not run.

  The run's sentence vectors are the pooled states, at their own length.

  Attributes:
    contrast: weight of the contrastive loss, which is added.
  """

  GOLD = {**SearchContrast.GOLD, batch_keys.VECTORS: 2}
  contrast: validation.NonNegativeFloat = 0.0

  @property
  def sentence(self) -> dict[str, Any]:
    return super().sentence | {'normalize': False}

  def _values(self, vectors, batch, valid):
    metrics = super()._values(vectors, batch, valid)
    gold = jax.lax.bitcast_convert_type(batch[batch_keys.VECTORS], jnp.float32)
    if gold.shape[-1] != vectors.shape[-1]:
      raise errors.ConfigError(
        "A student's vectors have another size than its teacher's",
        got=f'{vectors.shape[-1]} dimensions',
        expected=gold.shape[-1],
        where=f'objective {self.name!r}',
      )
    squares = jnp.square(vectors - self._grouped(gold))
    sizes = self.dimensions or (gold.shape[-1],)
    loss = [jnp.mean(squares[..., :size], axis=(1, 2)) for size in sizes]
    return metrics | {'loss': sum(loss) + self.contrast * metrics['loss']}
