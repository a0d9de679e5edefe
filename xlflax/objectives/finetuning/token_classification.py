"""Labels of words: parts of speech, entities."""

import dataclasses

import jax
import jax.numpy as jnp

from xlflax import errors
from xlflax.data import batch as batch_lib
from xlflax.data.vocabulary_spec import VocabularySpec
from xlflax.models import heads
from xlflax.objectives import base
from xlflax.objectives.finetuning import base as finetuning
from xlflax.objectives.finetuning import class_loss


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenClassification(finetuning.FineTuning):
  """A label for each word, read from its first token (Devlin et al. 2019, 5.3).

  The batch's `labels` [B, T] hold the label's number at a word's first token
  and -1 at every other position; the loss is the mean over words. The head is
  a linear map, unless `head` says otherwise; its parameters are those of
  `xlflax.models.heads` and of imported checkpoints. Metrics by language of the
  word: loss and accuracy.

  Attributes:
    labels: names of the labels, in the order of their numbers.
    name_prefix: the objective's name.
  """

  labels: tuple[str, ...]
  name_prefix: str = 'token_classification'

  def __post_init__(self):
    super().__post_init__()
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
        batch[batch_lib.LABELS], batch[batch_lib.LANGUAGE_IDS],
        context.vocabulary)

  def predict(self, model, params, batch, vocabulary: VocabularySpec
              ) -> jax.Array:
    """Logits of each position, float32 [B, T, C].

    What a word's label is, its first token's logits say.
    """
    return self._logits(model, params, batch, vocabulary).astype(jnp.float32)

  def _logits(self, model, params, batch, vocabulary, rng=None) -> jax.Array:
    states_rng, head_rng = (None, None) if rng is None else jax.random.split(
        rng)
    states = self.states(model, params, batch, vocabulary, states_rng)
    return heads.token_logits(
        self.head_of(params), states, activation=self.activation,
        epsilon=finetuning.body_config(model).layer_norm_epsilon,
        drop=self.drop(head_rng))


def check_labels(labels, where: str, field: str = 'labels'
                 ) -> tuple[str, ...]:
  """The names of a head's classes, as they are.

  Raises:
    ConfigError: there are fewer than two, or two are the same.
  """
  labels = tuple(labels)
  if len(labels) < 2 or len(set(labels)) < len(labels):
    raise errors.ConfigError(
        'The labels of a head are no two different names', got=labels,
        expected='two names or more, each once', where=f'{where}.{field}')
  return labels
