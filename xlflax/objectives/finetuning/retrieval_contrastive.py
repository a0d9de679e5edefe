"""Contrastive fine-tuning objectives for document retrieval."""

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
  on_device_packing,
)
from xlflax.objectives.duplicate_detection import find_equal_rows
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import class_registry, errors, validation


@class_registry.register('retrieval_contrastive')
@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalContrastive(objective_base.Objective):
  """Multiple negatives ranking loss (Henderson et al. 2017, section 4.4).

  With q_i the unit vector of query i, d_i the unit vector of its document and
  C_i the set of its candidates,

    loss_i = -log exp(q_i . d_i / t) / sum_{d in C_i} exp(q_i . d / t).

  Sequences come in groups of a query, its document, and hard negatives, as read
  by the format `search`. The candidates of a query are all documents of the
  global batch. A document that equals the query's own document, and the
  document of an equal query, are excluded. The loss is the mean over queries.

  With `mini_batch_size`, only that number of sequences is encoded at a time.
  The vectors are kept, and the hidden states are recomputed when the gradient
  of the vectors is available. Loss and gradients are the same as for the
  complete batch (GradCache; Gao et al. 2021, section 3).

  With `packed`, several texts share a sequence, which reduces padding. Loss and
  gradients are the same as without packing. A query does not contribute if one
  of its texts does not fit into the packed sequences. The metric `left_out` is
  the fraction of such queries.

  With `matryoshka_dims`, the loss is the sum of the losses of vectors that are
  truncated to each of these sizes (Matryoshka; Kusupati et al. 2022, equation
  1).

  The run's sentence vectors are the vectors trained by this objective, scaled
  to length 1. Metrics by language of the query: loss, accuracy and, if packed,
  left_out.

  Attributes:
    group_size: Number of texts in each group: the query, its document and the
      hard negatives.
    temperature: Temperature t of the softmax over cosine similarities.
    pooling: Method of pooling hidden states to a sentence vector.
    matryoshka_dims: Widths to which the vectors are truncated. If empty, only
      the complete vectors are trained.
    prompts: Mapping from `query` and `document` to the prefix that the dataset
      adds to texts of this type. The prefixes are saved with the run.
    mini_batch_size: Number of sequences to encode at a time, summed over all
      devices. It must divide the batch size. If None, the complete batch is
      encoded at once.
    packed: Size of the packed sequences, relative to the size of the batch.
      Both sizes are numbers of tokens, including padding. If None, texts are
      not packed.
    name: Name of the objective, which prefixes its metrics.
  """

  GOLD: ClassVar[Mapping[str, int]] = {batch_keys.LABELS: 1}
  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  group_size: Annotated[int, annotated_types.Ge(2)] = 2
  temperature: validation.PositiveFloat = 0.05
  pooling: Pooling = Pooling.MEAN_ALL
  matryoshka_dims: tuple[validation.Dimension, ...] = ()
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  mini_batch_size: validation.PositiveInt | None = None
  packed: validation.PositiveFraction | None = None
  name: str = 'search'

  def check_dataset(self, dataset) -> None:
    """Checks the dataset's arrays, its batch size and its group size."""
    super().check_dataset(dataset)
    if dataset.batch_size % (self.mini_batch_size or 1):
      raise errors.ConfigError(
        f'The `mini_batch_size` of objective {self.name!r} must divide the '
        f'batch size of dataset {dataset.name!r}, which is '
        f'{dataset.batch_size}',
        got=self.mini_batch_size,
        fix='Set the macro ROWS_AT_ONCE to a divisor of the batch size.',
      )
    if dataset.group_size != self.group_size:
      raise errors.ConfigError(
        f'The `group_size` of dataset {dataset.name!r} must equal the '
        f'`group_size` of objective {self.name!r}',
        got=dataset.group_size,
        expected=self.group_size,
        fix='Set the macro GROUP, which finetune/search.gin binds to both.',
      )

  @property
  def sentence(self) -> dict[str, Any]:
    """Sentence-vector settings (see `evaluation.sentence_embedding`)."""
    return {
      'pooling': self.pooling.value,
      'normalize': True,
      'centering': 'none',
      'prompts': dict(self.prompts),
    }

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the mean loss over the queries of a batch."""
    if context.micro_batches > 1:
      raise errors.ConfigError(
        f'Objective {self.name!r} does not support gradient accumulation, but '
        f'the batch is split into {context.micro_batches} micro-batches',
        fix='Set the macro ROWS_AT_ONCE instead of '
        'Trainer.gradient_accumulation_steps.',
      )
    vectors, placed = self._vectors(model, params, batch, context)
    is_labeled = jnp.min(self._grouped(batch[batch_keys.LABELS]), axis=1) >= 0
    valid = is_labeled & jnp.all(placed, axis=1)
    values = self._values(vectors, batch, valid)
    weights = valid.astype(jnp.float32)
    languages = model_calls.row_languages(batch, context.vocabulary)
    query_languages = languages[:: self.group_size]
    metrics = objective_metrics.metrics_by_language(
      self.name, values, weights, query_languages, context.vocabulary
    )
    if self.packed is not None:
      metrics |= objective_metrics.metrics_by_language(
        self.name,
        {'left_out': 1.0 * ~valid},
        1.0 * is_labeled,
        query_languages,
        context.vocabulary,
      )
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(
        jnp.sum(values['loss'] * weights), jnp.sum(weights)
      ),
      metrics,
    )

  def _values(self, vectors, batch, valid) -> dict[str, jax.Array]:
    """Returns loss and accuracy [N] for groups of vectors [N, group, H]."""
    excluded = self._excluded(self._grouped(batch[batch_keys.TOKEN_IDS]), valid)
    losses_by_size = [
      self.ranking_loss(vectors[..., :size], excluded)
      for size in self.matryoshka_dims or (vectors.shape[-1],)
    ]
    loss = jnp.sum(
      jnp.stack([token_loss.loss for token_loss in losses_by_size]), axis=0
    )
    return {'loss': loss, 'accuracy': losses_by_size[-1].correct}

  def ranking_loss(
    self, vectors: jax.Array, excluded: jax.Array | None = None
  ) -> losses.TokenLoss:
    """Computes the ranking loss of each query.

    Args:
      vectors: Sentence vectors of any norm, of shape [N, group, D].
      excluded: Boolean array of shape [N, N * (group - 1)], True for documents
        that are not candidates of a query. The columns contain the first
        documents of all groups, then the second documents, and so on. If None,
        all documents are candidates.

    Returns:
      Loss and correctness, float32 arrays of shape [N].
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
    """Reshapes [N * group, ...] to [N, group, ...]."""
    return values.reshape(-1, self.group_size, *values.shape[1:])

  def _vectors(self, model, params, batch, context):
    """Encodes the texts of a batch.

    Returns:
      The pooled hidden states [N, group, H], and a boolean array [N, group],
      True for texts that were packed.
    """
    params = model_calls.bind_language_params(
      model, params, batch, context.vocabulary
    )

    def encode(chunk, rng):
      if self.packed is None:
        vectors = model_calls.sentence_vectors(
          model, params, chunk, context=context, rng=rng, pooling=self.pooling
        )
        return vectors, jnp.ones(len(vectors), bool)
      packed = on_device_packing.pack_sequences(
        chunk,
        context.vocabulary,
        share=self.packed,
        longest=model.config.max_position_embeddings,
      )
      states = model_calls.encode_batch(
        model, params, packed.batch, context=context, rng=rng
      )
      vectors = packed.pool(states, self.pooling, context.vocabulary)
      return vectors, packed.placed

    size = len(batch[batch_keys.TOKEN_IDS])
    count = size // (self.mini_batch_size or size)
    if count == 1:
      return jax.tree.map(self._grouped, encode(batch, context.rng))

    # Chunk j contains the sequences j, j + count, …, and thereby sequences of
    # each device.
    chunks = {
      key: jnp.swapaxes(x.reshape(-1, count, *x.shape[1:]), 0, 1)
      for key, x in batch.items()
    }
    encoded_chunks = jax.lax.map(
      lambda arguments: jax.checkpoint(encode)(*arguments),
      (chunks, jax.random.split(context.rng, count)),
    )  # [count, N * group / count, …]

    def merge_chunks(x):
      return self._grouped(jnp.swapaxes(x, 0, 1).reshape(size, *x.shape[2:]))

    return jax.tree.map(merge_chunks, encoded_chunks)

  def _excluded(self, tokens: jax.Array, valid: jax.Array) -> jax.Array:
    """Returns the argument `excluded` of `ranking_loss`.

    Args:
      tokens: Token ids of the groups, [N, group, T].
      valid: Boolean array of shape [N], True for groups that contribute to the
        loss.
    """
    size = len(tokens)
    is_diagonal = jnp.eye(size, dtype=bool)
    documents = jnp.swapaxes(tokens[:, 1:], 0, 1).reshape(-1, tokens.shape[-1])
    equal_documents = find_equal_rows(documents)[:size]
    excluded = equal_documents | jnp.tile(~valid, self.group_size - 1)[None]
    # The first `size` columns are the documents that belong to the queries.
    own_documents = excluded[:, :size] | find_equal_rows(tokens[:, 0])
    return excluded.at[:, :size].set(own_documents & ~is_diagonal)


