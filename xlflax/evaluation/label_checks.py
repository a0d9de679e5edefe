"""Checks for gold labels that are missing from a head's training labels."""

import collections
import enum
from collections.abc import Callable, Collection, Sequence

from xlflax.data.supervised import file_formats, label_sets, labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.utils import name_suggestions

# Part of the note on labels that the head was not trained with.
UNSEEN = 'labels that were not seen in training count as wrong'
_MAX_LOCATED = 5  # Maximum number of labels whose first line is searched.


class UnseenLabelPolicy(enum.Enum):
  """Policy for gold labels that do not occur in a head's training data."""

  ERROR = 'error'  # The language or file is listed as a failure.
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
  source: example_source.ExampleSource | None = None,
) -> None:
  """Checks that a head's training labels include the examples' gold labels.

  If the head was trained with none of the labels, an error is raised in any
  case. The labels then have different names than in training, or they belong to
  a different task.

  Args:
    examples: Evaluation examples, such as those for one language.
    known_labels: Labels that the head was trained with.
    unseen: Treatment of labels that the head was not trained with.
    part: Name of the evaluated language or file, for messages.
    notes: List to which a note about unseen labels is appended.
    name: Function that maps each label to a name. Labels are compared by these
      names. By default, the name is the label itself.
    source: Source of the examples, from which the locations of labels in
      messages are determined. If None, messages name only `part`.

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
      examples,
      {*known_labels, *seen_labels},
      where=lambda example, label: (
        _find_label(source, part, example, label) or _describe(source, part)
      ),
      fix=lambda label: _suggest_label(source, label, known_labels),
    )
  examples_by_label = {
    label: example
    for example in reversed(examples)
    for label in example.labels or ()
    if label in unseen_counts
  }
  descriptions = []
  for index, (label, count) in enumerate(sorted(unseen_counts.items())):
    details = [str(count)]
    location = (
      _find_label(source, part, examples_by_label[label], label)
      if index < _MAX_LOCATED
      else None
    )
    if location is not None:
      details.append(f'first in {location}')
      similar = name_suggestions.close_matches(
        label, known_labels, most=1, cutoff=0.8
      )
      details += [f'similar to {known_label}' for known_label in similar]
    descriptions.append(f'{label} ({", ".join(details)})')
  notes.append(f'{part}: {UNSEEN}: {", ".join(descriptions)}')


def _find_label(
  source: example_source.ExampleSource | None,
  part: str,
  example: labeled_examples.Example,
  label: str,
) -> str | None:
  """Returns the file and the line of an example's label, if they are known."""
  if source is None:
    return None
  words, tags = (getattr(example, name, None) for name in ('words', 'tags'))
  if words and tags:
    for word, tag in zip(words, tags, strict=False):
      if tag == label:
        return source.find_line(part, (word, tag))
  text = getattr(example, 'text', None)
  if not isinstance(text, str):
    return None
  return source.find_line(part, (text, label))


def _describe(source: example_source.ExampleSource | None, part: str) -> str:
  """Returns the name of a language split and of the files that contain it."""
  if not isinstance(source, example_source.FileDataset):
    return f'part {part}'
  return f'part {part} ({source.describe(part)})'


def _suggest_label(
  source: example_source.ExampleSource | None,
  label: str,
  known_labels: Collection[str],
) -> str:
  """Returns a hint for a label that the head was not trained with."""
  hint = 'Train on data with this label, or '
  if (
    not isinstance(source, example_source.FileDataset)
    or 'labels' not in file_formats.find_reader(source.format).options
  ):
    return hint + 'map the label to a known one when the file is read.'
  other_options = ''.join(
    f'{name!r}: {value!r}, '
    for name, value in source.options.items()
    if name != 'labels'
  )
  options = f"{other_options}'labels': {{{label!r}: 'CLASS', …}}"
  return (
    f'{hint}map all labels of the file to labels of the training data with the '
    'option `labels`. In `xlflax evaluate`, pass '
    f'--gin.OPTIONS="{{{options}}}". In `xlflax finetune`, set DEV_OPTIONS for '
    'development files, or pass '
    '--eval_gin="OPTIONS=…" for test files.'
  )
