"""Texts and text pairs with a class label."""

import dataclasses

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifiedText(example_base.Example):
  """Text or pair of texts with a class label.

  Attributes:
    text: Premise, first sentence or review.
    paired_text: Hypothesis or second sentence. None for a single text.
    paired_language: Language code of `paired_text`. If None, `language` is
      used.
    label: Name of the class. None if the label is not available.
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
    """Key for grouping dependent examples: a pair's premise or a text's id."""
    return self.text if self.paired_text is not None else self.id
