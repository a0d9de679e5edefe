"""Loss and metrics of predicted classes, by language."""

import jax
import jax.numpy as jnp

from xlflax.data.vocabularies.spec import VocabularySpec
from xlflax.objectives import base, losses, metrics


def output(
  name: str,
  logits: jax.Array,
  labels: jax.Array,
  language_ids: jax.Array,
  vocabulary: VocabularySpec,
) -> base.ObjectiveOutput:
  """Cross-entropy of classes, its mean over all that have a label.

  Before: logits [[1, 1], [9, 0]], labels [0, -1], language_ids [2, 0] of 3
  languages; after: loss WeightedMean(log 2, 1), accuracy total [0, 0, 1] and
  weight [0, 0, 1]: positions without a label do not count.

  Args:
    name: the objective's, prefix of the metrics.
    logits: [..., C].
    labels: int [...], 0 .. C - 1; negative where there is none.
    language_ids: int [...].
    vocabulary: says how many languages there are.

  Returns:
    The loss; metrics `<name>/loss` (nats) and `<name>/accuracy` by language.
  """
  weights = (labels >= 0).astype(jnp.float32)
  loss, correct = losses.cross_entropy(logits, jnp.maximum(labels, 0))
  count = len(vocabulary.languages)

  def by_language(values):
    return metrics.by_language(
      jax.lax.stop_gradient(values), weights, language_ids, count
    )

  return base.ObjectiveOutput(
    base.WeightedMean(
      jnp.sum(jnp.where(weights > 0, loss, 0.0)), jnp.sum(weights)
    ),
    {
      f'{name}/loss': by_language(loss),
      f'{name}/accuracy': by_language(correct),
    },
  )
