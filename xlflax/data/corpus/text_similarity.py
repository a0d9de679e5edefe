"""Similarity of two texts, measured by their character n-grams."""

import unicodedata

# Pairs whose sides are more similar than this count as untranslated. The
# threshold is exceeded by 7 of 18,038 pairs of NTREX and Tatoeba, and by 86 %
# of the copies in which every twentieth word is replaced
# (`python -m benchmarks.bitext copies`).
COPIED = 0.7
# Unicode categories of the characters that are compared: letters, marks and
# numbers.
_COMPARED_CATEGORIES = 'LMN'


class _Table(dict):
  """Translation table that replaces ignored characters with spaces.

  Entries are computed when they are first used.
  """

  def __missing__(self, point: int) -> str:
    character = chr(point)
    is_compared = unicodedata.category(character)[0] in _COMPARED_CATEGORIES
    self[point] = character if is_compared else ' '
    return self[point]


_table = _Table()


def normalize_for_comparison(text: str) -> str:
  """Normalizes a text for comparison: `It's 1,000!` becomes `it s 1 000`.

  The result contains only letters with their marks and numbers, after
  compatibility normalization and case folding. A text without letters and
  numbers is returned unchanged.
  """
  folded = unicodedata.normalize('NFKC', text).casefold()
  return ' '.join(folded.translate(_table).split()) or text


def n_grams(text: str, n: int) -> set[str]:
  """Returns a text's character n-grams, or the text if it is shorter than n."""
  return {text[i : i + n] for i in range(max(1, len(text) - n + 1))}


def ngram_similarity(first: str, second: str, *, n: int = 3) -> float:
  """Returns the Jaccard similarity of two texts' n-grams, from 0 to 1.

  For example, the similarity of `abcd` and `abce` is 1/3, because they share
  one of three trigrams.
  """
  first_grams = n_grams(normalize_for_comparison(first), n)
  second_grams = n_grams(normalize_for_comparison(second), n)
  return len(first_grams & second_grams) / len(first_grams | second_grams)
