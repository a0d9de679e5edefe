"""How to generate."""

import dataclasses
import enum

from xlflax.utils import errors, validation


class Method(enum.Enum):
  """How the next token is chosen."""

  GREEDY = 'greedy'  # the most probable one
  SAMPLE = 'sample'  # drawn from the distribution
  BEAM = 'beam'  # those of the most probable rows, beam_size at a time


class EarlyStopping(enum.Enum):
  """When the beam search of a row ends before its length limit.

  EXACT: when no unfinished hypothesis can become better than those that are
    returned. FULL: with beam_size finished ones, as in fairseq, even if the
    best is still unfinished: where the end symbol is among the most probable
    tokens in the middle of a sentence, that sentence loses to its own
    beginning.
  """

  EXACT = 'exact'
  FULL = 'full'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions:
  """How to generate; enum fields also take their values as strings.

  Attributes:
    method: GREEDY, SAMPLE or BEAM.
    max_length: tokens generated at most, the end symbol included, the start
      excluded.
    num_samples: hypotheses returned for each row: samples, or the best of the
      beams; 1 for GREEDY.
    beam_size: BEAM: unfinished hypotheses kept (VECO: 5).
    length_penalty: BEAM: a hypothesis of n tokens, the end symbol included,
      scores log p / n^length_penalty (as in fairseq, the penalty of which it
      is, and in transformers): 0 prefers short ones, 1 has none.
    early_stopping: BEAM: EXACT or FULL.
    temperature: SAMPLE: divides the logits.
    top_k: SAMPLE: only from this many most probable tokens; None: from all.
    top_p: SAMPLE: only from the most probable tokens that together have at
      least this probability, after `top_k` (Holtzman et al. 2020).
    suppressed_ids: tokens that are never generated.

  Raises:
    ConfigError: a value is out of range or does not fit the method.
  """

  method: Method = Method.BEAM
  max_length: validation.PositiveInt = 128
  num_samples: validation.PositiveInt = 1
  beam_size: validation.PositiveInt = 5
  length_penalty: validation.FiniteFloat = 1.0
  early_stopping: EarlyStopping = EarlyStopping.EXACT
  temperature: validation.PositiveFloat = 1.0
  top_k: validation.PositiveInt | None = None
  top_p: validation.PositiveFraction = 1.0
  suppressed_ids: tuple[validation.NonNegativeInt, ...] = ()

  def __post_init__(self):
    max_samples = {Method.GREEDY: 1, Method.BEAM: self.beam_size}.get(
      self.method
    )
    if max_samples is not None and self.num_samples > max_samples:
      raise errors.ConfigError(
        'Decoding has an impossible num_samples',
        got=self.num_samples,
        expected=f'at most {max_samples} with the method {self.method.value!r}',
        where='DecodingOptions.num_samples',
      )

  @property
  def rows_per_source(self) -> int:
    """Rows decoded together for each row of the source."""
    return self.beam_size if self.method is Method.BEAM else self.num_samples
