"""Settings that determine a vocabulary together with its training text."""

import dataclasses
import enum
import re
from typing import Annotated

import annotated_types

from xlflax.data.corpus import corpus_files
from xlflax.utils import errors, validation

DEFAULT_ALPHA = 0.7


class Anchors(enum.Enum):
  """Tokens that languages share.

  Attributes:
    JOINT: All tokens. One model is trained on all languages.
    SHARED: Identical strings in the models of the languages.
    NONE: Special symbols only.
    SEPARATE: Special symbols only. The ids of the languages overlap.
  """

  JOINT = 'joint'
  SHARED = 'shared'
  NONE = 'none'
  SEPARATE = 'separate'


class ModelType(enum.Enum):
  """SentencePiece algorithm."""

  UNIGRAM = 'unigram'
  BPE = 'bpe'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
  """Settings that determine a vocabulary together with its training text.

  Attributes:
    size: Number of tokens, including special symbols. With one model per
      language, the size of each model. If None, `merges` determines the size.
    merges: Number of tokens that byte-pair encoding creates by merging. The
      size is then the number of special symbols, characters and merges, plus
      256 with `byte_fallback`.
    anchors: Tokens that languages share. With JOINT, one model is trained on
      all languages, and otherwise one model is trained for each language.
    sentinels: Number of symbols `<extra_id_0>`, … that represent dropped spans.
    model_type: Unigram language model or byte-pair encoding.
    alpha: Exponent of language sampling, p ∝ N^α. If None, 0.7. Must be None
      unless `anchors` is JOINT.
    byte_fallback: Whether to encode unknown characters as bytes, so that no
      text is unknown. Adds 256 tokens.
    character_coverage: Fraction of character occurrences that the tokens cover.
    normalization: Normalization rule of SentencePiece: nmt_nfkc, nfkc,
      nmt_nfkc_cf, nfkc_cf or identity.
    max_sentences: Maximum number of training sentences of a model.
    languages: Languages that get a symbol in addition to those of the corpus.
      Requires JOINT anchors.
    seed: Random seed for sampling sentences.
    num_threads: Number of training threads. It is recorded because the order of
      floating-point sums depends on it.

  Raises:
    ConfigError: If a setting is out of range or conflicts with another setting.
  """

  size: validation.PositiveInt | None = None
  merges: validation.PositiveInt | None = None
  anchors: Anchors = Anchors.JOINT
  sentinels: validation.NonNegativeInt = 0
  model_type: ModelType = ModelType.UNIGRAM
  alpha: validation.Fraction | None = None
  byte_fallback: bool = False
  character_coverage: Annotated[
    float, annotated_types.Interval(ge=0.98, le=1)
  ] = 0.9995
  normalization: str = 'nmt_nfkc'
  max_sentences: validation.PositiveInt = 2_000_000
  languages: tuple[str, ...] = ()
  seed: validation.Seed = 0
  num_threads: validation.NumThreads = 4

  def __post_init__(self):
    if self.anchors is Anchors.JOINT:
      if self.alpha is None:
        object.__setattr__(self, 'alpha', DEFAULT_ALPHA)
    else:
      self._check_union()
    self._check_size()
    for code in self.languages:
      if not re.fullmatch(corpus_files.LANGUAGE_PATTERN, code):
        raise errors.ConfigError(
          'The language code is invalid.',
          got=code,
          expected=corpus_files.LANGUAGE_RULE,
        )

  def as_dict(self) -> dict:
    """Returns the settings as JSON values."""
    values = dataclasses.asdict(self)
    return values | {
      'model_type': self.model_type.value,
      'anchors': self.anchors.value,
      'languages': list(self.languages),
    }

  def _check_size(self):
    """Raises a ConfigError unless exactly one of size and merges is set."""
    if (self.size is None) == (self.merges is None):
      raise errors.ConfigError(
        'A vocabulary requires either `size` or `merges`.',
        got=f'size {self.size}, merges {self.merges}',
        fix='Pass --size=N, or --num_merges=N with --model_type=bpe.',
      )
    if self.merges is not None and self.model_type is not ModelType.BPE:
      raise errors.ConfigError(
        '`merges` requires byte-pair encoding.',
        got=self.model_type.value,
        expected='model_type bpe',
        fix='Pass --size=N, or --model_type=bpe.',
      )

  def _check_union(self):
    """Raises a ConfigError if a setting requires one joint model."""
    for name in ('alpha', 'languages'):
      if getattr(self, name) not in (None, ()):
        raise errors.ConfigError(
          f'`{name}` requires one joint model for all languages.',
          got=f'anchors {self.anchors.value}, {name} {getattr(self, name)}',
          expected='anchors joint',
          fix=f'Omit --{name}, or pass --vocab_sharing=joint.',
        )
