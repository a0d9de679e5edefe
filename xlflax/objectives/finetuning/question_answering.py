"""Answers to questions, as spans of a text."""

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
  """Logits of positions, float32 [B, T].

  They are `MASKED_SCORE` outside contexts, except at the first position, which
  stands for no answer.
  """

  start: jax.Array
  end: jax.Array


@class_registry.register('question_answering')
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnswering(finetuning.FineTuning):
  """The first and the last token of the answer (Devlin et al. 2019, 4.2).

  Rows are those of `xlflax.data.supervised.featurizers.question_featurizer`. The loss of a row is
  the mean of -log p of start and of end, each a softmax over the context's
  tokens and the first position, which stands for a window without the answer;
  question, separators and padding have no part in it. The head is a linear map
  to two numbers, start's and end's. Metrics by language of the context: loss,
  and accuracy (start and end both right).

  Attributes:
    head_dropout: on what the head reads.
    name: the objective's name.
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
    """Two: start and end."""
    return 2

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    rng = context.rng if context.train else None
    logits = self._logits(model, params, batch, context.vocabulary, rng)
    allowed = _allowed(batch)
    answers = (
      batch[batch_keys.START_POSITIONS],
      batch[batch_keys.END_POSITIONS],
    )
    span_losses = [
      losses.cross_entropy(jnp.where(allowed, part, MASKED_SCORE), answer)
      for part, answer in zip(logits, answers, strict=True)
    ]
    loss = (span_losses[0][0] + span_losses[1][0]) / 2
    return self._output(
      loss, span_losses[0][1] * span_losses[1][1], batch, context
    )

  def predict(
    self, model, params, batch, vocabulary: VocabularySpec
  ) -> SpanLogits:
    """Returns logits of start and end; see `SpanLogits`."""
    allowed = _allowed(batch)
    return SpanLogits(
      *(
        jnp.where(allowed, part, MASKED_SCORE)
        for part in self._logits(model, params, batch, vocabulary)
      )
    )

  def _logits(self, model, params, batch, vocabulary, rng=None) -> SpanLogits:
    """Returns the logits of all positions."""
    logits = self.through_head(
      classification_heads.token_logits, model, params, batch, vocabulary, rng
    ).astype(jnp.float32)
    return SpanLogits(logits[:, :, 0], logits[:, :, 1])

  def _output(
    self, loss, correct, batch, context
  ) -> objective_base.ObjectiveOutput:
    """Sums losses [B] and correctness [B]."""
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


def _allowed(batch) -> jax.Array:
  """Where an answer may begin and end, and the first position: bool [B, T]."""
  context = batch[batch_keys.CONTEXT_MASK] > 0
  return context | (jnp.arange(context.shape[1]) == 0)[None, :]
