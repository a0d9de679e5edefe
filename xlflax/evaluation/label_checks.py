"""Gold labels that a head was not trained with."""

import collections
import enum
from collections.abc import Callable, Collection, Sequence

from xlflax.data.supervised import label_sets, labeled_examples


class Unseen(enum.Enum):
  """What is done about them."""

  ERROR = 'error'  # the part is not evaluated, and listed as a failure
  WRONG = 'wrong'  # every prediction is wrong there; a note counts them


def check_labels_known(
  examples: Sequence[labeled_examples.Example],
  known: Collection[str],
  unseen: Unseen,
  *,
  part: str,
  notes: list[str],
  name: Callable[[str], str] = str,
) -> None:
  """Raises or notes what the examples have and `known` lacks.

  Labels of which the head knows none are an error in any case: the part names
  them otherwise, or belongs to another task.

  Args:
    examples: those of a part.
    known: labels of the head.
    unseen: what to do.
    part: name of the part.
    notes: gets the note.
    name: what of a label counts; as it is, unless another function says so.

  Raises:
    CorpusError: there is such a label, and `unseen` is ERROR; no label is
      known.
  """
  names = {name(label) for label in known}
  missing = collections.Counter(
    label
    for example in examples
    for label in example.labels or ()
    if name(label) not in names
  )
  if not missing:
    return
  example_labels = {
    label for example in examples for label in example.labels or ()
  }
  extra = example_labels - set(missing)
  if unseen is Unseen.ERROR or not extra:
    label_sets.check_labels(examples, {*known, *extra}, f'part {part}')
  listed = ', '.join(f'{label} ({n})' for label, n in sorted(missing.items()))
  notes.append(
    f'{part}: labels that were not seen in training count as wrong: {listed}'
  )
