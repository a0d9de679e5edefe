"""Checks of the inputs to metrics."""

from collections.abc import Sized

from xlflax.utils import errors


def same_length(
  gold: Sized, predicted: Sized, *, what: str, where: str | None = None
) -> None:
  """Checks that there is one prediction for each gold value.

  Args:
    gold: Gold values, such as labels.
    predicted: One prediction for each gold value.
    what: Plural noun for the values, such as 'labels'.
    where: Location in the data to report in the error, such as 'sentence 3'.

  Raises:
    CorpusError: If the numbers of gold values and predictions differ.
  """
  if len(gold) != len(predicted):
    raise errors.CorpusError(
      f'The numbers of gold and predicted {what} must be equal, but found '
      f'{len(gold)} and {len(predicted)}',
      where=where,
    )


def not_empty(values: Sized, *, what: str) -> None:
  """Checks that there is at least one value to score.

  Args:
    values: Values to score.
    what: Plural noun for the values, such as 'labels'.

  Raises:
    CorpusError: If there are no values.
  """
  if not len(values):
    raise errors.CorpusError(f'There are no {what} to score', got=0)
