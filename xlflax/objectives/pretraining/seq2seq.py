"""Sequence-to-sequence objectives, in which a decoder predicts a target."""

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
  """Special symbols that surround a source text x in the encoder's input.

  Attributes:
    BOS: `<s> x </s>`, as in the dataset.
    LANGUAGE_SUFFIX: `x </s> <lang:xx>`, with a language symbol at the end
      (mBART).
  """

  BOS = 'bos'
  LANGUAGE_SUFFIX = 'language_suffix'


@class_registry.register('sequence_to_sequence')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceToSequence(objective_base.Objective):
  """Base class of objectives that train a decoder with teacher forcing.

  The loss is the mean over the labels of the batch. Metrics by language of the
  target: loss (with label smoothing), perplexity (without), accuracy, and
  tokens (the number of tokens in source and target, without padding).

  Attributes:
    label_smoothing: Label smoothing factor e in [0, 1) (see
      `teacher_forcing.score_labels`).
    decoder_start: Type of the decoder's first input token, such as LANGUAGE.
    source_symbols: Special symbols that surround the text in the encoder's
      input.
    chunk_size: Number of vocabulary rows to score at a time. If None, all rows
      are scored at once.
    name: Name of the objective, which prefixes its metrics.
  """

  label_smoothing: validation.FractionBelowOne = 0.0
  decoder_start: DecoderStart = DecoderStart.LANGUAGE
  source_symbols: SourceSymbols = SourceSymbols.BOS
  chunk_size: validation.PositiveInt | None = None
  name: str = 'seq2seq'

  def rows(
    self, batch, context: objective_base.ObjectiveContext, rng: jax.Array
  ) -> tuple[Any, Any, jax.Array | None]:
    """Creates the encoder's input sequences and the decoder's target sequences.

    Args:
      batch: Mapping from batch keys to arrays of the batch, as documented in
        `xlflax.data.batch_keys`.
      context: `ObjectiveContext` that provides the vocabulary and the step.
      rng: Random key for corrupting the input.

    Returns:
      The encoder's sequences, the decoder's sequences `<s> y </s>`, and a
      boolean array [B, S], True for tokens that contribute to the loss. If the
      array is None, all tokens contribute.
    """
    raise NotImplementedError

  def check_model(self, model, vocabulary: Any, length: int) -> None:
    """Checks that the model has a decoder and that the vocabulary is suitable.

    See the base class.
    """
    vocabulary_error = self.vocabulary_error(vocabulary, length)
    if not hasattr(model, 'decode'):
      raise self._model_error(model, vocabulary_error)
    if vocabulary_error:
      raise vocabulary_error

  def vocabulary_error(
    self, vocabulary: Any, length: int
  ) -> errors.VocabularyError | None:
    """Returns the error for a vocabulary that lacks special tokens, or None.

    Args:
      vocabulary: `VocabularySpec` of the run.
      length: Number of tokens per sequence of the dataset, including padding.
    """
    del vocabulary, length
    return None

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Checks the model and returns {}, because the objective has no head.

    Args:
      model: Linen module of the model.
      rng: Random key.

    Raises:
      ConfigError: If the model has no decoder.
    """
    if not hasattr(model, 'decode'):
      raise self._model_error(model)
    return super().init_heads(model, rng)

  def _model_error(
    self, model, vocabulary_error: errors.VocabularyError | None = None
  ) -> errors.ConfigError:
    """Returns the error for a model without a decoder.

    Args:
      model: Linen module of the model.
      vocabulary_error: Error that the same run would raise next. It becomes
        part of the message. None if there is no such error.
    """
    also = f'. {vocabulary_error.what}' if vocabulary_error else ''
    fix = vocabulary_error.fix if vocabulary_error else ''
    return errors.ConfigError(
      f'Objective {self.name!r} requires a model with an encoder and a '
      f'decoder{also}',
      got=type(model).__name__,
      expected='an EncoderDecoder',
      fix="Replace the model's gin file with the gin file of an "
      'encoder-decoder, such as --gin_file=models/tiny_t5.gin, '
      '--gin_file=models/transformer_base.gin or '
      f'--gin_file=models/mt5_base.gin. {fix}'.strip(),
    )

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the cross-entropy of the target sequences."""
    vocabulary = context.vocabulary
    rows_rng, dropout_rng = jax.random.split(context.rng)
    source, target_rows, scored = self.rows(batch, context, rows_rng)
    source = with_symbols(source, self.source_symbols, vocabulary)
    first = teacher_forcing.start_ids(
      teacher_forcing.row_languages(target_rows, vocabulary),
      self.decoder_start,
      vocabulary,
    )
    target = teacher_forcing.make_target(target_rows, first, vocabulary, scored)
    target_params = model_calls.bind_language_params(
      model, params, target_rows, vocabulary
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
    """Returns the metrics by language of the target."""
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
  """Replaces `<s>` and `</s>` in each sequence with other special symbols.

  For LANGUAGE_SUFFIX and a language with symbol 5, token_ids [[1, 7, 2, 0]]
  become [[7, 2, 5, 0]].

  Args:
    rows: Mapping from batch keys to arrays of the sequences, of shape [B, T].
    symbols: Special symbols that surround the text in the returned sequences.
    vocabulary: Vocabulary specification with special ids and language symbols.

  Raises:
    VocabularyError: If the vocabulary has no language symbols.
  """
  if symbols is SourceSymbols.BOS:
    return rows
  token_ids = rows[batch_keys.TOKEN_IDS]
  present = masking.is_present(rows, vocabulary)
  next_is_present = jnp.pad(present[:, 1:], ((0, 0), (0, 1)))
  next_ids = jnp.pad(token_ids[:, 1:], ((0, 0), (0, 1)))
  languages = teacher_forcing.row_languages(rows, vocabulary)
  symbol = teacher_forcing.language_symbols(languages, vocabulary)
  token_ids = jnp.where(
    next_is_present,
    next_ids,
    jnp.where(present, symbol[:, None].astype(token_ids.dtype), token_ids),
  )
  return {**rows, batch_keys.TOKEN_IDS: token_ids}


@class_registry.register('translation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(SequenceToSequence):
  """Translation of a pair's first text to the second (ExampleLayout.DUAL).

  If `mask_ratio` is set, the encoder reads the masked first text. Section 7 of
  VECO calls this task TLM for its mBART baseline.

  Attributes:
    label_smoothing: Label smoothing factor e in [0, 1). The default follows
      Vaswani et al. (2017).
    mask_ratio: Fraction of the source's text tokens to select for masking, or a
      function of the step. If 0, the source is not masked.
    max_mask_ratio: Upper bound for `mask_ratio`, which is required if the ratio
      is a schedule.
    mask_probability: Probability of replacing a selected token by the mask
      symbol.
    random_probability: Probability of replacing a selected token by a random
      word. Selected tokens that are not replaced by the mask symbol or a random
      word are kept unchanged.
    random_words: Set of words from which random replacements are drawn.
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
    if self._is_masking:
      # The constructor of the masked LM objective checks the settings.
      masked_lm.make_masked_lm(self)

  def rows(
    self, batch, context: objective_base.ObjectiveContext, rng: jax.Array
  ):
    """Returns source sequences, masked if `mask_ratio` is set, and targets."""
    source, target = sentence_pairs.split_sides(batch, objective=self.name)
    if self._is_masking:
      token_ids, _ = masked_lm.make_masked_lm(self).mask(source, context, rng)
      source = {**source, batch_keys.TOKEN_IDS: token_ids}
    return source, target, None

  @property
  def _is_masking(self) -> bool:
    """True if the source is masked."""
    return callable(self.mask_ratio) or self.mask_ratio != 0
