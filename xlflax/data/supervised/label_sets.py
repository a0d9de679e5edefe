"""Label sets of labeled examples, and checks against those of a model."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from xlflax.data.supervised import labeled_examples
from xlflax.utils import errors


class _Source(Protocol):
  """Interface of a source of labeled examples."""

  def languages(self) -> tuple[str, ...]: ...

  def load(self, part: str) -> list[labeled_examples.Example]: ...


def labels_of(
  source: _Source, parts: Sequence[str] | None = None
) -> tuple[str, ...]:
  """Collects all labels, tags or relations of a source, sorted.

  IOB2 label sets are completed: if `B-LOC` occurs, `I-LOC` is added, because a
  small training set may have no entity of several words.

  Args:
    source: Source of the examples, usually the training data.
    parts: Parts of the source to read, such as languages. If None, all parts
      are read.

  Raises:
    CorpusError: If no example has a label.
  """
  parts = source.languages() if parts is None else parts
  labels = set(
    itertools.chain.from_iterable(
      example.labels or () for part in parts for example in source.load(part)
    )
  )
  if not labels:
    raise errors.CorpusError(
      'No example has a label.',
      where='the examples in ' + ', '.join(parts),
      fix='Take the labels from the training data, not from a blind test set.',
    )
  return tuple(sorted(_complete_iob2(labels)))


def _complete_iob2(labels: set[str]) -> set[str]:
  """Adds the missing B- or I- label of each entity type to IOB2 labels.

  If there are labels other than O, B-X and I-X, the labels are not changed.
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
  where: str,
) -> None:
  """Checks that the labels of examples are in the label set of a model.

  Args:
    examples: Labeled examples. Examples without labels are skipped.
    label_set: Labels of the model's head.
    where: Name of the task or data, for error messages.

  Raises:
    CorpusError: If an example has a label that is not in the label set.
  """
  label_set = frozenset(label_set)
  for example in examples:
    for label in example.labels or ():
      if label not in label_set:
        raise errors.CorpusError(
          'A label was not seen in training.',
          got=f'{label!r} in {example.language}, example {example.id}',
          expected='one of ' + ', '.join(sorted(label_set)),
          where=where,
          fix='Train on data with this label, or rename the label when the '
          'file is read.',
        )
