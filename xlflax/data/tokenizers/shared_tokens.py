"""Assignment of union vocabulary ids to the tokens of several languages.

Wu et al. (2020, ECS, sections 4.2 and 4.3) vary the number of anchor points,
which are tokens that have the same embedding in several languages. In this
example, the language x has the tokens `a b`, the language y has the tokens `b
c`, and S special symbols precede them:

| anchors | ids of the tokens | union |
| --- | --- | --- |
| `shared` ("default anchors") | a S, b S+1; b S+1, c S+2 | `a`, `b`, `c` |
| `none` ("no anchors") | a S, b S+1; b S+2, c S+3 | `x:a`, `x:b`, `y:b`, … |
| `separate` ("Sep Emb") | a S, b S+1; b S, c S+1 | separate for each language |

`separate` requires a model with separate embeddings for each language.
"""

from collections.abc import Sequence

import numpy as np

from xlflax.data.tokenizers.vocabulary_config import Anchors


def id_ranges(ids: np.ndarray) -> tuple[tuple[int, int], ...]:
  """Converts distinct ids to a list of ranges (start, stop).

  For example, `[7, 5, 6, 9]` is converted to the ranges (5, 8) and (9, 10).
  """
  ids = np.sort(ids)
  if not ids.size:
    return ()
  breaks = np.flatnonzero(np.diff(ids) != 1) + 1
  starts = ids[np.concatenate([[0], breaks])]
  stops = ids[np.concatenate([breaks - 1, [ids.size - 1]])] + 1
  return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def assign_word_ids(
  pieces: Sequence[Sequence[str]], first: int, anchors: Anchors
) -> list[np.ndarray]:
  """Assigns ids in the union vocabulary to each language's tokens.

  Args:
    pieces: Tokens of each language, without special symbols.
    first: Smallest id to assign, which follows the ids of the special symbols.
    anchors: Rule that determines which tokens the languages share.

  Returns:
    For each language, the ids of its tokens in their order, int32 [tokens].
  """
  sizes = [len(language_tokens) for language_tokens in pieces]
  if anchors is Anchors.SHARED:
    ids_by_token = {
      token: first + i for i, token in enumerate(_order_shared_tokens(pieces))
    }
    return [
      np.fromiter(
        map(ids_by_token.__getitem__, language_tokens),
        np.int32,
        len(language_tokens),
      )
      for language_tokens in pieces
    ]
  starts = np.zeros(len(sizes), np.int64)
  if anchors is Anchors.NONE:
    starts[1:] = np.cumsum(sizes)[:-1]
  return [
    np.arange(size, dtype=np.int32) + np.int32(first + start)
    for size, start in zip(sizes, starts, strict=True)
  ]


def _order_shared_tokens(pieces: Sequence[Sequence[str]]) -> list[str]:
  """Returns the distinct tokens, sorted by the languages that have them.

  The ids of each language therefore form few ranges, and a single range if
  there are two languages. Tokens shared by the same set of languages have the
  order of the first of these languages.
  """
  languages_by_token: dict[str, list[int]] = {}
  for language, language_tokens in enumerate(pieces):
    for token in language_tokens:
      languages_by_token.setdefault(token, []).append(language)
  return sorted(languages_by_token, key=languages_by_token.__getitem__)


def find_owners(
  ids: Sequence[np.ndarray], size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Maps each union vocabulary id to a language and that language's token id.

  Args:
    ids: For each language, the ids of its tokens in the union vocabulary, as an
      int array of shape [tokens].
    size: Number of token ids in the union of the vocabularies.

  Returns:
    The index of the language and the id in its own vocabulary, int32 [size]
    each.
  """
  languages = np.zeros(size, np.int32)
  owner_ids = np.zeros(size, np.int32)
  for language in reversed(range(len(ids))):
    languages[ids[language]] = language
    owner_ids[ids[language]] = np.arange(len(ids[language]))
  return languages, owner_ids
