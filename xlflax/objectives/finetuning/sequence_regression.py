"""Regression objective, which predicts a number for a text or a text pair."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.objectives import objective_base, objective_metrics
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.objectives.finetuning import sequence_classification
from xlflax.utils import class_registry


@class_registry.register('sequence_regression')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceRegression(sequence_classification.SequenceClassification):
  """Prediction of a number for each sequence with a classification head.

  The loss is the mean squared error, as BERT and RoBERTa use for STS-B in GLUE
  (Wang et al. 2019). Predictions have shape [B, 1]. The batch's `labels` [B]
  contain the bits of float32 numbers (`RegressionFeaturizer`). Numbers that are
  not finite do not contribute.

  Attributes:
    labels: Unused. A regression head has no class names.
    name: Name of the objective, which prefixes its metrics and identifies its
      head. With the default name, the head is exported to Hugging Face as a
      sequence-classification head with one label.
  """

  labels: tuple[str, ...] = ()
  name: str = 'sequence_classification'

  def __post_init__(self):
    finetuning.FineTuning.__post_init__(self)

  def check_dataset(self, dataset) -> None:
    """Checks that a dataset provides the batches that the objective reads.

    Regression has no class names to check.
    """
    finetuning.FineTuning.check_dataset(self, dataset)

  @property
  def num_outputs(self) -> int:
    """Number of outputs, which is 1: the predicted number."""
    return 1

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the mean squared error of the predictions."""
    rng = context.rng if context.train else None
    logits = self._logits(model, params, batch, context.vocabulary, rng)
    return squared_error(
      self.name,
      logits[..., 0].astype(jnp.float32),
      jax.lax.bitcast_convert_type(batch[batch_keys.LABELS], jnp.float32),
      self.label_languages(batch, context.vocabulary),
      len(context.vocabulary.languages),
    )


def squared_error(
  name: str,
  predictions: jax.Array,
  gold: jax.Array,
  language_ids: jax.Array,
  num_languages: int,
) -> objective_base.ObjectiveOutput:
  """Computes the mean squared error of the predictions.

  Before: predictions [1, 2], gold [4, nan]. After: WeightedMean(9, 1).

  Args:
    name: Name of the objective, which prefixes the metric.
    predictions: Predicted values, float32 of shape [B].
    gold: Gold values, float32 of shape [B]. The value of a sequence without a
      label is NaN or infinite.
    language_ids: Language id of each sequence, int [B].
    num_languages: Number of languages.

  Returns:
    The loss, and the metric `<name>/loss` by language.
  """
  is_labeled = jnp.isfinite(gold)
  weights = is_labeled.astype(jnp.float32)
  loss = jnp.square(predictions - jnp.where(is_labeled, gold, 0.0)) * weights
  loss_by_language = objective_metrics.by_language(
    loss, weights, language_ids, num_languages
  )
  return objective_base.ObjectiveOutput(
    objective_base.WeightedMean(jnp.sum(loss), jnp.sum(weights)),
    {f'{name}/loss': loss_by_language},
  )
