"""Masked language modelling, and its form over translation pairs."""

import dataclasses
import enum
from typing import ClassVar

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.objectives import (
  model_calls,
  objective_base,
  objective_metrics,
  sentence_pairs,
)
from xlflax.objectives.corruption import infilling, masking
from xlflax.objectives.corruption import random_words as random_words_lib
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.objectives.cross_entropy.linear_cross_entropy import (
  linear_cross_entropy,
)
from xlflax.objectives.losses import TokenLoss
from xlflax.utils import class_registry, validation


class Head(enum.Enum):
  """The positions that logits are computed for; the loss is the same."""

  GATHERED = 'gathered'  # the chosen ones only: far cheaper
  EVERY_POSITION = 'every_position'


class Units(enum.Enum):
  """What is chosen as a whole."""

  TOKENS = 'tokens'
  WORDS = 'words'


@class_registry.register('masked_lm')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLM(objective_base.Objective):
  """Predicts chosen tokens from the rest (Devlin et al. 2019, section 3.1).

  The loss is the mean of -log p over the chosen tokens of the batch. Of a
  stream with two sides, each side is a row of its own (PPA, section 4, "repl
  TLM w/ MLM"). Metrics, per language of the token: loss, perplexity and
  accuracy over the chosen tokens, and tokens (those of the batch that are not
  padding).

  Attributes:
    mask_ratio: share of each row's text tokens that is chosen, or a function
      of the step.
    max_mask_ratio: bound of a scheduled ratio (fixes the static number of
      scored positions).
    mask_probability: share of the chosen tokens shown as the mask symbol.
    random_probability: share shown as a random word; the rest is shown as is.
    units: whether TOKENS are chosen, or whole WORDS, all of whose tokens are
      (as in the later models of BERT's authors).
    random_words: where these come from: the VOCABULARY, or the words of the
      token's own LANGUAGE (which embeddings that are not shared need).
    head: where the vocabulary is scored.
    chunk_size: rows of the vocabulary scored at a time; None for all at once.
    name: the objective's name.
  """

  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  units: Units = Units.TOKENS
  random_words: RandomWords = RandomWords.VOCABULARY
  head: Head = Head.GATHERED
  chunk_size: validation.PositiveInt | None = None
  name: str = 'mlm'

  def __post_init__(self):
    _ = self.policy  # its settings are checked where it is made

  @property
  def policy(self) -> masking.MaskingPolicy:
    """The policy that chooses tokens and what happens to them."""
    return masking.MaskingPolicy(
      mask_ratio=self.mask_ratio,
      max_mask_ratio=self.max_mask_ratio,
      mask_probability=self.mask_probability,
      random_probability=self.random_probability,
    )

  def mask(self, batch, context: objective_base.Context, rng: jax.Array):
    """Returns (masked ids [B, T], choice of K tokens a row); `rng` is a key."""
    choice_rng, word_rng = jax.random.split(rng)
    maskable = masking.is_text(batch, context.vocabulary)
    units = None
    if self.units is Units.WORDS:
      starts = infilling.word_starts(batch, context.vocabulary)
      units = jnp.maximum(jnp.cumsum(starts, axis=1, dtype=jnp.int32) - 1, 0)
    choice = self.policy(choice_rng, maskable, context.step, units)
    languages = masking.gather_rows(
      batch[batch_keys.LANGUAGE_IDS], choice.positions
    )
    random_ids = random_words_lib.draw_random_words(
      self.random_words, word_rng, languages, context.vocabulary
    )
    token_ids = masking.apply_choice(
      batch[batch_keys.TOKEN_IDS], choice, random_ids, context.vocabulary
    )
    return token_ids, choice

  def _score(self, model, params, states, labels) -> TokenLoss:
    """Loss and correctness [B, N] of `states [B, N, H]`, `labels [B, N]`."""
    hidden = model_calls.call_model(model, params, 'transform', states)
    table, bias = model_calls.call_model(model, params, 'output_table')
    result = linear_cross_entropy(
      hidden.reshape(-1, hidden.shape[-1]),
      table,
      bias,
      labels.reshape(-1),
      chunk_size=self.chunk_size,
    )
    return TokenLoss(*(value.reshape(labels.shape) for value in result))

  def _losses(self, model, params, batch, states, choice):
    """Loss, correctness, weights and languages, [B, K] or [B, T] each."""
    labels, languages = (
      batch[batch_keys.TOKEN_IDS],
      batch[batch_keys.LANGUAGE_IDS],
    )
    if self.head is Head.EVERY_POSITION:
      weights = masking.scatter_rows(
        jnp.zeros(labels.shape, jnp.float32), choice.positions, choice.weights
      )
      return (*self._score(model, params, states, labels), weights, languages)
    states, labels, languages = (
      masking.gather_rows(array, choice.positions)
      for array in (states, labels, languages)
    )
    return (
      *self._score(model, params, states, labels),
      choice.weights,
      languages,
    )

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    parts = sentence_pairs.encoding_parts(model, batch)
    return objective_metrics.add_outputs(
      [
        self._one(model, params, part, dataclasses.replace(context, rng=rng))
        for part, rng in zip(
          parts, sentence_pairs.split_keys(context.rng, parts), strict=True
        )
      ]
    )

  def _one(
    self, model, params, batch, context
  ) -> objective_base.ObjectiveOutput:
    """Loss and metrics of rows that share their parameters."""
    chosen = self.chosen(model, params, batch, context)
    loss, _, weights, _ = chosen
    total = jnp.sum(jnp.where(weights > 0, loss * weights, 0.0))
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, jnp.sum(weights)),
      self._metrics(batch, context, *chosen),
    )

  def chosen(self, model, params, batch, context: objective_base.Context):
    """What is predicted of rows that share their parameters.

    Args:
      model: the encoder.
      params: `{'model': ..., 'heads': ...}`.
      batch: rows [B, T] of one side.
      context: its key chooses the tokens.

    Returns:
      Loss in nats, correctness, weight (0: padding) and language of the tokens,
      [B, K] each; [B, T] where every position is scored.
    """
    params = model_calls.bind_language_params(
      model, params, batch, context.vocabulary
    )
    mask_rng, dropout_rng = jax.random.split(context.rng)
    token_ids, choice = self.mask(batch, context, mask_rng)
    states = model_calls.encode_batch(
      model,
      params,
      {**batch, batch_keys.TOKEN_IDS: token_ids},
      context=context,
      rng=dropout_rng,
    )
    return self._losses(model, params, batch, states, choice)

  def _metrics(self, batch, context, loss, correct, weights, languages):
    return objective_metrics.metrics_by_language(
      self.name,
      {'loss': loss, objective_metrics.PERPLEXITY: loss, 'accuracy': correct},
      weights,
      languages,
      context.vocabulary,
    ) | objective_metrics.token_counts(self.name, context.vocabulary, batch)


@class_registry.register('translation_lm')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationLM(MaskedLM):
  """TLM: MLM over a sentence and its translation in one row.

  Source: Conneau & Lample (2019), section 3.3.

  The stream makes the rows (`Layout.PAIRS`); the two sides attend to each
  other, and tokens of both are chosen, together. XLM and PPA choose 15 %,
  VECO 25 % of bilingual rows.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.PAIR

  name: str = 'tlm'


_MASKING = (
  'mask_ratio',
  'max_mask_ratio',
  'mask_probability',
  'random_probability',
  'random_words',
)


def masked_lm_of(objective) -> MaskedLM:
  """Returns the MLM that masks rows by the fields of another objective.

  Raises:
    ConfigError: a field is out of range.
  """
  return MaskedLM(
    **{
      name: getattr(objective, name)
      for name in _MASKING
      if hasattr(objective, name)
    }
  )
