"""Options of text generation."""

import dataclasses
import enum

from xlflax.utils import errors, validation


class Method(enum.Enum):
  """Method of selecting the next token."""

  # The most probable token.
  GREEDY = 'greedy'
  # A token sampled from the distribution.
  SAMPLE = 'sample'
  # Beam search for the most probable sequences.
  BEAM = 'beam'


class EarlyStopping(enum.Enum):
  """Criterion for ending a sequence's beam search before its length limit.

  EXACT ends the search when no unfinished hypothesis can become better than the
  hypotheses to return. FULL ends the search when there are beam_size finished
  hypotheses, as in fairseq, even if the best hypothesis is unfinished. If the
  end symbol is among the most probable tokens in the middle of a sentence, FULL
  may therefore return only the start of the sentence.
  """

  EXACT = 'exact'
  FULL = 'full'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions:
  """Options of text generation.

  Enum fields also accept their values as strings.

  Attributes:
    method: Decoding method: GREEDY, SAMPLE or BEAM.
    max_length: Maximum number of generated tokens, including the end symbol and
      excluding the start symbols.
    num_samples: Number of hypotheses to return per source sequence. SAMPLE
      draws this number of samples, and BEAM returns its best hypotheses. It
      must be 1 for GREEDY and at most `beam_size` for BEAM.
    beam_size: Number of unfinished hypotheses that BEAM keeps (VECO: 5).
    length_penalty: Exponent of the length in BEAM's score. A hypothesis of n
      tokens, including the end symbol, has the score log p / n^length_penalty,
      as in fairseq and transformers. With 0, short hypotheses are favored. With
      1, the score is the mean log probability per token.
    early_stopping: Criterion for ending BEAM before the length limit: EXACT if
      no better hypothesis is possible, or FULL if `beam_size` hypotheses are
      finished.
    temperature: Temperature by which SAMPLE divides the logits.
    top_k: Number of most probable tokens that SAMPLE draws from. If None,
      SAMPLE draws from all tokens.
    top_p: Probability threshold of nucleus sampling (Holtzman et al. 2020).
      After `top_k` is applied, SAMPLE draws from the smallest set of most
      probable tokens whose total probability is at least `top_p`.
    suppressed_ids: Ids of tokens that are never generated.

  Raises:
    ConfigError: If a value is out of range or does not apply to the method.
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
        f'`num_samples` must be at most {max_samples} for the decoding method '
        f'{self.method.value!r}',
        got=self.num_samples,
        where=errors.field_location(self, 'num_samples'),
      )
    if self.method is not Method.SAMPLE:
      self._check_sampling_fields()

  def _check_sampling_fields(self):
    """Raises a ConfigError if a field is set that only SAMPLE uses."""
    for name in ('temperature', 'top_k', 'top_p'):
      value = getattr(self, name)
      if value != getattr(type(self), name):
        raise errors.ConfigError(
          f'`{name}` has no effect with the decoding method '
          f'{self.method.value!r}',
          got=value,
          where=errors.field_location(self, name),
          fix=f"Set `method='sample'`, or remove the value of `{name}`.",
        )

  @property
  def rows_per_source(self) -> int:
    """Number of sequences that are decoded in parallel per source sequence."""
    return self.beam_size if self.method is Method.BEAM else self.num_samples
