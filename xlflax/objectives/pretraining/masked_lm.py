"""Masked language modeling (MLM) and translation language modeling (TLM)."""

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
from xlflax.objectives.corruption.random_words import (
  RandomWords,
  draw_random_words,
)
from xlflax.objectives.cross_entropy.linear_cross_entropy import (
  linear_cross_entropy,
)
from xlflax.utils import class_registry, validation


class LogitPositions(enum.Enum):
  """Positions at which logits are computed.

  The loss is the same for all values.

  Attributes:
    MASKED: Only the positions that were selected for masking. This is much
      cheaper.
    ALL: All positions.
  """

  MASKED = 'masked'
  ALL = 'all'


class MaskingUnit(enum.Enum):
  """Units of text that are selected for masking.

  Attributes:
    TOKENS: Single tokens are selected.
    WORDS: Complete words are selected, with all of their tokens.
  """

  TOKENS = 'tokens'
  WORDS = 'words'


@class_registry.register('masked_lm')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLM(objective_base.Objective):
  """Masked language modeling (Devlin et al. 2019, section 3.1).

  With M the selected tokens of the batch and x̂ the sequences in which they
  are masked, replaced by random words, or kept,

    loss = 1 / |M| * sum_{i in M} -log p(x_i | x̂).

  If the dataset contains text pairs, each text is a separate sequence (PPA,
  section 4, "repl TLM w/ MLM"). Metrics by language of the token: loss,
  perplexity and accuracy over the selected tokens, and tokens (the number of
  tokens that are not padding).

  Attributes:
    mask_ratio: Fraction of each sequence's text tokens to select for masking,
      or a function of the step.
    max_mask_ratio: Upper bound for `mask_ratio`. It determines the static
      number of scored positions, and is required only if the ratio is a
      schedule.
    mask_probability: Probability of replacing a selected token by the mask
      symbol.
    random_probability: Probability of replacing a selected token by a random
      word. Selected tokens that are not replaced by the mask symbol or a random
      word are kept unchanged.
    masking_unit: Units to select for masking: single TOKENS, or complete WORDS
      (whole-word masking, as in later BERT models).
    random_words: Set of words from which random replacements are drawn: the
      complete VOCABULARY, or the words of the token's LANGUAGE (required if
      languages have separate embeddings).
    logit_positions: Positions at which logits are computed: only the MASKED
      ones, or ALL. The choice does not change the loss.
    chunk_size: Number of vocabulary rows to score at a time. If None, all rows
      are scored at once.
    name: Name of the objective, which prefixes its metrics.
  """

  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  masking_unit: MaskingUnit = MaskingUnit.TOKENS
  random_words: RandomWords = RandomWords.VOCABULARY
  logit_positions: LogitPositions = LogitPositions.MASKED
  chunk_size: validation.PositiveInt | None = None
  name: str = 'mlm'

  def __post_init__(self):
    _ = self.policy  # The constructor of the policy checks the settings.

  @property
  def policy(self) -> masking.MaskingPolicy:
    """Policy that selects tokens and their replacements."""
    return masking.MaskingPolicy(
      mask_ratio=self.mask_ratio,
      max_mask_ratio=self.max_mask_ratio,
      mask_probability=self.mask_probability,
      random_probability=self.random_probability,
    )

  def mask(
    self, batch, context: objective_base.ObjectiveContext, rng: jax.Array
  ):
    """Selects and masks tokens of a batch.

    Args:
      batch: Mapping from batch keys to arrays of the sequences, of shape
        [B, T].
      context: `ObjectiveContext` that provides the vocabulary and the step.
      rng: Random key.

    Returns:
      The masked token ids, int32 [B, T], and the selected tokens in K slots per
      sequence, a `masking.Choice`.
    """
    choice_rng, word_rng = jax.random.split(rng)
    maskable = masking.is_text(batch, context.vocabulary)
    word_indices = None
    if self.masking_unit is MaskingUnit.WORDS:
      starts = infilling.word_starts(batch, context.vocabulary)
      word_indices = jnp.maximum(
        jnp.cumsum(starts, axis=1, dtype=jnp.int32) - 1, 0
      )
    choice = self.policy(choice_rng, maskable, context.step, word_indices)
    languages = masking.gather_rows(
      batch[batch_keys.LANGUAGE_IDS], choice.positions
    )
    random_ids = draw_random_words(
      self.random_words, word_rng, languages, context.vocabulary
    )
    token_ids = masking.apply_choice(
      batch[batch_keys.TOKEN_IDS], choice, random_ids, context.vocabulary
    )
    return token_ids, choice

  def score_tokens(
    self, model, params, batch, states: jax.Array, choice: masking.Choice
  ):
    """Predicts the tokens selected for masking from the model's hidden states.

    Args:
      model: Encoder with a language modeling head.
      params: Parameters `{'model': ..., 'heads': ...}`.
      batch: Mapping from batch keys to arrays of the original (unmasked)
        sequences, of shape [B, T].
      states: Hidden states of the masked sequences, of shape [B, T, H].
      choice: Tokens that were selected for masking, in K slots per sequence.

    Returns:
      Loss in nats, correctness, weight (0 for unused slots) and language of the
      tokens, each of shape [B, K], or [B, T] if all positions are scored.
    """
    labels = batch[batch_keys.TOKEN_IDS]
    languages = batch[batch_keys.LANGUAGE_IDS]
    if self.logit_positions is LogitPositions.ALL:
      weights = masking.scatter_rows(
        jnp.zeros(labels.shape, jnp.float32), choice.positions, choice.weights
      )
    else:
      # The number of selected positions is static, so only they are scored.
      states, labels, languages = (
        masking.gather_rows(array, choice.positions)
        for array in (states, labels, languages)
      )
      weights = choice.weights
    hidden = model_calls.call_model(model, params, 'transform', states)
    table, bias = model_calls.call_model(model, params, 'output_table')
    loss, correct = linear_cross_entropy(
      hidden.reshape(-1, hidden.shape[-1]),
      table,
      bias,
      labels.reshape(-1),
      chunk_size=self.chunk_size,
    )
    return (
      loss.reshape(labels.shape),
      correct.reshape(labels.shape),
      weights,
      languages,
    )

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the loss over the selected tokens of a batch."""
    # The two texts of a pair are separate sequences.
    parts = sentence_pairs.encoding_parts(model, batch)
    rngs = sentence_pairs.split_keys(context.rng, parts)
    outputs = []
    for part, rng in zip(parts, rngs, strict=True):
      loss, correct, weights, languages = self.score_masked_tokens(
        model, params, part, dataclasses.replace(context, rng=rng)
      )
      total = jnp.sum(jnp.where(weights > 0, loss * weights, 0.0))
      metrics = objective_metrics.metrics_by_language(
        self.name,
        {'loss': loss, objective_metrics.PERPLEXITY: loss, 'accuracy': correct},
        weights,
        languages,
        context.vocabulary,
      ) | objective_metrics.token_counts(self.name, context.vocabulary, part)
      outputs.append(
        objective_base.ObjectiveOutput(
          objective_base.WeightedMean(total, jnp.sum(weights)), metrics
        )
      )
    return objective_metrics.add_outputs(outputs)

  def score_masked_tokens(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ):
    """Masks tokens of a batch and scores the model's predictions for them.

    All sequences must use the same language-specific parameters.

    Args:
      model: Encoder that predicts the masked tokens.
      params: Parameters `{'model': ..., 'heads': ...}`.
      batch: Mapping from batch keys to arrays of single sequences, of shape
        [B, T].
      context: `ObjectiveContext` whose random key selects the tokens.

    Returns:
      Loss in nats, correctness, weight (0 for unused slots) and language of the
      tokens, each of shape [B, K], or [B, T] if all positions are scored.
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
    return self.score_tokens(model, params, batch, states, choice)


@class_registry.register('translation_lm')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationLM(MaskedLM):
  """Masked language modeling on sentences joined with their translations.

  Source: Conneau & Lample (2019), section 3.3.

  The dataset joins both sentences in one sequence (`ExampleLayout.PAIRS`). The
  sentences attend to each other, and tokens are selected from both. XLM and PPA
  select 15 % of the tokens, and VECO selects 25 % in bilingual sequences.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.PAIR

  name: str = 'tlm'


_MASKING_FIELDS = (
  'mask_ratio',
  'max_mask_ratio',
  'mask_probability',
  'random_probability',
  'random_words',
)


def make_masked_lm(objective) -> MaskedLM:
  """Returns a `MaskedLM` with the masking settings of another objective.

  Raises:
    ConfigError: If a masking field is out of range.
  """
  return MaskedLM(
    **{
      name: getattr(objective, name)
      for name in _MASKING_FIELDS
      if hasattr(objective, name)
    }
  )
