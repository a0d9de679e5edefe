"""Settings for training a vocabulary.

The settings and the training text together determine the vocabulary.
"""

import dataclasses
import enum
import re
from typing import Annotated

import annotated_types

from xlflax.data.corpus import corpus_files
from xlflax.utils import errors, validation

DEFAULT_ALPHA = 0.7


class Anchors(enum.Enum):
  """Rule that determines which tokens the languages of a vocabulary share.

  Attributes:
    JOINT: The languages share all tokens. One model is trained on all
      languages.
    SHARED: The languages share tokens that are identical strings in their
      models.
    NONE: The languages share only special symbols.
    SEPARATE: The languages share only special symbols. Each other token id
      represents a different token in each language.
  """

  JOINT = 'joint'
  SHARED = 'shared'
  NONE = 'none'
  SEPARATE = 'separate'


class ModelType(enum.Enum):
  """Algorithm for training a SentencePiece model."""

  UNIGRAM = 'unigram'
  BPE = 'bpe'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
  """Settings for training a vocabulary.

  The settings and the training text together determine the vocabulary.

  Attributes:
    size: Number of tokens, including special symbols. If there is one model for
      each language, this is the size of each model. If None, the size is
      determined by `merges`.
    merges: Number of tokens that byte-pair encoding creates by merging. The
      vocabulary size is then the number of special symbols, characters and
      merges, plus 256 if `byte_fallback` is set.
    anchors: Rule that determines which tokens the languages share. With JOINT,
      one model is trained on all languages, and otherwise one model is trained
      for each language.
    sentinels: Number of sentinel symbols `<extra_id_0>`, …, which represent
      dropped spans.
    model_type: Training algorithm: unigram language model or byte-pair
      encoding.
    alpha: Exponent α for language sampling, p ∝ N^α. If None, the exponent is
      0.7. The setting must be None unless `anchors` is JOINT.
    byte_fallback: Whether to encode unknown characters as bytes, so that no
      text is unknown. This adds 256 tokens.
    character_coverage: Fraction of the training text's characters that must be
      covered by tokens.
    normalization: SentencePiece normalization rule: nmt_nfkc, nfkc,
      nmt_nfkc_cf, nfkc_cf or identity.
    max_sentences: Maximum number of training sentences for each model.
    languages: Languages that get a language symbol in addition to the languages
      of the corpus. This requires JOINT anchors.
    seed: Random seed for sampling sentences.
    num_threads: Number of training threads. The number is part of the settings
      because the order of floating-point sums depends on it.

  Raises:
    ConfigError: If a setting is out of range or conflicts with another setting.
  """

  size: validation.PositiveInt | None = None
  merges: validation.PositiveInt | None = None
  anchors: Anchors = Anchors.JOINT
  sentinels: validation.NonNegativeInt = 0
  model_type: ModelType = ModelType.UNIGRAM
  alpha: validation.SamplingExponent | None = None
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
          'The language code is invalid',
          got=code,
          expected=corpus_files.LANGUAGE_RULE,
        )

  def as_dict(self) -> dict:
    """Returns the settings as a dict of JSON values."""
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
        'Exactly one of `size` and `merges` must be set for a vocabulary, '
        f'but size={self.size} and merges={self.merges}',
        fix='Pass --size=N, or --num_merges=N with --model_type=bpe.',
      )
    if self.merges is not None and self.model_type is not ModelType.BPE:
      raise errors.ConfigError(
        '`merges` can only be used with byte-pair encoding (model_type=bpe)',
        got=self.model_type.value,
        fix='Pass --size=N, or --model_type=bpe.',
      )

  def _check_union(self):
    """Raises a ConfigError if a setting requires one joint model."""
    for name in ('alpha', 'languages'):
      if getattr(self, name) not in (None, ()):
        raise errors.ConfigError(
          f'`{name}` requires one joint model for all languages, but '
          f'--vocab_sharing is {self.anchors.value!r}',
          got=getattr(self, name),
          fix=f'Omit --{name}, or pass --vocab_sharing=joint.',
        )
