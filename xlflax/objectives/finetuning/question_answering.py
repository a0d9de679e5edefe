"""Extractive question answering objective, which predicts answer spans."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.models.heads import classification_heads
from xlflax.objectives import losses, objective_base, objective_metrics
from xlflax.objectives.corruption import masking
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import class_registry, validation


class SpanLogits(NamedTuple):
  """Logits of answer start and end positions, float32 of shape [B, T].

  The first position represents the absence of an answer. All other positions
  outside the context have the logit `MASKED_SCORE`.
  """

  start: jax.Array
  end: jax.Array


@class_registry.register('question_answering')
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnswering(finetuning.FineTuning):
  """Prediction of an answer's first and last token (BERT, section 4.2).

  Sequences have the format of
  `xlflax.data.supervised.featurizers.question_featurizer`. The loss of a
  sequence is

    (-log p(start) - log p(end)) / 2,

  where both softmaxes cover the tokens of the context and the first position,
  which represents a window that does not contain the answer. Question,
  separators and padding are excluded. The head is a linear layer with two
  outputs. Metrics by language of the context: loss, and accuracy (start and end
  are both correct).

  Attributes:
    head_dropout: Dropout rate for the head's input.
    name: Name of the objective, which prefixes its metrics.
  """

  GOLD: ClassVar[Mapping[str, int]] = {
    batch_keys.CONTEXT_MASK: 2,
    batch_keys.START_POSITIONS: 1,
    batch_keys.END_POSITIONS: 1,
  }

  head_dropout: validation.FractionBelowOne = 0.0
  name: str = 'question_answering'

  @property
  def num_outputs(self) -> int:
    """Number of outputs, which is 2: the start and end logits."""
    return 2

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the mean loss of the start and end positions."""
    rng = context.rng if context.train else None
    logits = self._logits(model, params, batch, context.vocabulary, rng)
    is_allowed = _allowed_positions(batch)
    start = losses.cross_entropy(
      jnp.where(is_allowed, logits.start, MASKED_SCORE),
      batch[batch_keys.START_POSITIONS],
    )
    end = losses.cross_entropy(
      jnp.where(is_allowed, logits.end, MASKED_SCORE),
      batch[batch_keys.END_POSITIONS],
    )
    loss = (start.loss + end.loss) / 2
    return self._output(loss, start.correct * end.correct, batch, context)

  def predict(
    self, model, params, batch, vocabulary: VocabularySpec
  ) -> SpanLogits:
    """Returns the start and end logits, masked outside the context."""
    is_allowed = _allowed_positions(batch)
    logits = self._logits(model, params, batch, vocabulary)
    return SpanLogits(
      start=jnp.where(is_allowed, logits.start, MASKED_SCORE),
      end=jnp.where(is_allowed, logits.end, MASKED_SCORE),
    )

  def _logits(self, model, params, batch, vocabulary, rng=None) -> SpanLogits:
    """Returns the logits of all positions, without a mask."""
    logits = self.apply_head(
      classification_heads.token_logits, model, params, batch, vocabulary, rng
    ).astype(jnp.float32)
    return SpanLogits(logits[:, :, 0], logits[:, :, 1])

  def _output(
    self, loss, correct, batch, context
  ) -> objective_base.ObjectiveOutput:
    """Creates the output from the loss and correctness of each example, [B]."""
    weights = jnp.ones_like(loss)
    first = jnp.argmax(batch[batch_keys.CONTEXT_MASK] > 0, axis=1)
    languages = masking.gather_rows(
      batch[batch_keys.LANGUAGE_IDS], first[:, None]
    )[:, 0]
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(jnp.sum(loss), jnp.sum(weights)),
      objective_metrics.metrics_by_language(
        self.name,
        {'loss': loss, 'accuracy': correct},
        weights,
        languages,
        context.vocabulary,
      ),
    )


def _allowed_positions(batch) -> jax.Array:
  """Returns a mask of the context and the first position, bool [B, T]."""
  context = batch[batch_keys.CONTEXT_MASK] > 0
  return context | (jnp.arange(context.shape[1]) == 0)[None, :]
