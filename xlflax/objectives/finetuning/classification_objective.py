"""Base class and loss function of classification objectives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.objectives import (
  batch_requirements,
  losses,
  objective_base,
  objective_metrics,
)
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import class_registry, errors


@class_registry.register('classification')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(finetuning.FineTuning):
  """Base class of objectives that predict one of several classes.

  The batch's `labels` contain class indices, and -1 for positions without a
  label. The loss is the mean cross-entropy over the labeled positions.
  Subclasses define `name`, `head_logits` and `label_languages`.

  Attributes:
    labels: Class names, in the order of the class indices.
    name: Name of the objective, which prefixes its metrics.
  """

  labels: tuple[str, ...]
  name: str

  def __post_init__(self):
    super().__post_init__()
    object.__setattr__(self, 'labels', check_labels(self.labels, self))

  def check_dataset(self, dataset) -> None:
    """Checks a dataset's batches, and that its class names equal `labels`."""
    super().check_dataset(dataset)
    batch_requirements.check_class_names(
      dataset, 'labels', self.labels, objective=self.name
    )

  @property
  def num_outputs(self) -> int:
    """Number of classes, C."""
    return len(self.labels)

  def head_logits(
    self, head, states: jax.Array, batch, **settings
  ) -> jax.Array:
    """Computes the head's logits, an array of shape [..., C] for C classes.

    Args:
      head: Parameters of the head.
      states: Hidden states of shape [B, T, W].
      batch: Mapping from batch keys to arrays of the batch of sequences.
      **settings: The arguments `activation`, `epsilon` and `drop` of
        `xlflax.models.heads.classification_heads`.
    """
    raise NotImplementedError

  def label_languages(self, batch, vocabulary: VocabularySpec) -> jax.Array:
    """Returns the language id of each label, in the shape of the labels."""
    raise NotImplementedError

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the mean cross-entropy over all labeled positions."""
    rng = context.rng if context.train else None
    return class_output(
      self.name,
      self._logits(model, params, batch, context.vocabulary, rng),
      batch[batch_keys.LABELS],
      self.label_languages(batch, context.vocabulary),
      context.vocabulary,
    )

  def predict(
    self, model, params, batch, vocabulary: VocabularySpec
  ) -> jax.Array:
    """Returns float32 logits of shape [*labels.shape, C]."""
    return self._logits(model, params, batch, vocabulary).astype(jnp.float32)

  def _logits(self, model, params, batch, vocabulary, rng=None) -> jax.Array:
    head = functools.partial(self.head_logits, batch=batch)
    return self.apply_head(head, model, params, batch, vocabulary, rng)


def check_labels(
  labels, owner: object, field: str = 'labels'
) -> tuple[str, ...]:
  """Checks a head's class names and returns them as a tuple.

  Args:
    labels: Class names of the head.
    owner: Objective to which the class names belong. The error message names
      its class.
    field: Name of the objective's field that holds the class names.

  Raises:
    ConfigError: If there are fewer than two class names, or if a name occurs
      twice.
  """
  labels = tuple(labels)
  if len(labels) < 2 or len(set(labels)) < len(labels):
    raise errors.ConfigError(
      f'`{field}` must contain at least two names, and all names must be '
      'different',
      got=labels,
      where=errors.field_location(owner, field),
    )
  return labels


def class_output(
  name: str,
  logits: jax.Array,
  labels: jax.Array,
  language_ids: jax.Array,
  vocabulary: VocabularySpec,
) -> objective_base.ObjectiveOutput:
  """Computes the mean cross-entropy over all labeled positions.

  Before: logits [[1, 1], [9, 0]], labels [0, -1], language_ids [2, 0] of 3
  languages. After: loss WeightedMean(log 2, 1), accuracy with total [0, 0, 1]
  and weight [0, 0, 1]. Positions without a label do not contribute.

  Args:
    name: Name of the objective, which prefixes the metrics.
    logits: Logits of C classes, of shape [..., C].
    labels: Class indices from 0 to C - 1, negative for positions without a
      label, int [...].
    language_ids: Language ids of the positions, int [...].
    vocabulary: Vocabulary specification with the number of languages.

  Returns:
    The loss, and the metrics `<name>/loss` (nats) and `<name>/accuracy` by
    language.
  """
  weights = (labels >= 0).astype(jnp.float32)
  loss, _ = losses.cross_entropy(logits, jnp.maximum(labels, 0))
  # In a tie, only one class is correct. All logits of an untrained head tie.
  correct = (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
  return objective_base.ObjectiveOutput(
    objective_base.WeightedMean(
      jnp.sum(jnp.where(weights > 0, loss, 0.0)), jnp.sum(weights)
    ),
    objective_metrics.metrics_by_language(
      name,
      {'loss': loss, 'accuracy': correct},
      weights,
      language_ids,
      vocabulary,
    ),
  )
