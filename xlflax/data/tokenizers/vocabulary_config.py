"""What determines a vocabulary, given the text."""

import dataclasses
import enum
import re
from typing import Annotated

import annotated_types

from xlflax.data.corpus import corpus_files
from xlflax.utils import errors, validation

DEFAULT_ALPHA = 0.7


class Anchors(enum.Enum):
  """Which entries languages have in common."""

  JOINT = 'joint'  # all: one model over all languages
  SHARED = 'shared'  # identical strings of the languages' own models
  NONE = 'none'  # special symbols only
  SEPARATE = 'separate'  # special symbols only, and ids overlap


class ModelType(enum.Enum):
  """How SentencePiece chooses pieces."""

  UNIGRAM = 'unigram'
  BPE = 'bpe'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """What determines a vocabulary, given the text.

  Attributes:
    size: number of entries, special symbols included; of each language's
      model, unless the anchors are joint. None: told by `merges`.
    merges: number of pieces that byte-pair encoding makes by merging, instead
      of a size: size = special symbols (+ 256 bytes) + characters + merges.
    anchors: one model over all languages, or one for each and which of their
      entries are one.
    sentinels: symbols `<extra_id_0>`, … that stand for dropped spans.
    model_type: unigram language model or byte-pair encoding.
    alpha: exponent of the languages' sampling, p ∝ N^α, 0.7 if it is None;
      a model for each language has none.
    byte_fallback: encode unknown characters as bytes (256 entries more), so
      that nothing is unknown.
    character_coverage: share of character occurrences that get a piece.
    normalization: SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf,
      identity.
    max_sentences: at most so many sentences are read for a model.
    languages: further languages to give a symbol, beside the corpus's; for
      joint anchors only.
    seed: of the choice of sentences.
    num_threads: recorded, as the order of float sums depends on it.

  Raises:
    ConfigError: a setting is out of range, or does not fit the others.
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
          'Not a language code', got=code, expected=corpus_files.LANGUAGE_RULE
        )

  def as_dict(self) -> dict:
    """The settings as JSON values."""
    values = dataclasses.asdict(self)
    return values | {
      'model_type': self.model_type.value,
      'anchors': self.anchors.value,
      'languages': list(self.languages),
    }

  def _check_size(self):
    if (self.size is None) == (self.merges is None):
      raise errors.ConfigError(
        'A vocabulary needs either a size or a number of merges',
        got=f'size {self.size}, merges {self.merges}',
        fix='give --size=N, or --num_merges=N with --model_type=bpe',
      )
    if self.merges is not None and self.model_type is not ModelType.BPE:
      raise errors.ConfigError(
        'Only byte-pair encoding has merges',
        got=self.model_type.value,
        expected='model_type bpe',
        fix='give --size=N, or --model_type=bpe',
      )

  def _check_union(self):
    for name in ('alpha', 'languages'):
      if getattr(self, name) not in (None, ()):
        raise errors.ConfigError(
          f'A vocabulary of one model for each language has no {name}',
          got=f'anchors {self.anchors.value}, {name} {getattr(self, name)}',
          expected='the languages with training text, each with its own',
          fix=f'leave out --{name}, or train with --vocab_sharing=joint',
        )
