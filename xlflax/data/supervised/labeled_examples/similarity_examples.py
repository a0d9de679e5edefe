"""Pairs of texts with a number that says how alike they are."""

import dataclasses

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatedPair(example_base.Example):
  """Two texts and how alike they are.

  Attributes:
    text: the one.
    paired_text: the other.
    paired_language: of `paired_text`; None: `language`.
    score: how alike, such as 0 to 5 (STS), or 1 for a positive pair and 0 for
      another; None where it is not known.
  """

  KIND = 'similarity'

  text: str
  paired_text: str
  paired_language: str | None = feature_field(
    Role.SECOND_LANGUAGE, default=None
  )
  score: float | None = feature_field(Role.GOLD, default=None)