@class_registry.register('retrieval_distillation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalDistillation(RetrievalContrastive):
  """Distillation of a teacher's vectors for texts and their translations.

  The loss is equation 1 of Reimers and Gurevych (2020): the squared difference
  to the teacher's vector, averaged over the texts of a group and over
  dimensions, as in MSELoss of Sentence-Transformers. With `matryoshka_dims`,
  the loss is the sum over the sizes. The batch's `vectors` [B, D] contain the
  teacher's vectors (`DistillationFeaturizer`). The teacher itself is not run
  during training.

  The run's sentence vectors are the pooled hidden states, which are not scaled.

  Attributes:
    contrastive_weight: Weight of the contrastive loss, which is added to the
      distillation loss.
  """

  GOLD = {**RetrievalContrastive.GOLD, batch_keys.VECTORS: 2}
  contrastive_weight: validation.NonNegativeFloat = 0.0

  @property
  def sentence(self) -> dict[str, Any]:
    """Sentence-vector settings (see `evaluation.sentence_embedding`)."""
    return super().sentence | {'normalize': False}

  def _values(self, vectors, batch, valid):
    """Returns loss and accuracy [N] for groups of vectors [N, group, H]."""
    metrics = super()._values(vectors, batch, valid)
    gold = jax.lax.bitcast_convert_type(batch[batch_keys.VECTORS], jnp.float32)
    if gold.shape[-1] != vectors.shape[-1]:
      raise errors.ConfigError(
        f'Objective {self.name!r} requires that the vectors of the student and '
        'the teacher have the same number of dimensions, but found '
        f'{vectors.shape[-1]} and {gold.shape[-1]} dimensions'
      )
    squares = jnp.square(vectors - self._grouped(gold))
    sizes = self.matryoshka_dims or (gold.shape[-1],)
    losses_by_size = [
      jnp.mean(squares[..., :size], axis=(1, 2)) for size in sizes
    ]
    loss = sum(losses_by_size) + self.contrastive_weight * metrics['loss']
    return metrics | {'loss': loss}
