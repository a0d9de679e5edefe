"""The base of heads with named classes, and their loss."""

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
  """Base of objectives that choose one of several names.

  The batch's `labels` hold the class's number, -1 where there is none; the
  loss is the mean over those that have one. Subclasses have `name`,
  `head_logits` and `label_languages`.

  Attributes:
    labels: names of the classes, in the order of their numbers.
    name: the objective's name.
  """

  labels: tuple[str, ...]
  name: str

  def __post_init__(self):
    super().__post_init__()
    object.__setattr__(
      self, 'labels', check_labels(self.labels, type(self).__name__)
    )

  def check_stream(self, stream) -> None:
    super().check_stream(stream)
    batch_requirements.check_same(
      stream, 'labels', self.labels, objective=self.name
    )

  @property
  def num_outputs(self) -> int:
    """C, the number of labels."""
    return len(self.labels)

  def head_logits(
    self, head, states: jax.Array, batch, **settings
  ) -> jax.Array:
    """Computes the logits of the head, last axis C.

    Args:
      head: its parameters.
      states: [B, T, W].
      batch: the rows.
      **settings: activation, epsilon and drop, as `xlflax.models.heads.classification_heads` takes
        them.
    """
    raise NotImplementedError

  def label_languages(self, batch, vocabulary: VocabularySpec) -> jax.Array:
    """Returns the language of each label, in the labels' shape."""
    raise NotImplementedError

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
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
    """Returns float32 logits in the labels' shape and C."""
    return self._logits(model, params, batch, vocabulary).astype(jnp.float32)

  def _logits(self, model, params, batch, vocabulary, rng=None) -> jax.Array:
    head = functools.partial(self.head_logits, batch=batch)
    return self.through_head(head, model, params, batch, vocabulary, rng)


def check_labels(labels, where: str, field: str = 'labels') -> tuple[str, ...]:
  """Returns the names of a head's classes as a tuple.

  Raises:
    ConfigError: there are fewer than two, or two are the same.
  """
  labels = tuple(labels)
  if len(labels) < 2 or len(set(labels)) < len(labels):
    raise errors.ConfigError(
      'The labels of a head are not two or more different names',
      got=labels,
      expected='two names or more, each once',
      where=f'{where}.{field}',
    )
  return labels


def class_output(
  name: str,
  logits: jax.Array,
  labels: jax.Array,
  language_ids: jax.Array,
  vocabulary: VocabularySpec,
) -> objective_base.ObjectiveOutput:
  """Computes the mean cross-entropy of classes over all with a label.

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
  loss, _ = losses.cross_entropy(logits, jnp.maximum(labels, 0))
  # Of labels that tie one is right: an untrained head's all do.
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
