"""How sentences are translated: the search, and the symbols around rows."""

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
  """How sentences are translated; enum fields take strings, too.

  Attributes:
    beam_size: unfinished hypotheses kept (VECO: 5); 1 is greedy decoding.
    length_penalty: a hypothesis of n tokens scores log p / n^length_penalty.
    early_stopping: when the search for a sentence ends: EXACT or FULL.
    n_best: hypotheses kept for each sentence.
    max_length: tokens that are read of a sentence and generated for it at
      most, special ones included; None: as many as the model has positions.
    max_length_ratio: a sentence of n tokens, special ones included, becomes
      at most `max_length_ratio * n + 10` tokens.
    decoder_start: the decoder's first input; None: as the run was trained.
    source_symbols: special symbols of the encoder's rows; None: likewise.
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
        'A translation has an impossible n_best',
        got=self.n_best,
        expected=f'1 to the beam size, {self.beam_size}',
        where='TranslationOptions.n_best',
      )


def decoding_symbols(
  options: TranslationOptions, objectives: Mapping[str, object]
) -> tuple[DecoderStart, SourceSymbols]:
  """The decoder's start and the encoder's symbols, given or as trained.

  Args:
    options: what is given.
    objectives: what the run trained, by name.

  Raises:
    ConfigError: the decoder's start is neither given nor known.
  """
  trained = [
    o for o in objectives.values() if isinstance(o, seq2seq.SequenceToSequence)
  ]
  trained = [
    o for o in trained if isinstance(o, seq2seq.Translation)
  ] or trained
  starts = {o.decoder_start for o in trained}
  start = options.decoder_start or _only(starts)
  if start is None:
    raise errors.ConfigError(
      "It is not known what the model's decoder starts with",
      got=', '.join(sorted(s.value for s in starts))
      or 'no sequence-to-sequence objective recorded',
      expected='decoder_start, one of '
      + ', '.join(s.value for s in DecoderStart),
      fix='give decoder_start',
    )
  return start, options.source_symbols or _only(
    {o.source_symbols for o in trained}
  ) or SourceSymbols.BOS


def _only(values: set):
  return next(iter(values)) if len(values) == 1 else None
