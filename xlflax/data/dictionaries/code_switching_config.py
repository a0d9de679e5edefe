"""How text is code-switched."""

import dataclasses
from collections.abc import Iterable, Sequence

from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSwitching:
  """How a text is switched; the defaults are those of ECS.

  Attributes:
    probability: that a word with an entry is replaced. A multi-word entry is
      drawn once.
    max_share: of the words of a group of lines, that may be replaced at most.
      Nor are more than this share of the resulting words translations, which
      may be of several words. Which ones stay is drawn, each alike.
    group_lines: lines that the share is of: the examples 0 .. group_lines - 1,
      and so on. 1,024 sentences are about the batch of ECS (96 rows of 256
      tokens on each GPU).
    copies: the text goes through so often, switched anew each time.
    languages: to draw translations from; None: all of the dictionaries.
    seed: of all draws.

  Raises:
    ConfigError: a value out of its range.
  """

  probability: validation.Fraction = 0.3
  max_share: validation.Fraction = 0.15
  group_lines: validation.PositiveInt = 1024
  copies: validation.PositiveInt = 1
  languages: tuple[str, ...] | None = None
  seed: validation.Seed = 0

  def sources(self, pairs: Iterable[Sequence[str]]) -> set[str]:
    """Languages that dictionaries of these pairs of languages can switch.

    Of en-de and en-fr all three, or en alone if `languages` is ('fr',).
    """
    directed_pairs = [(a, b) for pair in pairs for a, b in (pair, pair[::-1])]
    return {
      word
      for word, translation in directed_pairs
      if self.languages is None or translation in self.languages
    }
