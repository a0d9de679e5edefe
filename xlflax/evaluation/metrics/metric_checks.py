"""Checks of the inputs of metrics."""

from collections.abc import Sized

from xlflax.utils import errors


def same_length(
  gold: Sized, predicted: Sized, *, what: str, where: str | None = None
) -> None:
  """Checks that there is one prediction for each gold value.

  Args:
    gold: Gold values.
    predicted: Predictions.
    what: Plural noun for the values, such as 'labels'.
    where: Location in the data, such as 'sentence 3'.

  Raises:
    CorpusError: If the numbers of gold values and predictions differ.
  """
  if len(gold) != len(predicted):
    raise errors.CorpusError(
      f'The numbers of predicted and gold {what} must be equal',
      got=f'{len(predicted)} predicted, {len(gold)} gold',
      where=where,
      expected='the same number of both',
    )


def not_empty(values: Sized, *, what: str) -> None:
  """Checks that there are values to score.

  Args:
    values: Values.
    what: Plural noun for the values, such as 'labels'.

  Raises:
    CorpusError: If there are no values.
  """
  if not len(values):
    raise errors.CorpusError(
      f'There are no {what} to score', got=0, expected='at least one'
    )
