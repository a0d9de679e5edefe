"""Checks that every metric makes of what it is given."""

from collections.abc import Sized

from xlflax.utils import errors


def same_length(
  gold: Sized, predicted: Sized, *, what: str, where: str | None = None
) -> None:
  """Raises a CorpusError unless there is one prediction for each gold value.

  Args:
    gold: the right values.
    predicted: the predictions.
    what: what they are, in the plural, such as 'labels'.
    where: which of many, such as 'sentence 3'.
  """
  if len(gold) != len(predicted):
    raise errors.CorpusError(
      f'There are not as many predicted as gold {what}',
      got=f'{len(predicted)} predicted, {len(gold)} gold',
      where=where,
      expected='the same number of both',
    )


def not_empty(values: Sized, *, what: str) -> None:
  """Raises a CorpusError if there is nothing to score."""
  if not len(values):
    raise errors.CorpusError(
      f'There are no {what} to be scored', got=0, expected='at least one'
    )
