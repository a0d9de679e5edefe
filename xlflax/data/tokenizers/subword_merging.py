"""Continued byte-pair encoding: merges that extend a trained tokenizer.

The words of a text are segmented by the trained tokenizer. The most frequent
pair of adjacent tokens is then merged repeatedly, as in the training of
byte-pair encoding (Sennrich et al., 2016). In contrast to tokens of a
separately trained tokenizer, each new token therefore consists of tokens into
which the extended tokenizer segments text (Purason et al., 2025, "Teaching Old
Tokenizers New Words").
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

Word = tuple[str, ...]

# Maximum number of characters of a token. Longer tokens are usually artifacts.
_MAX_LENGTH = 48


class NewToken(NamedTuple):
  """A token to add to a vocabulary.

  Attributes:
    text: Token, with word-boundary marks.
    parts: The two tokens that are merged. None for a single character.
    num_occurrences: Number of occurrences of the character or the pair in the
      text.
  """

  text: str
  parts: tuple[str, str] | None
  num_occurrences: int


def learn_merges(
  words: Mapping[Word, int],
  num_merges: int,
  *,
  join: Callable[[str, str], str],
  can_merge: Callable[[str], bool],
  is_excluded: Callable[[str], bool] = lambda token: False,
  min_count: int = 2,
) -> list[NewToken]:
  """Merges the most frequent pairs of adjacent tokens.

  For example, the words `{('▁a', 'b'): 3, ('▁a', 'b', 'c'): 2}` result in the
  tokens `▁ab` (5 occurrences) and `▁abc` (2 occurrences).

  Args:
    words: Mapping from each word, as a tuple of tokens, to its number of
      occurrences in the text.
    num_merges: Maximum number of tokens to create.
    join: Function that returns the token into which two adjacent tokens are
      merged.
    can_merge: Function that returns whether a token may be part of a merge.
    is_excluded: Function that returns whether a token must not be created, for
      example because it already exists.
    min_count: Minimum number of times that two tokens must occur next to each
      other to be merged.

  Returns:
    The new tokens in the order of their merges. Pairs with the same number of
    occurrences are merged in alphabetical order.
  """
  segmented = [list(word) for word in words]
  counts = list(words.values())
  mergeable: dict[str, bool] = {}

  def is_candidate(pair: tuple[str, str]) -> bool:
    for token in pair:
      if token not in mergeable:
        mergeable[token] = can_merge(token)
      if not mergeable[token]:
        return False
    text = join(*pair)
    return len(text) <= _MAX_LENGTH and not is_excluded(text)

  pair_counts: Counter[tuple[str, str]] = Counter()
  word_ids: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
  for index, tokens in enumerate(segmented):
    for pair in zip(tokens, tokens[1:], strict=False):
      pair_counts[pair] += counts[index]
      word_ids[pair].add(index)
  heap = [(-n, pair) for pair, n in pair_counts.items() if is_candidate(pair)]
  heapq.heapify(heap)

  created: dict[str, NewToken] = {}
  while heap and len(created) < num_merges:
    negative_count, pair = heapq.heappop(heap)
    if pair_counts[pair] != -negative_count:
      if pair_counts[pair] >= min_count:
        heapq.heappush(heap, (-pair_counts[pair], pair))
      continue
    if -negative_count < min_count:
      break
    text = join(*pair)
    # A second pair can result in the same token: its words are merged, too.
    created.setdefault(text, NewToken(text, pair, -negative_count))
    changed_pairs = set()
    for index in word_ids.pop(pair):
      tokens = segmented[index]
      for old_pair in zip(tokens, tokens[1:], strict=False):
        pair_counts[old_pair] -= counts[index]
      tokens = segmented[index] = _merge_pair(tokens, pair, text)
      for new_pair in zip(tokens, tokens[1:], strict=False):
        pair_counts[new_pair] += counts[index]
        if text in new_pair:
          word_ids[new_pair].add(index)
          changed_pairs.add(new_pair)
    for new_pair in changed_pairs:
      if is_candidate(new_pair):
        heapq.heappush(heap, (-pair_counts[new_pair], new_pair))
  return list(created.values())


def _merge_pair(
  tokens: list[str], pair: tuple[str, str], text: str
) -> list[str]:
  """Replaces each occurrence of a pair of tokens in a word with one token."""
  merged = []
  i = 0
  while i < len(tokens):
    if tuple(tokens[i : i + 2]) == pair:
      merged.append(text)
      i += 2
    else:
      merged.append(tokens[i])
      i += 1
  return merged
