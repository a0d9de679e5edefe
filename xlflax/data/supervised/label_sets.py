"""Label sets collected from examples, and checks against a model's labels."""

import collections
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from xlflax.data.supervised import labeled_examples
from xlflax.utils import errors, logs, name_suggestions


class _Source(Protocol):
  """Interface of a source of labeled examples."""

  def languages(self) -> tuple[str, ...]: ...

  def load(self, part: str) -> list[labeled_examples.Example]: ...

  def describe(self, part: str) -> str: ...

  def describe_label_location(self) -> str: ...


def labels_of(
  source: _Source, parts: Sequence[str] | None = None
) -> tuple[str, ...]:
  """Returns the sorted set of all labels, tags or relations in a source.

  IOB2 label sets are completed. For example, if `B-LOC` occurs, `I-LOC` is
  added, because a small training set may contain no entity of several words. A
  warning is logged for labels that differ only in case or spaces.

  Args:
    source: Source of the examples, usually the training data.
    parts: Names of the source's language splits to read. If None, all splits
      are read.

  Raises:
    CorpusError: If no example has a label.
  """
  parts = source.languages() if parts is None else parts
  labels_by_part = {
    part: {
      label for example in source.load(part) for label in example.labels or ()
    }
    for part in parts
  }
  labels = set().union(*labels_by_part.values())
  if not labels:
    raise errors.CorpusError(
      f'The examples of the language splits {", ".join(parts)} have no labels',
      fix=source.describe_label_location()
      or 'Collect the labels from the training data, not from a blind test '
      'set.',
    )
  groups = list(_find_other_spellings(labels))
  if groups:
    spellings = {label for group in groups for label in group}
    files = [
      source.describe(part)
      for part, labels_of_part in labels_by_part.items()
      if not labels_of_part.isdisjoint(spellings)
    ]
    logging.warning(
      'In %s, labels differ only in case or spaces, but they are different '
      'classes: %s. Use the same spelling in all lines, or, if the file is a '
      'TSV or JSON file, map its labels to class names with the option '
      '`labels` (macro TRAIN_OPTIONS).',
      name_suggestions.format_names(list(dict.fromkeys(files))),
      name_suggestions.format_names(
        [' and '.join(map(repr, group)) for group in groups]
      ),
      extra=logs.ONCE,
    )
  return tuple(sorted(_complete_iob2(labels)))


def _find_other_spellings(labels: Iterable[str]) -> Iterator[tuple[str, ...]]:
  """Yields each group of labels that differ only in case or spaces.

  Only words in lower case, in upper case and with initial capitals are
  compared. In morphological tags, such as `Ncmsn`, the case of a letter can
  have a meaning.
  """
  groups: dict[str, list[str]] = collections.defaultdict(list)
  for label in sorted(labels):
    text = ' '.join(label.split())
    if text in (text.lower(), text.upper(), text.capitalize(), text.title()):
      groups[text.casefold()].append(label)
  return (tuple(group) for group in groups.values() if len(group) > 1)


def _complete_iob2(labels: set[str]) -> set[str]:
  """Adds the missing B- or I- label of each entity type to IOB2 labels.

  If the labels include any other than O, B-X and I-X, they are not changed.
  """
  entity_labels = {label for label in labels if label[:2] in ('B-', 'I-')}
  if labels - entity_labels - {'O'}:
    return labels
  entity_types = {label[2:] for label in entity_labels}
  return labels | {
    f'{prefix}-{entity_type}' for prefix in 'BI' for entity_type in entity_types
  }


def check_labels(
  examples: Iterable[labeled_examples.Example],
  label_set: Collection[str],
  where: str | Callable[[labeled_examples.Example, str], str],
  fix: str | Callable[[str], str] = (
    'Train on data with this label, or map the label to a known one when the '
    'file is read.'
  ),
) -> None:
  """Checks that a model can predict all labels of the examples.

  Args:
    examples: Labeled examples. Examples without labels are skipped.
    label_set: Labels that the model's head predicts.
    where: Name of the task or data set, or a function that returns the location
      of a label, given its example and the label.
    fix: Hint for the error message, or a function that returns it for a label.

  Raises:
    CorpusError: If an example has a label that is not in the label set.
  """
  unknown = _find_unknown_label(examples, label_set)
  if unknown is not None:
    example, label = unknown
    raise errors.CorpusError(
      f'Example {example.id!r} in the language {example.language!r} has a '
      'label that the training data does not contain',
      got=label,
      expected='one of ' + ', '.join(sorted(label_set)),
      where=where if isinstance(where, str) else where(example, label),
      fix=fix if isinstance(fix, str) else fix(label),
    )


def check_training_labels(
  examples: Iterable[labeled_examples.Example],
  label_set: Collection[str],
  where: str,
) -> None:
  """Checks that a configured label set contains all labels of training data.

  Args:
    examples: Training examples. Examples without labels are skipped.
    label_set: Labels of the featurizer and the objective.
    where: Location of the examples, for error messages.

  Raises:
    CorpusError: If an example has a label that is not in the label set.
  """
  unknown = _find_unknown_label(examples, label_set)
  if unknown is not None:
    example, label = unknown
    raise errors.CorpusError(
      f'The training example {example.id!r} in the language '
      f'{example.language!r} has a label that is not in the configured labels',
      got=label,
      expected='one of ' + ', '.join(sorted(label_set)),
      where=where,
      fix='Add the label to the configured labels, which most gin files for '
      'fine-tuning set with the macro LABELS, or map the label to one of them '
      'when the file is read.',
    )


def _find_unknown_label(
  examples: Iterable[labeled_examples.Example], label_set: Collection[str]
) -> tuple[labeled_examples.Example, str] | None:
  """Returns the first label outside of a set and its example, or None."""
  valid_labels = frozenset(label_set)
  return next(
    (
      (example, label)
      for example in examples
      for label in example.labels or ()
      if label not in valid_labels
    ),
    None,
  )
