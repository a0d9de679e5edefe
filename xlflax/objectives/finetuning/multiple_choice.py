"""Multiple choice objective, which selects the correct one of several texts."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar

import annotated_types
import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.models.heads import classification_heads
from xlflax.objectives import model_calls, objective_base
from xlflax.objectives.finetuning import classification_objective
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import class_registry, errors


@class_registry.register('multiple_choice')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoice(finetuning.FineTuning):
  """Scoring of the choices of a question (Radford et al. 2018).

  The loss is the softmax cross-entropy over the choices of a question.
  Sequences have the format of
  `xlflax.data.supervised.featurizers.choice_featurizer`, and the `num_choices`
  sequences of a question are consecutive. The head is the same as for sequence
  classification, with one output. Metrics by language of the text: loss and
  accuracy.

  Attributes:
    num_choices: Number of choices per question, C.
    pooling: Method of pooling a sequence's positions before its score is
      computed. If None, LAST for the hidden states of a decoder and FIRST
      otherwise.
    head_type: Type of the head's output layers: OUTPUT, DENSE or DENSE_NORM.
    name: Name of the objective, which prefixes its metrics.
  """

  GOLD: ClassVar[Mapping[str, int]] = {batch_keys.LABELS: 1}

  num_choices: Annotated[int, annotated_types.Ge(2)]
  pooling: classification_heads.Pooling | None = None
  head_type: finetuning.HeadKind = finetuning.HeadKind.DENSE
  name: str = 'multiple_choice'

  def check_dataset(self, dataset) -> None:
    """Checks that each batch contains all choices of its questions."""
    super().check_dataset(dataset)
    if dataset.group_size % self.num_choices:
      raise errors.ConfigError(
        f'Objective {self.name!r} requires that all choices of a question are '
        f'in the same batch. The `group_size` of dataset {dataset.name!r} must '
        f'be a multiple of num_choices={self.num_choices}',
        got=dataset.group_size,
        fix='Set LabeledDatasetConfig.group_size to the number of choices.',
      )

  @property
  def rows_together(self) -> int:
    """Number of choices per question."""
    return self.num_choices

  @property
  def num_outputs(self) -> int:
    """Number of outputs per answer choice, which is 1: the choice's score."""
    return 1

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the mean cross-entropy over the choices of each question."""
    rng = context.rng if context.train else None
    scores = self._scores(model, params, batch, context.vocabulary, rng)
    languages = model_calls.row_languages(batch, context.vocabulary)
    scores, labels, languages = (
      self._group_by_question(x)
      for x in (scores, batch[batch_keys.LABELS], languages)
    )  # [B / C, C]
    # Padding sequences have the label -1.
    is_labeled = jnp.min(labels, axis=1) >= 0
    correct_choice = jnp.where(is_labeled, jnp.argmax(labels, axis=1), -1)
    return classification_objective.class_output(
      self.name, scores, correct_choice, languages[:, 0], context.vocabulary
    )

  def predict(self, model, params, batch, vocabulary) -> jax.Array:
    """Returns a score for each choice, float32 [B]."""
    return self._scores(model, params, batch, vocabulary)

  def _group_by_question(self, values: jax.Array) -> jax.Array:
    """Reshapes values of shape [B] to [B / C, C].

    Raises:
      ConfigError: If the batch does not contain all choices of every question.
    """
    if len(values) % self.num_choices:
      raise errors.ConfigError(
        'All choices of a question must be in the same batch. The number of '
        f'sequences in a batch must be a multiple of '
        f'num_choices={self.num_choices}',
        got=len(values),
        fix='Set LabeledDatasetConfig.group_size to the number of choices, and '
        'the batch size to a multiple of it.',
      )
    return values.reshape(-1, self.num_choices)

  def _scores(self, model, params, batch, vocabulary, rng=None) -> jax.Array:
    """Returns a score for each choice, float32 [B]."""
    scores = self.apply_head(
      classification_heads.sequence_logits,
      model,
      params,
      batch,
      vocabulary,
      rng,
      pooling=self.sequence_pooling(model, self.pooling),
      mask=batch.get(batch_keys.SEGMENT_IDS),
    )
    return scores[:, 0].astype(jnp.float32)
