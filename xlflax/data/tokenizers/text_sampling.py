"""Draws sentences of every language of a corpus, p ∝ N^α; deterministic.

For vocabulary training: ECS section 2 and XLM section 3.1 sample sentences
with an exponent, so that large languages don't take all pieces.
"""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from xlflax.data.corpus.corpus_directory import TRAIN, Corpus

MAX_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Quota:
  """How many sentences a language has, and how many are drawn."""

  available: int
  drawn: int


def iterate_sentences(
  corpus: Corpus, language: str, *, split: str = TRAIN
) -> Iterator[str]:
  """Every sentence of a language: monolingual text, then sides of pairs."""
  if language in corpus.monolingual_languages(split):
    for line in corpus.monolingual(language, split):
      yield line.text
  for pair in corpus.parallel_pairs(split):
    if language in pair:
      side = pair.index(language)
      for sides in corpus.parallel(*pair, split=split):
        yield sides[side]


def count_sentences(corpus: Corpus, *, split: str = TRAIN) -> dict[str, int]:
  """Sentences of each language as `iterate_sentences` yields them."""
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
  """p_i = N_i^α / Σ_j N_j^α.

  `exponential_rates({'en': 100, 'sw': 1}, 0.5)` is `{'en': 10/11,
  'sw': 1/11}`; α = 1 keeps the proportions, α = 0 makes them equal.
  """
  powers = {name: float(size) ** alpha for name, size in sizes.items()}
  total = sum(powers.values())
  return {name: power / total for name, power in powers.items()}


def sampling_quotas(
  sizes: Mapping[str, int], *, alpha: float, max_sentences: int
) -> dict[str, Quota]:
  """Sentences to draw: min(all there are, `max_sentences`) shared p ∝ N^α.

  A language may get more than it has: its sentences are then repeated.
  """
  total = min(sum(sizes.values()), max_sentences)
  rates = exponential_rates(sizes, alpha)
  return {
    name: Quota(sizes[name], max(1, round(total * rate)))
    for name, rate in rates.items()
  }


def sample_sentences(
  corpus: Corpus, quotas: Mapping[str, Quota], *, seed: int
) -> Iterator[str]:
  """Yields the drawn sentences, language by language.

  Of n sentences and a quota k, each comes k // n times and a random k % n of
  them once more. Texts of more than 4096 bytes are cut at spaces, as
  SentencePiece skips longer ones.
  """
  for language, quota in quotas.items():
    repeats, remainder = divmod(quota.drawn, quota.available)
    key = zlib.crc32(language.encode())
    rng = np.random.default_rng([seed, key])
    extra = np.zeros(quota.available, np.bool_)
    extra[
      rng.choice(quota.available, remainder, replace=False, shuffle=False)
    ] = 1
    for text, more in zip(
      iterate_sentences(corpus, language), extra, strict=True
    ):
      for part in split_long_text(text) if repeats + more else ():
        for _ in range(repeats + more):
          yield part


def split_long_text(text: str, *, max_bytes: int = MAX_BYTES) -> Iterator[str]:
  """Cuts a text into parts of at most `max_bytes` UTF-8 bytes, at spaces.

  `split_long_text('one two three', max_bytes=8)` gives `'one two'`, `'three'`; a word
  longer than that is cut inside.
  """
  data = text.encode()
  while len(data) > max_bytes:
    end = data.rfind(b' ', 1, max_bytes + 1)
    if end < 0:
      end = max_bytes
      while data[end] & 0xC0 == 0x80:  # Inside a character of several bytes.
        end -= 1
    yield data[:end].decode()
    data = data[end:].lstrip(b' ')
  if data:
    yield data.decode()
