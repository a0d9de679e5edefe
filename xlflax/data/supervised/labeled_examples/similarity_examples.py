"""Text pairs with similarity scores."""

import dataclasses

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatedPair(example_base.Example):
  """Pair of texts with a similarity score.

  Attributes:
    text: First text of the pair.
    paired_text: Second text of the pair.
    paired_language: Language code of `paired_text`. If None, `language` is
      used.
    score: Similarity score, for example from 0 to 5 (STS), or 1 for a positive
      pair and 0 for a negative pair. None if the score is not available.
  """

  KIND = 'similarity'

  text: str
  paired_text: str
  paired_language: str | None = feature_field(
    Role.SECOND_LANGUAGE, default=None
  )
  score: float | None = feature_field(Role.GOLD, default=None)
