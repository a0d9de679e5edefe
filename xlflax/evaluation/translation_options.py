"""Options for translation, such as the beam size and the decoder start."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import annotated_types

from xlflax.models import decoding
from xlflax.objectives.pretraining import seq2seq
from xlflax.objectives.pretraining.seq2seq import SourceSymbols
from xlflax.objectives.teacher_forcing import DecoderStart
from xlflax.utils import class_registry, errors, validation


@class_registry.register('translation_options')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationOptions:
  """Options for translating text. Enum fields also accept strings.

  Attributes:
    beam_size: Number of unfinished hypotheses to keep in beam search (VECO: 5).
      A beam size of 1 is greedy decoding.
    length_penalty: Exponent of the length penalty. A hypothesis of n tokens
      with probability p has the score log p / n^length_penalty.
    early_stopping: Criterion for ending the search for a sentence: EXACT or
      FULL (see `decoding.EarlyStopping`).
    n_best: Number of hypotheses to return for each sentence.
    max_length: Maximum number of tokens of a source sentence and of its
      translation, including special tokens. If None, the model's maximum length
      is used.
    max_length_ratio: Length limit of translations relative to their source: a
      sentence of n tokens is translated to at most `max_length_ratio * n + 10`
      tokens, including special tokens.
    decoder_start: First input token of the decoder. If None, the token used in
      training.
    source_symbols: Special tokens in the encoder's input. If None, the tokens
      used in training.
  """

  beam_size: validation.PositiveInt = 5
  length_penalty: validation.FiniteFloat = 1.0
  early_stopping: decoding.EarlyStopping = decoding.EarlyStopping.EXACT
  n_best: validation.PositiveInt = 1
  max_length: Annotated[int, annotated_types.Ge(3)] | None = None
  max_length_ratio: validation.PositiveFloat = 3.0
  decoder_start: DecoderStart | None = None
  source_symbols: SourceSymbols | None = None

  def __post_init__(self):
    if self.n_best > self.beam_size:
      raise errors.ConfigError(
        f'`n_best` must be at most `beam_size`, which is {self.beam_size}',
        got=self.n_best,
        where=errors.field_location(self, 'n_best'),
      )


def decoding_symbols(
  options: TranslationOptions, objectives: Mapping[str, object]
) -> tuple[DecoderStart, SourceSymbols]:
  """Returns the decoder's start symbol and the source's special tokens.

  Args:
    options: Translation options, which take precedence over training settings.
    objectives: Training objectives of the run, by name.

  Raises:
    ConfigError: If the start symbol is not given in `options` and cannot be
      determined from the objectives.
  """
  # Translation objectives take precedence over other objectives.
  trained = [
    objective
    for objective in objectives.values()
    if isinstance(objective, seq2seq.SequenceToSequence)
  ]
  trained = [
    objective
    for objective in trained
    if isinstance(objective, seq2seq.Translation)
  ] or trained

  starts = {objective.decoder_start for objective in trained}
  start = options.decoder_start or _single_value(starts)
  if start is None:
    raise errors.ConfigError(
      "The decoder's start symbol cannot be determined from the training "
      'objectives',
      got=', '.join(sorted(symbol.value for symbol in starts))
      or 'no sequence-to-sequence objective in the run',
      expected='one of ' + ', '.join(symbol.value for symbol in DecoderStart),
      fix='Pass --decoder_start_token to `xlflax translate`, or set '
      'TranslationOptions.decoder_start.',
    )

  source_symbols = options.source_symbols or _single_value(
    {objective.source_symbols for objective in trained}
  )
  return start, source_symbols or SourceSymbols.BOS


def _single_value(values: set):
  """Returns the only value in a set, or None for zero or several values."""
  return next(iter(values)) if len(values) == 1 else None
