"""A number for each text or pair of texts, such as how alike they are."""

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
  """A number for each row by the head of a classifier; predictions [B, 1].

  The loss is the mean squared error, as for STS-B in GLUE (Wang et al. 2019)
  by BERT and RoBERTa. The batch's `labels` [B] hold the bits of float32
  numbers (`RegressionRows`); one that is not finite does not count.

  Attributes:
    labels: none.
  """

  labels: tuple[str, ...] = ()
  name: str = 'sequence_regression'

  def __post_init__(self):
    finetuning.FineTuning.__post_init__(self)

  def check_stream(self, stream) -> None:
    finetuning.FineTuning.check_stream(self, stream)

  @property
  def num_outputs(self) -> int:
    return 1

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
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
  found: jax.Array,
  gold: jax.Array,
  language_ids: jax.Array,
  languages: int,
) -> objective_base.ObjectiveOutput:
  """The mean squared error of numbers.

  Before: found [1, 2], gold [4, nan]; after: WeightedMean(9, 1).

  Args:
    name: the objective's, prefix of the metric.
    found: float32 [B].
    gold: float32 [B]; not finite where there is none.
    language_ids: int [B].
    languages: how many there are.

  Returns:
    The loss, and `<name>/loss` by language.
  """
  is_labeled = jnp.isfinite(gold)
  weights = is_labeled.astype(jnp.float32)
  loss = jnp.square(found - jnp.where(is_labeled, gold, 0.0)) * weights
  loss_by_language = objective_metrics.by_language(
    loss, weights, language_ids, languages
  )
  return objective_base.ObjectiveOutput(
    objective_base.WeightedMean(jnp.sum(loss), jnp.sum(weights)),
    {f'{name}/loss': loss_by_language},
  )
