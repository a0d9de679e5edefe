"""How the words of languages become ids of their union.

Source: ECS (Wu et al., 2020) sections 4.2 and 4.3, which vary how many anchor
points languages have: entries that are one row of the embeddings for both.
With `a b` the words of one language and `b c` those of another, after S
special symbols that all have:

| anchors | ids of the words | entries |
| --- | --- | --- |
| `shared` ("default anchors") | a S, b S+1; b S+1, c S+2 | `a`, `b`, `c` |
| `none` ("no anchors") | a S, b S+1; b S+2, c S+3 | `x:a`, `x:b`, `y:b`, … |
| `separate` ("Sep Emb") | a S, b S+1; b S, c S+1 | those of each language |

`separate` means something only to models with embeddings for each language.
"""

from collections.abc import Sequence

import numpy as np

from xlflax.data.tokenizers.vocabulary_config import Anchors


def id_ranges(ids: np.ndarray) -> tuple[tuple[int, int], ...]:
  """Different ids as runs (start, stop): `[7, 5, 6, 9]` is (5, 8), (9, 10)."""
  ids = np.sort(ids)
  if not ids.size:
    return ()
  breaks = np.flatnonzero(np.diff(ids) != 1) + 1
  starts = ids[np.concatenate([[0], breaks])]
  stops = ids[np.concatenate([breaks - 1, [ids.size - 1]])] + 1
  return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def word_ids(
  pieces: Sequence[Sequence[str]], first: int, anchors: Anchors
) -> list[np.ndarray]:
  """The id of each language's words, in their own order; int32 each."""
  sizes = [len(language_words) for language_words in pieces]
  if anchors is Anchors.SHARED:
    ids_by_word = {piece: first + i for i, piece in enumerate(_shared(pieces))}
    return [
      np.fromiter(
        map(ids_by_word.__getitem__, language_words),
        np.int32,
        len(language_words),
      )
      for language_words in pieces
    ]
  starts = np.zeros(len(sizes), np.int64)
  if anchors is Anchors.NONE:
    starts[1:] = np.cumsum(sizes)[:-1]
  return [
    np.arange(size, dtype=np.int32) + np.int32(first + start)
    for size, start in zip(sizes, starts, strict=True)
  ]


def _shared(pieces: Sequence[Sequence[str]]) -> list[str]:
  """The different strings, by the set of languages that have them.

  So each language's words are few runs, one where there are two languages.
  Within a set, the order is that of the first language.
  """
  languages: dict[str, list[int]] = {}
  for language, language_words in enumerate(pieces):
    for piece in language_words:
      languages.setdefault(piece, []).append(language)
  return sorted(languages, key=languages.__getitem__)


def find_owners(
  ids: Sequence[np.ndarray], size: int
) -> tuple[np.ndarray, np.ndarray]:
  """For each id, the first language that has it, and its own id there.

  Args:
    ids: of each language's words, [words] each.
    size: of the union.

  Returns:
    Two int32 arrays [size].
  """
  languages = np.zeros(size, np.int32)
  owned = np.zeros(size, np.int32)
  for language in reversed(range(len(ids))):
    languages[ids[language]] = language
    owned[ids[language]] = np.arange(len(ids[language]))
  return languages, owned
