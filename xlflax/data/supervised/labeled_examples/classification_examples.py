"""Texts, and pairs of texts, that have a class."""

import dataclasses

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifiedText(example_base.Example):
  """A text, or a pair of texts, with a class.

  Attributes:
    text: the premise, the first sentence, the review.
    paired_text: the hypothesis, the second sentence; None for one text.
    paired_language: of `paired_text`; None: `language`.
    label: name of the class, or None.
  """

  KIND = 'classification'

  text: str
  paired_text: str | None = None
  paired_language: str | None = feature_field(
    Role.SECOND_LANGUAGE, default=None
  )
  label: str | None = feature_field(Role.GOLD | Role.LABELS, default=None)

  @property
  def cluster(self) -> str:
    """The premise of a pair."""
    return self.text if self.paired_text is not None else self.id
