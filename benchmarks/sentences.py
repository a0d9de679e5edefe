"""Sentences of random words for inference, and the vocabulary of numbers."""

from collections.abc import Sequence

import numpy as np

from benchmarks import shapes
from xlflax.data.tokenizers import vocabulary_spec


class NumberVocabulary:
  """A vocabulary whose text is ids with spaces between them: `17 4 23`.

  It has what `evaluation` asks of a vocabulary, and next to no cost.
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
    del language_ids
    return [[int(word) for word in text.split()] for text in texts]

  def decode(self, ids, *, language: str | None = None) -> str:
    del language
    return ' '.join(str(i) for i in ids if i not in shapes.SPECIAL_IDS)

  def language_id(self, code: str) -> int:
    return self.spec.languages.index(code)


def make_random_sentences(
  count: int, *, vocabulary: int, longest: int, seed: int = 0
) -> list[str]:
  """Sentences of 4 words and more, most of them short.

  Args:
    count: how many.
    vocabulary: number of ids.
    longest: words of a sentence at most.
    seed: of lengths and words.
  """
  rng = np.random.default_rng(seed)
  lengths = np.clip(rng.lognormal(np.log(longest / 4), 0.6, count), 4, longest)
  return [
    ' '.join(
      map(str, rng.integers(len(shapes.SPECIAL_IDS), vocabulary, int(length)))
    )
    for length in lengths
  ]


def tokenize_sentences(texts: Sequence[str]) -> list[list[int]]:
  """The ids of each sentence between bos and eos."""
  return [[shapes.BOS, *map(int, text.split()), shapes.EOS] for text in texts]
