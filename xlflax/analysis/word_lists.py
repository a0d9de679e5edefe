"""The words of a text, the most frequent first."""

import collections
from collections.abc import Collection, Iterable

from xlflax.data.corpus import segmentation


def frequent_words(
  texts: Iterable[str],
  language: str,
  known: Collection[str] = (),
  *,
  max_words: int = 50_000,
) -> tuple[str, ...]:
  """Words in lower case, but known ones as they are spelt.

  Args:
    texts: sentences of one language.
    language: its code.
    known: words of a dictionary. All of them that the text has are taken, and
      they are the words of scripts without spaces; see
      `xlflax.data.corpus.segmentation`.
    max_words: how many words are taken.

  Returns:
    The known words of the text, then the others, each by frequency.
  """
  segmenter = segmentation.Segmenter(language.replace('-', '_'), known)
  spelt = set(known)
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    for word in segmenter.split(text)[1::2]:
      counts[word if word in spelt else word.lower()] += 1
  ordered = [word for word, _ in counts.most_common()]
  first = [word for word in ordered if word in spelt]
  return tuple(
    (first + [word for word in ordered if word not in spelt])[:max_words]
  )
