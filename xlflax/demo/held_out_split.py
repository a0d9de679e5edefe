"""Chooses held-out messages and keeps whatever resembles them from training."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.demo import message_text
from xlflax.utils import errors

# Two texts whose character trigrams overlap this much (Jaccard) are the same
# for our purpose: singular and plural of a message, other punctuation.
NEAR_DUPLICATE = 0.7
_MIN_WORDS, _MAX_WORDS = 3, 40
_FEWEST = 10

# English text -> its translation, of one language.
Translations = Mapping[str, str]


def choose(
  messages: Mapping[str, Translations], *, count: int, seed: int
) -> list[str]:
  """English texts that every language translates, unlike each other.

  Args:
    messages: language code -> English text -> translation.
    count: how many are wanted.
    seed: orders the candidates, independent of platform and dict order.

  Returns:
    Up to `count` texts of three or more words. No two are near duplicates,
    in no language do two have the same translation, and each differs from
    its translations.

  Raises:
    CorpusError: fewer than ten messages exist in all languages.
  """
  common = set.intersection(*(set(texts) for texts in messages.values()))
  candidates = sorted(
    (text for text in common if _MIN_WORDS <= len(text.split()) <= _MAX_WORDS),
    key=lambda text: hashlib.sha256(f'{seed}:{text}'.encode()).digest(),
  )
  alike = similarity(candidates, candidates) >= NEAR_DUPLICATE
  chosen: list[int] = []
  seen: set[tuple[str, str]] = set()
  for index, text in enumerate(candidates):
    keys = {
      (language, message_text.normalise(texts[text]))
      for language, texts in messages.items()
    }
    if (
      seen & keys
      or alike[index, chosen].any()
      or message_text.normalise(text) in {key for _, key in keys}
    ):
      continue
    chosen.append(index)
    seen |= keys
    if len(chosen) == count:
      break
  if len(chosen) < _FEWEST:
    raise errors.CorpusError(
      'Too few messages are translated into all languages',
      got=f'{len(chosen)} messages in {", ".join(messages)}',
      expected=f'at least {_FEWEST}',
      where='the catalogs of Django',
      fix='choose fewer languages, or a newer Django',
    )
  return [candidates[index] for index in chosen]


def remove(texts: Translations, held_out: Translations) -> dict[str, str]:
  """The translations neither side of which resembles a held-out text."""
  if not texts or not held_out:
    return dict(texts)
  kept = np.ones(len(texts), bool)
  sides = (
    (list(texts), list(held_out)),
    (list(texts.values()), list(held_out.values())),
  )
  for ours, theirs in sides:
    kept &= (similarity(ours, theirs) < NEAR_DUPLICATE).all(axis=1)
  return {
    source: target
    for (source, target), keep in zip(texts.items(), kept, strict=True)
    if keep
  }


def similarity(left: Sequence[str], right: Sequence[str]) -> np.ndarray:
  """Jaccard similarity of character trigrams after normalisation.

  Returns:
    float32 [len(left), len(right)] in 0..1; 1 where both are equal.
  """
  index: dict[str, int] = {}
  ours = [_trigrams(text, index) for text in left]
  theirs = [_trigrams(text, index) for text in right]
  a, b = (_indicators(rows, len(index)) for rows in (ours, theirs))
  common = a @ b.T
  union = a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :] - common
  return common / np.maximum(union, 1)


def _trigrams(text: str, index: dict[str, int]) -> list[int]:
  """Ids of the text's trigrams; new ones are added to `index`."""
  padded = f' {message_text.normalise(text)} '
  grams = {padded[i : i + 3] for i in range(max(1, len(padded) - 2))}
  return [index.setdefault(gram, len(index)) for gram in grams]


def _indicators(rows: list[list[int]], width: int) -> np.ndarray:
  matrix = np.zeros((len(rows), width), np.float32)
  for row, columns in enumerate(rows):
    matrix[row, columns] = 1
  return matrix
