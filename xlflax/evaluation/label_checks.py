"""Checks for gold labels that a head was not trained with."""

import collections
import enum
from collections.abc import Callable, Collection, Sequence

from xlflax.data.supervised import label_sets, labeled_examples


class UnseenLabelPolicy(enum.Enum):
  """Treatment of gold labels that the head was not trained with."""

  ERROR = 'error'  # The part is not evaluated and is listed as a failure.
  WRONG = 'wrong'  # Predictions for them are wrong, and a note counts them.


def check_labels_known(
  examples: Sequence[labeled_examples.Example],
  known_labels: Collection[str],
  unseen: UnseenLabelPolicy,
  *,
  part: str,
  notes: list[str],
  name: Callable[[str], str] = str,
) -> None:
  """Checks that the head was trained with the labels of examples.

  If the head was trained with none of them, an error is raised in any case. The
  part then uses other names for the labels, or belongs to another task.

  Args:
    examples: Examples of a part.
    known_labels: Labels of the head.
    unseen: Treatment of labels that the head was not trained with.
    part: Name of the part.
    notes: List to which a note about unseen labels is appended.
    name: Function that maps a label to the name that is compared. By default,
      the label itself.

  Raises:
    CorpusError: If there is an unseen label and `unseen` is ERROR, or if all
      labels are unseen.
  """
  known_names = {name(label) for label in known_labels}
  unseen_counts = collections.Counter(
    label
    for example in examples
    for label in example.labels or ()
    if name(label) not in known_names
  )
  if not unseen_counts:
    return

  example_labels = {
    label for example in examples for label in example.labels or ()
  }
  seen_labels = example_labels - set(unseen_counts)
  if unseen is UnseenLabelPolicy.ERROR or not seen_labels:
    label_sets.check_labels(
      examples, {*known_labels, *seen_labels}, f'part {part}'
    )
  counts = ', '.join(
    f'{label} ({count})' for label, count in sorted(unseen_counts.items())
  )
  notes.append(
    f'{part}: labels that were not seen in training count as wrong: {counts}'
  )
