"""Random sentences made of token IDs, and a vocabulary that encodes them."""

from collections.abc import Sequence

import numpy as np

from benchmarks import shapes
from xlflax.data.tokenizers import vocabulary_spec


class NumberVocabulary:
  """Vocabulary for texts that consist of token IDs, such as `17 4 23`.

  It implements the vocabulary methods that `evaluation` requires, at nearly no
  cost.
  """

  needs_language = False

  def __init__(self, size: int):
    self.spec = vocabulary_spec.VocabularySpec(
      size=size,
      pad_id=shapes.PAD,
      bos_id=shapes.BOS,
      eos_id=shapes.EOS,
      unk_id=shapes.UNK,
      mask_id=shapes.MASK,
      special_ids=shapes.SPECIAL_IDS,
      languages=('en', 'de'),
    )

  def encode_each(self, texts: Sequence[str], language_ids) -> list[list[int]]:
    """Returns the token IDs of each text, without special tokens."""
    del language_ids
    return [[int(word) for word in text.split()] for text in texts]

  def decode(self, ids, *, language: str | None = None) -> str:
    """Returns the text of token IDs, without special tokens."""
    del language
    return ' '.join(str(i) for i in ids if i not in shapes.SPECIAL_IDS)

  def language_id(self, code: str) -> int:
    """Returns the index of a language, given its code."""
    return self.spec.languages.index(code)


def make_random_sentences(
  num_sentences: int, *, vocabulary: int, max_words: int, seed: int = 0
) -> list[str]:
  """Returns random sentences with at least 4 words, most of them short.

  Args:
    num_sentences: Number of sentences.
    vocabulary: Vocabulary size.
    max_words: Maximum number of words in a sentence.
    seed: Random seed for the lengths and words.
  """
  rng = np.random.default_rng(seed)
  lengths = np.clip(
    rng.lognormal(np.log(max_words / 4), 0.6, num_sentences), 4, max_words
  )
  return [
    ' '.join(
      map(str, rng.integers(len(shapes.SPECIAL_IDS), vocabulary, int(length)))
    )
    for length in lengths
  ]


def tokenize_sentences(texts: Sequence[str]) -> list[list[int]]:
  """Returns the token IDs of each sentence, enclosed in BOS and EOS."""
  return [[shapes.BOS, *map(int, text.split()), shapes.EOS] for text in texts]
