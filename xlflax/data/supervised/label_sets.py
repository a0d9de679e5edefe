"""The labels that examples have, and whether a model knows them."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from xlflax.data.supervised import labeled_examples
from xlflax.utils import errors


class _Source(Protocol):
  def languages(self) -> tuple[str, ...]: ...

  def load(self, part: str) -> list[labeled_examples.Example]: ...


def labels_of(
  source: _Source, parts: Sequence[str] | None = None
) -> tuple[str, ...]:
  """All labels, tags or relations of a source, sorted.

  Entities in IOB2 are completed: with `B-LOC` there is `I-LOC`, although
  little training data may have no place of several words.

  Args:
    source: the examples, usually those to train on.
    parts: languages to look at; None: all.

  Raises:
    CorpusError: no example has a label.
  """
  parts = source.languages() if parts is None else parts
  labels = set(
    itertools.chain.from_iterable(
      example.labels or () for part in parts for example in source.load(part)
    )
  )
  if not labels:
    raise errors.CorpusError(
      'No example has a label',
      where='the examples in ' + ', '.join(parts),
      fix='take the labels from the training data, not from a blind test set',
    )
  return tuple(sorted(_completed(labels)))


def _completed(labels: set[str]) -> set[str]:
  """The labels; of entities in IOB2 (O, B-X, I-X) both marks of each type."""
  types = {label[2:] for label in labels if label[:2] in ('B-', 'I-')}
  if {label for label in labels if label[:2] not in ('B-', 'I-')} - {'O'}:
    return labels  # not IOB2
  return labels | {f'{mark}-{kind}' for mark in 'BI' for kind in types}


def check_labels(
  examples: Iterable[labeled_examples.Example],
  known: Collection[str],
  where: str,
) -> None:
  """Checks that a model knows all labels.

  Args:
    examples: examples; those without labels are passed over.
    known: the labels of the model's head.
    where: what is evaluated or trained on, for the message.

  Raises:
    CorpusError: a label that is not known, with its language and example.
  """
  known = frozenset(known)
  for example in examples:
    for label in example.labels or ():
      if label not in known:
        raise errors.CorpusError(
          'A label was not seen in training',
          got=f'{label!r} in {example.language}, example {example.id}',
          expected='one of ' + ', '.join(sorted(known)),
          where=where,
          fix='train on data with this label, or rename it where the file '
          'is read',
        )
