"""Settings of code-switching."""

import dataclasses
from collections.abc import Iterable, Sequence

from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSwitching:
  """Settings of code-switching; the defaults are those of ECS.

  Attributes:
    probability: Probability of replacing a word with a dictionary entry. A
      multi-word entry is drawn once.
    max_replaced_ratio: Maximum fraction of the words of a group of lines that
      are replaced. It also limits the fraction of the resulting words that are
      translations, because a translation can have several words. If there are
      more replacements, a uniformly drawn subset is kept.
    group_lines: Number of lines in a group. The first group contains the
      examples 0 .. group_lines - 1. 1,024 sentences are approximately the batch
      of ECS (96 sequences of 256 tokens on each GPU).
    num_copies: Number of copies of the text. Each copy is switched differently.
    languages: Languages of translations. If None, all languages of the
      dictionaries.
    seed: Random seed of all draws.

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
    """Returns the languages that can be switched with dictionaries.

    For en-de and en-fr, the result is all three languages, or only en if
    `languages` is ('fr',).

    Args:
      pairs: Languages of each dictionary.
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
