"""Classes of texts and of pairs of texts."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax import enums
from xlflax.data import batch as batch_lib
from xlflax.data.vocabulary_spec import VocabularySpec
from xlflax.models import heads
from xlflax.objectives import base, inputs
from xlflax.objectives.finetuning import base as finetuning
from xlflax.objectives.finetuning import class_loss
from xlflax.objectives.finetuning.token_classification import check_labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceClassification(finetuning.FineTuning):
  """A class for each row (Devlin et al. 2019, 4.1).

  The batch's `labels` [B] hold the class's number, -1 where there is none; the
  loss is the mean over rows that have one. With the default settings the
  logits are those of RoBERTa and XLM-R: the first position's state through
  dense, tanh and output, which are the parameters of `xlflax.models.heads` and
  of imported checkpoints. Metrics by language of the (first) text: loss and
  accuracy.

  Attributes:
    labels: names of the classes, in the order of their numbers.
    pooling: what a row's logits are made of.
    head: one linear map, or a dense one before it.
    name_prefix: the objective's name.
  """

  labels: tuple[str, ...]
  pooling: heads.Pooling = heads.Pooling.FIRST
  head: finetuning.HeadKind = finetuning.HeadKind.DENSE
  name_prefix: str = 'sequence_classification'

  def __post_init__(self):
    super().__post_init__()
    enums.coerce(self, 'pooling', heads.Pooling)
    object.__setattr__(
        self, 'labels', check_labels(self.labels, type(self).__name__))

  @property
  def name(self) -> str:
    return self.name_prefix

  @property
  def num_outputs(self) -> int:
    return len(self.labels)

  def __call__(self, model, params, batch, context: base.Context
               ) -> base.ObjectiveOutput:
    rng = context.rng if context.train else None
    return class_loss.output(
        self.name, self._logits(model, params, batch, context.vocabulary, rng),
        batch[batch_lib.LABELS],
        inputs.row_languages(batch, context.vocabulary), context.vocabulary)

  def predict(self, model, params, batch, vocabulary: VocabularySpec
              ) -> jax.Array:
    """Logits of each row, float32 [B, C]."""
    return self._logits(model, params, batch, vocabulary).astype(jnp.float32)

  def _logits(self, model, params, batch, vocabulary, rng=None) -> jax.Array:
    states_rng, head_rng = (None, None) if rng is None else jax.random.split(
        rng)
    states = self.states(model, params, batch, vocabulary, states_rng)
    return heads.sequence_logits(
        self.head_of(params), states, activation=self.activation,
        epsilon=finetuning.body_config(model).layer_norm_epsilon,
        pooling=self.pooling, mask=batch.get(batch_lib.SEGMENT_IDS),
        drop=self.drop(head_rng))
