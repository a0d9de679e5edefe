"""Reranking objective, which scores documents together with their query."""

import dataclasses
import enum
from typing import Annotated

import annotated_types
import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.objectives import (
  losses,
  model_calls,
  objective_base,
  objective_metrics,
)
from xlflax.objectives.finetuning import sequence_regression
from xlflax.utils import class_registry, errors


class RerankingLoss(enum.StrEnum):
  """Loss function for the scores of a query's documents.

  Attributes:
    LISTWISE: Cross-entropy of the softmax over the scores of the documents.
    MARGIN_MSE: Mean squared error of the margins between the positive document
      and each negative (Hofstätter et al. 2020).
  """

  LISTWISE = 'listwise'
  MARGIN_MSE = 'margin_mse'


@class_registry.register('reranking')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranking(sequence_regression.SequenceRegression):
  """Cross-encoder that scores pairs of a query and a document.

  The query and the document are in one sequence, and a classification head with
  one output computes the score s of the document (Nogueira and Cho 2019). The
  sequences of a query are consecutive: first its positive document (index 0),
  then its negatives, as read by the format `reranking`. With the scores t of a
  teacher in `labels`, the loss of a group of G documents is

    LISTWISE:   -log exp(s_0) / sum_i exp(s_i)
    MARGIN_MSE: mean_{i > 0} ((s_0 - s_i) - (t_0 - t_i))^2

  LISTWISE does not read the values of `labels`. MARGIN_MSE is equation 1 of
  Hofstätter et al. (2020), "Improving Efficient Neural Ranking Models with
  Cross-Architecture Knowledge Distillation", and `MarginMSELoss` in
  Sentence-Transformers. The loss of a batch is the mean over its groups. Groups
  with a pair that has no label do not contribute. Metrics by language of the
  query: loss, and accuracy, the fraction of groups in which the positive
  document has the highest score.

  Attributes:
    group_size: Number G of documents in each group: the positive document and
      its negatives.
    loss: Loss of each group of documents, LISTWISE or MARGIN_MSE.
    name: Name of the objective, which prefixes its metrics and identifies its
      head. With the default name, the head is exported to Hugging Face as a
      sequence-classification head with one label.
  """

  group_size: Annotated[int, annotated_types.Ge(2)] = 2
  loss: RerankingLoss = RerankingLoss.LISTWISE
  name: str = 'sequence_classification'

  def check_dataset(self, dataset) -> None:
    """Checks that the dataset and the objective have the same `group_size`."""
    super().check_dataset(dataset)
    if dataset.group_size != self.group_size:
      raise errors.ConfigError(
        f'The `group_size` of dataset {dataset.name!r} must equal the '
        f'`group_size` of objective {self.name!r}',
        got=dataset.group_size,
        expected=self.group_size,
        fix='Set the macro DOCUMENTS, which finetune/reranking.gin binds to '
        'both.',
      )

  @property
  def rows_together(self) -> int:
    """Number of documents per query."""
    return self.group_size

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the mean loss over the groups of a batch."""
    rng = context.rng if context.train else None
    logits = self._logits(model, params, batch, context.vocabulary, rng)
    scores = self._grouped(logits[:, 0].astype(jnp.float32))
    targets = self._grouped(
      jax.lax.bitcast_convert_type(batch[batch_keys.LABELS], jnp.float32)
    )
    # The label of padding sequences is not a number.
    is_labeled = jnp.all(jnp.isfinite(targets), axis=1)
    values = self.group_losses(
      scores, jnp.where(is_labeled[:, None], targets, 0.0)
    )
    weights = is_labeled.astype(jnp.float32)
    languages = model_calls.row_languages(batch, context.vocabulary)
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(
        jnp.sum(values.loss * weights), jnp.sum(weights)
      ),
      objective_metrics.metrics_by_language(
        self.name,
        {'loss': values.loss, 'accuracy': values.correct},
        weights,
        self._grouped(languages)[:, 0],
        context.vocabulary,
      ),
    )

  def group_losses(
    self, scores: jax.Array, targets: jax.Array
  ) -> losses.TokenLoss:
    """Computes the loss of each group of documents.

    Args:
      scores: Scores of the model, float32 [N, G]. The first document of each
        group is the positive one.
      targets: Scores of a teacher, float32 [N, G]. LISTWISE ignores them.

    Returns:
      Loss and correctness (the score of the positive document is higher than
      all others), float32 arrays of shape [N].
    """
    positives = jnp.zeros(len(scores), jnp.int32)
    # Unlike for classes, a tie is not correct: the order would be arbitrary.
    is_first = jnp.all(scores[:, :1] > scores[:, 1:], axis=1)
    values = losses.cross_entropy(scores, positives)._replace(
      correct=is_first.astype(jnp.float32)
    )
    if self.loss is RerankingLoss.LISTWISE:
      return values
    margins = scores[:, :1] - scores[:, 1:]
    teacher_margins = targets[:, :1] - targets[:, 1:]
    squared_errors = jnp.square(margins - teacher_margins)
    return values._replace(loss=jnp.mean(squared_errors, axis=1))

  def _grouped(self, values: jax.Array) -> jax.Array:
    """Reshapes values of shape [N * G] to [N, G].

    Raises:
      ConfigError: If the number of sequences is not a multiple of `group_size`.
    """
    if len(values) % self.group_size:
      raise errors.ConfigError(
        f'Objective {self.name!r} requires that all documents of a query are '
        'in the same batch. The number of sequences in a batch must be a '
        f'multiple of group_size={self.group_size}',
        got=len(values),
        fix='Set the batch size to a multiple of the macro DOCUMENTS.',
      )
    return values.reshape(-1, self.group_size)
