"""What makes two texts the same, and how alike they are."""

import unicodedata

# The sides of a pair that are more similar than this were not translated. Of
# 18,038 pairs of NTREX and Tatoeba 7 are; of copies with every twentieth word
# replaced, 86 % are (`python -m benchmarks.bitext copies`).
COPIED = 0.7
_KEPT = 'LMN'  # categories of Unicode: letters, their marks, numbers


class _Table(dict):
  """Code point -> itself, or a space if it does not count; filled as asked."""

  def __missing__(self, point: int) -> str:
    character = chr(point)
    is_kept = unicodedata.category(character)[0] in _KEPT
    self[point] = character if is_kept else ' '
    return self[point]


_table = _Table()


def normalize_for_comparison(text: str) -> str:
  """A text without what does not count: `It's  1,000!` is `it s 1 000`.

  Letters with their marks and numbers, after compatibility normalisation and
  case folding. A text without any stays as it is.
  """
  folded = unicodedata.normalize('NFKC', text).casefold()
  return ' '.join(folded.translate(_table).split()) or text


def n_grams(text: str, n: int) -> set[str]:
  """The runs of n characters; of a shorter text, the text."""
  return {text[i : i + n] for i in range(max(1, len(text) - n + 1))}


def ngram_similarity(one: str, other: str, *, n: int = 3) -> float:
  """Jaccard similarity of two texts' n-grams, from 0 to 1.

  That of `abcd` and `abce` is 1/3: of three trigrams they share one.
  """
  first, second = (
    n_grams(normalize_for_comparison(text), n) for text in (one, other)
  )
  return len(first & second) / len(first | second)
