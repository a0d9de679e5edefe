"""What pairs of texts have in common as strings, without any model.

A model that copies strings finds the translation of a sentence with a name or
a number in it. Pairs with and without shared strings are therefore scored
apart, and string overlap itself is a baseline.
"""

import enum
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.similarity.cosine import BidirectionalNeighbors

NOTHING = -1  # the neighbour of a text that shares no string with any other
_UNSPACED = re.compile(f'((?:{language_codes.TEXT_WITHOUT_SPACES.pattern})+)')


class Kind(enum.Enum):
  """What the two sides of a pair have in common."""

  UNSHARED = 'unshared'  # no string
  SHARED = 'shared'
  EQUAL = 'equal'  # all letters and digits
  WITHOUT_LETTERS = 'without_letters'  # a side is numbers and punctuation

  @property
  def is_trivial(self) -> bool:
    """Whether finding such a pair says nothing about a model."""
    return self in (Kind.EQUAL, Kind.WITHOUT_LETTERS)


def overlap_kind(first: str, second: str) -> Kind:
  """What the sides have in common, whatever their case and punctuation.

  Before: `Save the file`, `Сохранить файл`; after: UNSHARED. With `PDF` on
  both sides: SHARED.
  """
  sides = split_overlap_words(first), split_overlap_words(second)
  if not all(any(map(str.isalpha, ''.join(side))) for side in sides):
    return Kind.WITHOUT_LETTERS
  if ''.join(sides[0]) == ''.join(sides[1]):
    return Kind.EQUAL
  return (
    Kind.UNSHARED
    if _strings(sides[0]).isdisjoint(_strings(sides[1]))
    else Kind.SHARED
  )


def split_overlap_words(text: str) -> list[str]:
  """Runs of letters, marks and digits, NFKC without case.

  Before: `Don't use ＰＤＦ 2.0!`; after: `don t use pdf 2 0`.
  """
  folded = unicodedata.normalize('NFKC', text).casefold()
  return ''.join(
    c if unicodedata.category(c)[0] in 'LMN' else ' ' for c in folded
  ).split()


def _strings(found: Sequence[str]) -> set[str]:
  """Words; where a script has no spaces, pairs of characters.

  Before: `wordで書く`; after: `word`, `で書`, `書く`.
  """
  strings: set[str] = set()
  for word in found:
    parts = _UNSPACED.split(word)
    strings.update(filter(None, parts[::2]))
    for run in parts[1::2]:
      strings.update(map(''.join, zip(run, run[1:], strict=False)))
  return strings


def nearest_by_ngrams(
  first: Sequence[str], second: Sequence[str], *, block_size: int = 1024
) -> BidirectionalNeighbors:
  """Finds each text's most similar one by character 3-grams.

  The cosine of counts weighted by ln((1 + n) / (1 + texts with it)) + 1 among
  all n texts. Grams do not cross the borders of words, which are characters.

  Args:
    first: N texts.
    second: M texts.
    block_size: rows of similarities that are kept together.

  Returns:
    Indices into the other side, the lowest of equally similar ones; `NOTHING`
    where no gram is shared.
  """
  vectors = _weighted([*first, *second])
  sides = vectors[: len(first)], vectors[len(first) :]
  return BidirectionalNeighbors(
    _most_similar(*sides, block_size), _most_similar(*sides[::-1], block_size)
  )


def _most_similar(queries, keys, block_size: int) -> np.ndarray:
  most_similar = np.full(queries.shape[0], NOTHING)
  for start in range(0, len(most_similar), block_size):
    block = (queries[start : start + block_size] @ keys.T).toarray()
    most_similar[start : start + block_size] = np.where(
      block.max(1) > 0, block.argmax(1), NOTHING
    )
  return most_similar


def _weighted(texts: Sequence[str]):
  """Sparse unit vectors [n, grams]."""
  from scipy import sparse  # slow to import
  from sklearn.feature_extraction import text  # slow to import

  grams = [_grams(text) for text in texts]
  if not any(grams):
    return sparse.csr_matrix((len(texts), 1))
  return text.TfidfVectorizer(analyzer=list).fit_transform(grams)


def _grams(text: str) -> list[str]:
  """Before: `ab c`; after: ` ab`, `ab `, ` c `."""
  padded = [f' {word} ' for word in split_overlap_words(text)]
  return [word[i : i + 3] for word in padded for i in range(len(word) - 2)]
