"""Settings for code-switching."""

import dataclasses
from collections.abc import Iterable, Sequence

from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSwitching:
  """Settings for code-switching. The defaults are those of ECS.

  Attributes:
    probability: Probability of replacing a word that has a dictionary entry.
      For a multi-word entry, there is only one random draw.
    max_replaced_ratio: Maximum fraction of words that are replaced in a group
      of lines. Because a translation can have several words, it also limits the
      fraction of the resulting words that are translations. If more words were
      drawn for replacement, a uniformly drawn subset is replaced.
    group_lines: Number of lines in a group. The first group contains the
      examples 0 .. group_lines - 1. The default of 1,024 sentences is
      approximately the batch size in ECS (96 sequences of 256 tokens on each
      GPU).
    num_copies: Number of copies of the text, each of which is code-switched
      with different random numbers.
    languages: Languages into which words are translated. If None, all languages
      of the dictionaries are used.
    seed: Random seed for choosing the words to replace and their translations.

  Raises:
    ConfigError: If a value is out of range.
  """

  probability: validation.Fraction = 0.3
  max_replaced_ratio: validation.Fraction = 0.15
  group_lines: validation.PositiveInt = 1024
  num_copies: validation.PositiveInt = 1
  languages: tuple[str, ...] | None = None
  seed: validation.Seed = 0

  def sources(self, pairs: Iterable[Sequence[str]]) -> set[str]:
    """Returns the languages whose text the dictionaries can code-switch.

    For example, for en-de and en-fr, the result contains all three languages,
    or only en if `languages` is ('fr',).

    Args:
      pairs: Pairs of language codes, one for each dictionary.
    """
    directed_pairs = [
      (source, target)
      for pair in pairs
      for source, target in (pair, pair[::-1])
    ]
    return {
      source
      for source, target in directed_pairs
      if self.languages is None or target in self.languages
    }
