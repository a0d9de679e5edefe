"""Deterministic sampling of sentences from several languages.

In ECS (section 2) and XLM (section 3.1), vocabularies are trained on sentences
that are sampled with an exponent α: a language with N sentences has a sampling
rate proportional to N^α, so that the vocabulary is not dominated by languages
with much text.
"""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol

import numpy as np

from xlflax.data.corpus.corpus_directory import TRAIN, Line, Pair

MAX_BYTES = 4096


class MultilingualText(Protocol):
  """Monolingual and parallel text in several languages.

  The interface is implemented by corpus directories
  (`corpus_directory.Corpus`) and by SeqIO mixtures
  (`seqio_tasks.mixture_text.MixtureText`). `str(text)` is the location of the
  text for messages.
  """

  OPENED_BY: ClassVar[str] = 'xlflax.data.Corpus({})'

  @property
  def languages(self) -> tuple[str, ...]:
    """All languages with text in any split, sorted."""

  def monolingual_languages(self, split: str = TRAIN) -> tuple[str, ...]:
    """Returns the languages with monolingual text in a split."""

  def parallel_pairs(self, split: str = TRAIN) -> tuple[tuple[str, str], ...]:
    """Returns the language pairs with parallel text in a split."""

  def monolingual(self, language: str, split: str = TRAIN) -> Iterator[Line]:
    """Yields the lines of a language, always in the same order."""

  def parallel(
    self, first: str, second: str, split: str = TRAIN
  ) -> Iterator[Pair]:
    """Yields the sentence pairs of two languages, always in the same order."""

  def count(self, *languages: str, split: str = TRAIN) -> int:
    """Returns the number of lines or, for two languages, sentence pairs.

    Args:
      *languages: One language code, or the two codes of a language pair.
      split: Name of the split.
    """

  def validate(self) -> dict[str, int]:
    """Reads all text and counts the lines or pairs by folder or task."""


@dataclasses.dataclass(frozen=True)
class Quota:
  """Number of sentences that a language has, and the number to draw.

  Attributes:
    available: Number of sentences available for the language.
    drawn: Number of sentences to draw for the language.
  """

  available: int
  drawn: int


def iterate_sentences(
  corpus: MultilingualText, language: str, *, split: str = TRAIN
) -> Iterator[str]:
  """Yields a language's sentences from monolingual and parallel text.

  Monolingual text comes first, followed by the language's sentences in parallel
  text.
  """
  if language in corpus.monolingual_languages(split):
    for line in corpus.monolingual(language, split):
      yield line.text
  for pair in corpus.parallel_pairs(split):
    if language in pair:
      side = pair.index(language)
      for sides in corpus.parallel(*pair, split=split):
        yield sides[side]


def count_sentences(
  corpus: MultilingualText, *, split: str = TRAIN
) -> dict[str, int]:
  """Counts the sentences that `iterate_sentences` yields for each language.

  Languages without sentences are omitted.
  """
  counts = dict.fromkeys(corpus.languages, 0)
  for language in corpus.monolingual_languages(split):
    counts[language] += corpus.count(language, split=split)
  for pair in corpus.parallel_pairs(split):
    for language in pair:
      counts[language] += corpus.count(*pair, split=split)
  return {language: n for language, n in counts.items() if n}


def exponential_rates(
  sizes: Mapping[str, int], alpha: float
) -> dict[str, float]:
  """Computes sampling rates p_i = N_i^α / Σ_j N_j^α.

  For example, `exponential_rates({'en': 100, 'sw': 1}, 0.5)` is `{'en': 10/11,
  'sw': 1/11}`.

  Args:
    sizes: Mapping from each language i to its number of sentences N_i.
    alpha: Exponent α. If it is 1, the rates are proportional to the sizes. If
      it is 0, all rates are equal.
  """
  powers = {name: float(size) ** alpha for name, size in sizes.items()}
  total = sum(powers.values())
  return {name: power / total for name, power in powers.items()}


def sampling_quotas(
  sizes: Mapping[str, int], *, alpha: float, max_sentences: int
) -> dict[str, Quota]:
  """Computes the number of sentences to draw for each language.

  The total equals the number of available sentences, but is at most
  `max_sentences`. It is distributed in proportion to N^α. If a language has
  fewer sentences than its quota, they are repeated.

  Args:
    sizes: Mapping from each language to its number of available sentences.
    alpha: Exponent α of the sampling rates.
    max_sentences: Maximum total number of sentences to draw.
  """
  total = min(sum(sizes.values()), max_sentences)
  rates = exponential_rates(sizes, alpha)
  return {
    name: Quota(sizes[name], max(1, round(total * rate)))
    for name, rate in rates.items()
  }


def sample_sentences(
  corpus: MultilingualText, quotas: Mapping[str, Quota], *, seed: int
) -> Iterator[str]:
  """Yields randomly sampled sentences, one language after another.

  For n available sentences and a quota of k, each sentence is yielded k // n
  times, and k % n randomly chosen sentences are yielded once more. Texts of
  more than 4096 bytes are split at spaces, because SentencePiece skips longer
  texts.

  Args:
    corpus: Corpus that contains the text.
    quotas: Number of sentences to yield for each language.
    seed: Random seed for choosing the sentences that are yielded one more time
      than the other sentences.
  """
  for language, quota in quotas.items():
    repeats, remainder = divmod(quota.drawn, quota.available)
    key = zlib.crc32(language.encode())
    rng = np.random.default_rng([seed, key])
    extra = np.zeros(quota.available, np.bool_)
    extra[
      rng.choice(quota.available, remainder, replace=False, shuffle=False)
    ] = 1
    for text, is_extra in zip(
      iterate_sentences(corpus, language), extra, strict=True
    ):
      copies = repeats + is_extra
      if not copies:
        continue
      for segment in split_long_text(text):
        for _ in range(copies):
          yield segment


def split_long_text(text: str, *, max_bytes: int = MAX_BYTES) -> Iterator[str]:
  """Splits a text at spaces into segments of at most `max_bytes` UTF-8 bytes.

  For example, `split_long_text('one two three', max_bytes=8)` yields `'one
  two'` and `'three'`. A word that is longer than `max_bytes` is split between
  characters.
  """
  data = text.encode()
  while len(data) > max_bytes:
    end = data.rfind(b' ', 1, max_bytes + 1)
    if end < 0:
      end = max_bytes
      while data[end] & 0xC0 == 0x80:  # A continuation byte of a character.
        end -= 1
    yield data[:end].decode()
    data = data[end:].lstrip(b' ')
  if data:
    yield data.decode()
