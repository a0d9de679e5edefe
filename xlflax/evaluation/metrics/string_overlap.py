"""String overlap of text pairs, computed without a model.

A model that copies strings finds the translation of a sentence that contains a
name or a number. Pairs with and without common strings are therefore scored
separately, and string overlap itself is a baseline.
"""

import enum
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.similarity.cosine import BidirectionalNeighbors

NOTHING = -1  # neighbor of a text that shares no string with another text
_UNSPACED = re.compile(f'((?:{language_codes.TEXT_WITHOUT_SPACES.pattern})+)')


class Kind(enum.Enum):
  """Kind of string overlap between the two texts of a pair."""

  UNSHARED = 'unshared'  # no common string
  SHARED = 'shared'  # at least one common string
  EQUAL = 'equal'  # the same letters and digits
  WITHOUT_LETTERS = 'without_letters'  # a text without letters

  @property
  def is_trivial(self) -> bool:
    """True if the pair can be found by string comparison alone."""
    return self in (Kind.EQUAL, Kind.WITHOUT_LETTERS)


def overlap_kind(first: str, second: str) -> Kind:
  """Returns how two texts overlap, ignoring case and punctuation.

  For example, the kind of `Save the file` and `Сохранить файл` is UNSHARED. If
  both texts contain `PDF`, it is SHARED.
  """
  first_words = split_overlap_words(first)
  second_words = split_overlap_words(second)
  first_text, second_text = ''.join(first_words), ''.join(second_words)
  if not all(any(map(str.isalpha, text)) for text in (first_text, second_text)):
    return Kind.WITHOUT_LETTERS
  if first_text == second_text:
    return Kind.EQUAL
  if _strings(first_words).isdisjoint(_strings(second_words)):
    return Kind.UNSHARED
  return Kind.SHARED


def split_overlap_words(text: str) -> list[str]:
  """Splits a normalized text into sequences of letters, marks and digits.

  The text is normalized by NFKC and case folding. For example,
  `Don't use ＰＤＦ 2.0!` becomes `don t use pdf 2 0`.
  """
  folded = unicodedata.normalize('NFKC', text).casefold()
  return ''.join(
    character if unicodedata.category(character)[0] in 'LMN' else ' '
    for character in folded
  ).split()


def _strings(words: Sequence[str]) -> set[str]:
  """Returns words, or pairs of characters in scripts without spaces.

  For example, `wordで書く` becomes `word`, `で書` and `書く`.
  """
  strings: set[str] = set()
  for word in words:
    # Parts with odd indices are runs in scripts without spaces.
    parts = _UNSPACED.split(word)
    strings.update(filter(None, parts[::2]))
    for run in parts[1::2]:
      strings.update(map(''.join, zip(run, run[1:], strict=False)))
  return strings


def nearest_by_ngrams(
  first: Sequence[str], second: Sequence[str], *, block_size: int = 1024
) -> BidirectionalNeighbors:
  """Finds each text's nearest neighbor in the other language by trigrams.

  The similarity is the cosine of trigram counts, weighted by ln((1 + n) / (1 +
  n_t)) + 1, where n is the number of all texts and n_t is the number of texts
  with the trigram. Trigrams include word boundaries and do not extend beyond
  them.

  Args:
    first: N texts in the first language.
    second: M texts in the second language.
    block_size: Number of similarity-matrix rows to compute at a time.

  Returns:
    Indices of the nearest texts in the other language. If several texts are
    equally similar, the lowest index is returned, and `NOTHING` if no trigram
    is shared.
  """
  vectors = _weighted_vectors([*first, *second])
  first_vectors, second_vectors = vectors[: len(first)], vectors[len(first) :]
  return BidirectionalNeighbors(
    _most_similar(first_vectors, second_vectors, block_size),
    _most_similar(second_vectors, first_vectors, block_size),
  )


def _most_similar(queries, keys, block_size: int) -> np.ndarray:
  """Returns the index of each query's most similar key, or NOTHING."""
  most_similar = np.full(queries.shape[0], NOTHING)
  for start in range(0, len(most_similar), block_size):
    block = (queries[start : start + block_size] @ keys.T).toarray()
    most_similar[start : start + block_size] = np.where(
      block.max(1) > 0, block.argmax(1), NOTHING
    )
  return most_similar


def _weighted_vectors(texts: Sequence[str]):
  """Returns sparse unit vectors of trigrams, of shape [n, trigrams]."""
  from scipy import sparse  # slow to import
  from sklearn.feature_extraction import text  # slow to import

  trigrams = [_trigrams(text) for text in texts]
  if not any(trigrams):
    return sparse.csr_matrix((len(texts), 1))
  return text.TfidfVectorizer(analyzer=list).fit_transform(trigrams)


def _trigrams(text: str) -> list[str]:
  """Returns the trigrams of padded words: ` ab`, `ab ` and ` c ` for `ab c`."""
  padded = [f' {word} ' for word in split_overlap_words(text)]
  return [word[i : i + 3] for word in padded for i in range(len(word) - 2)]
