"""Sequence-to-sequence training: a decoder predicts a target row."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.objectives import (
  model_calls,
  objective_base,
  objective_metrics,
  sentence_pairs,
  teacher_forcing,
)
from xlflax.objectives.corruption import masking
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.objectives.pretraining import masked_lm
from xlflax.objectives.teacher_forcing import DecoderStart
from xlflax.utils import class_registry, errors, validation


class SourceSymbols(enum.Enum):
  """The special symbols of an encoder's row `<s> x </s>`."""

  BOS = 'bos'  # as it is
  LANGUAGE_LAST = 'language_last'  # `x </s> <lang:xx>` (mBART)


@class_registry.register('sequence_to_sequence')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceToSequence(objective_base.Objective):
  """Teacher-forced cross-entropy of target rows; a base of objectives.

  The loss is the mean over the labels of the batch. Metrics, per language of
  the target: loss (with smoothing), perplexity (without), accuracy, and
  tokens (of both sides, without padding).

  Attributes:
    label_smoothing: e in [0, 1); see `teacher_forcing.score_labels`.
    decoder_start: the decoder's first input.
    source_symbols: the first and last symbols of the encoder's rows.
    chunk_size: rows of the vocabulary scored at a time; None for all at once.
    name: the objective's name.
  """

  label_smoothing: validation.FractionBelowOne = 0.0
  decoder_start: DecoderStart = DecoderStart.LANGUAGE
  source_symbols: SourceSymbols = SourceSymbols.BOS
  chunk_size: validation.PositiveInt | None = None
  name: str = 'seq2seq'

  def rows(
    self, batch, context: objective_base.Context, rng: jax.Array
  ) -> tuple[Any, Any, jax.Array | None]:
    """Makes the rows of encoder and decoder.

    Args:
      batch: as `xlflax.data.batch_keys` documents.
      context: vocabulary and step.
      rng: key of the corruption.

    Returns:
      (the encoder's rows, the decoder's rows `<s> y </s>`, bool [B, S] which
      of its tokens count, or None for all).
    """
    raise NotImplementedError

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Returns no parameters; checks the model. `rng` is a key.

    Raises:
      ConfigError: the model has no decoder.
    """
    if not hasattr(model, 'decode'):
      raise errors.ConfigError(
        'The objective needs an encoder-decoder',
        got=type(model).__name__,
        expected='a model with a decoder',
        where=f'objective {self.name!r}',
        fix='set MODEL to an EncoderDecoder',
      )
    return super().init_heads(model, rng)

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    vocabulary = context.vocabulary
    rows_rng, dropout_rng = jax.random.split(context.rng)
    source, goal, scored = self.rows(batch, context, rows_rng)
    source = with_symbols(source, self.source_symbols, vocabulary)
    first = teacher_forcing.start_ids(
      teacher_forcing.row_languages(goal, vocabulary),
      self.decoder_start,
      vocabulary,
    )
    target = teacher_forcing.make_target(goal, first, vocabulary, scored)
    target_params = model_calls.bind_language_params(
      model, params, goal, vocabulary
    )
    states, target_params = teacher_forcing.decode_with_teacher_forcing(
      model,
      model_calls.bind_language_params(model, params, source, vocabulary),
      target_params,
      source,
      target,
      context=context,
      rng=dropout_rng,
    )
    score = teacher_forcing.score_labels(
      model,
      target_params,
      states,
      target.labels,
      label_smoothing=self.label_smoothing,
      chunk_size=self.chunk_size,
      vocab_size=vocabulary.size,
    )
    total = jnp.sum(jnp.where(target.weights > 0, score.loss, 0.0))
    return objective_base.ObjectiveOutput(
      objective_base.WeightedMean(total, jnp.sum(target.weights)),
      self._metrics(context, source, target, score),
    )

  def _metrics(self, context, source, target, score):
    names = ('loss', objective_metrics.PERPLEXITY, 'accuracy')
    return objective_metrics.metrics_by_language(
      self.name,
      dict(zip(names, score, strict=True)),
      target.weights,
      target.rows[batch_keys.LANGUAGE_IDS],
      context.vocabulary,
    ) | objective_metrics.token_counts(
      self.name, context.vocabulary, source, target.rows
    )


def with_symbols(rows, symbols: SourceSymbols, vocabulary):
  """Replaces the special symbols of rows `<s> x </s>`.

  Before, for LANGUAGE_LAST: token_ids [[1, 7, 2, 0]] of a language with
  symbol 5; after: [[7, 2, 5, 0]].

  Raises:
    VocabularyError: the vocabulary has no symbols of languages.
  """
  if symbols is SourceSymbols.BOS:
    return rows
  token_ids = rows[batch_keys.TOKEN_IDS]
  present = masking.is_present(rows, vocabulary)
  after = jnp.pad(present[:, 1:], ((0, 0), (0, 1)))
  languages = teacher_forcing.row_languages(rows, vocabulary)
  symbol = teacher_forcing.language_symbols(languages, vocabulary)
  earlier = jnp.pad(token_ids[:, 1:], ((0, 0), (0, 1)))
  moved = jnp.where(
    after,
    earlier,
    jnp.where(present, symbol[:, None].astype(token_ids.dtype), token_ids),
  )
  return {**rows, batch_keys.TOKEN_IDS: moved}


@class_registry.register('translation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(SequenceToSequence):
  """Predicts the second side of a pair from the first (Layout.SIDES).

  With a `mask_ratio`, the encoder reads the masked first side: the task that
  VECO's section 7 calls TLM for its baseline mBART.

  Attributes:
    label_smoothing: 0.1, as Vaswani et al. (2017).
    mask_ratio: share of the first side's text tokens that is masked, or a
      function of the step; 0 for none.
    max_mask_ratio: bound of a scheduled ratio.
    mask_probability: share of these shown as the mask symbol.
    random_probability: share shown as a random word; the rest as is.
    random_words: which words these are.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.TRANSLATIONS

  label_smoothing: validation.FractionBelowOne = 0.1
  mask_ratio: validation.Fraction | Callable[[jax.Array], jax.Array] = 0.0
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  random_words: RandomWords = RandomWords.VOCABULARY
  name: str = 'translation'

  def __post_init__(self):
    if self._masks:
      masked_lm.masked_lm_of(self)  # its settings are checked where it is made

  def rows(self, batch, context: objective_base.Context, rng: jax.Array):
    source, goal = sentence_pairs.split_sides(batch, objective=self.name)
    if self._masks:
      token_ids, _ = masked_lm.masked_lm_of(self).mask(source, context, rng)
      source = {**source, batch_keys.TOKEN_IDS: token_ids}
    return source, goal, None

  @property
  def _masks(self) -> bool:
    return callable(self.mask_ratio) or self.mask_ratio != 0
