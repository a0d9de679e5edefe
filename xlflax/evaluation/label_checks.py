"""Checks for gold labels that are missing from a head's training labels."""

import collections
import enum
from collections.abc import Callable, Collection, Sequence

from xlflax.data.supervised import label_sets, labeled_examples


class UnseenLabelPolicy(enum.Enum):
  """Policy for gold labels that do not occur in a head's training data."""

  ERROR = 'error'  # The part is not evaluated and is listed as a failure.
  # Predictions for such labels count as wrong. A note gives their number.
  WRONG = 'wrong'


def check_labels_known(
  examples: Sequence[labeled_examples.Example],
  known_labels: Collection[str],
  unseen: UnseenLabelPolicy,
  *,
  part: str,
  notes: list[str],
  name: Callable[[str], str] = str,
) -> None:
  """Checks that a head's training labels include the examples' gold labels.

  If the head was trained with none of the labels, an error is raised in any
  case. The labels then have different names than in training, or they belong to
  a different task.

  Args:
    examples: Evaluation examples, such as those for one language.
    known_labels: Labels that the head was trained with.
    unseen: How to treat labels that the head was not trained with.
    part: Name of the evaluated language or file, for messages.
    notes: List to which a note about unseen labels is appended.
    name: Function that maps a label to the name that is compared with
      `known_labels`. By default, the label itself is compared.

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
