"""Selection of held-out messages and removal of their near duplicates."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.demo import message_text
from xlflax.utils import errors

# Two texts with at least this Jaccard similarity of character trigrams are near
# duplicates, such as the singular and the plural of a message.
NEAR_DUPLICATE = 0.7
_MIN_WORDS = 3
_MAX_WORDS = 40
_MIN_MESSAGES = 10

# Maps English texts to their translations into one language.
Translations = Mapping[str, str]


def select_held_out(
  messages: Mapping[str, Translations], *, count: int, seed: int
) -> list[str]:
  """Selects dissimilar English texts that are translated into all languages.

  Args:
    messages: Mapping from language codes to translations, each of which is a
      mapping from English texts to texts in the language.
    count: Maximum number of texts to select.
    seed: Random seed for the order of candidates. The order does not depend on
      the platform or the order of `messages`.

  Returns:
    Up to `count` texts of 3 to 40 words. No two texts are near duplicates, no
    two texts have the same translation in any language, and each text differs
    from its translations.

  Raises:
    CorpusError: If fewer than ten texts can be selected.
  """
  common = set.intersection(*(set(texts) for texts in messages.values()))
  candidates = sorted(
    (text for text in common if _MIN_WORDS <= len(text.split()) <= _MAX_WORDS),
    key=lambda text: hashlib.sha256(f'{seed}:{text}'.encode()).digest(),
  )
  is_near_duplicate = similarity(candidates, candidates) >= NEAR_DUPLICATE
  selected: list[int] = []
  selected_translations: set[tuple[str, str]] = set()
  for index, text in enumerate(candidates):
    translations = {
      (language, message_text.normalize(texts[text]))
      for language, texts in messages.items()
    }
    is_untranslated = message_text.normalize(text) in {
      translation for _, translation in translations
    }
    if (
      is_untranslated
      or selected_translations & translations
      or is_near_duplicate[index, selected].any()
    ):
      continue
    selected.append(index)
    selected_translations |= translations
    if len(selected) == count:
      break
  if len(selected) < _MIN_MESSAGES:
    raise errors.CorpusError(
      f'The demo requires at least {_MIN_MESSAGES} messages that are '
      'translated into all requested languages. The number of such messages in '
      f'the catalogs of Django is only {len(selected)} for {", ".join(messages)}',
      fix='Choose fewer languages, or install a newer version of Django.',
    )
  return [candidates[index] for index in selected]


def remove_near_duplicates(
  texts: Translations, held_out: Translations
) -> dict[str, str]:
  """Removes pairs in which either text is similar to a held-out text."""
  if not texts or not held_out:
    return dict(texts)
  source_similarity = similarity(list(texts), list(held_out))
  target_similarity = similarity(list(texts.values()), list(held_out.values()))
  is_dissimilar = (
    np.maximum(source_similarity, target_similarity) < NEAR_DUPLICATE
  ).all(axis=1)
  return {
    source: target
    for (source, target), keep in zip(texts.items(), is_dissimilar, strict=True)
    if keep
  }


def similarity(left: Sequence[str], right: Sequence[str]) -> np.ndarray:
  """Computes pairwise Jaccard similarities of normalized character trigrams.

  Returns:
    Similarities between 0 and 1 of shape [len(left), len(right)], float32.
    Equal texts have a similarity of 1.
  """
  index: dict[str, int] = {}
  left_trigrams = [_trigrams(text, index) for text in left]
  right_trigrams = [_trigrams(text, index) for text in right]
  left_matrix = _indicator_matrix(left_trigrams, len(index))
  right_matrix = _indicator_matrix(right_trigrams, len(index))
  intersection = left_matrix @ right_matrix.T
  union = (
    left_matrix.sum(axis=1)[:, None]
    + right_matrix.sum(axis=1)[None, :]
    - intersection
  )
  return intersection / np.maximum(union, 1)


def _trigrams(text: str, index: dict[str, int]) -> list[int]:
  """Returns the ids of the text's trigrams, and adds new ones to `index`."""
  padded = f' {message_text.normalize(text)} '
  trigrams = {padded[i : i + 3] for i in range(max(1, len(padded) - 2))}
  return [index.setdefault(trigram, len(index)) for trigram in trigrams]


def _indicator_matrix(ids: list[list[int]], width: int) -> np.ndarray:
  """Returns a matrix [len(ids), width] with ones at the ids of each row."""
  matrix = np.zeros((len(ids), width), np.float32)
  for row, columns in enumerate(ids):
    matrix[row, columns] = 1
  return matrix
