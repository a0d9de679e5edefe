"""Classification: accuracy, macro F1, the table of confusions."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationScores:
  """Scores of one set of labels, fractions.

  Attributes:
    accuracy: share of right labels.
    macro_f1: mean over classes of each class's F1. Classes that are neither
      gold nor predicted anywhere don't count (as in scikit-learn).
    labels: the C classes, in the order of `confusion`.
    confusion: [C, C] counts, gold by predicted.
    correct: 1 or 0 for each example, for significance tests.
  """

  accuracy: float
  macro_f1: float
  labels: tuple[str, ...]
  confusion: np.ndarray
  correct: corpus_statistics.Statistics


def classification_scores(
  gold: Sequence[str],
  predicted: Sequence[str],
  *,
  labels: Sequence[str] | None = None,
) -> ClassificationScores:
  """Scores predicted labels.

  Args:
    gold: N right labels.
    predicted: N predicted ones.
    labels: the classes in the order of the confusion table; None: those seen,
      sorted.

  Raises:
    CorpusError: no labels, not as many of both, or one not in `labels`.
  """
  metric_checks.same_length(gold, predicted, what='labels')
  metric_checks.not_empty(gold, what='labels')
  classes = (
    tuple(sorted({*gold, *predicted})) if labels is None else tuple(labels)
  )
  table = confusion_matrix(gold, predicted, labels=classes)
  hits = np.diagonal(table)
  sizes = table.sum(0) + table.sum(1)  # [C] predicted + gold
  class_f1 = corpus_statistics.safe_divide(2 * hits, sizes)
  return ClassificationScores(
    accuracy=float(hits.sum() / len(gold)),
    macro_f1=float(np.mean(class_f1[sizes > 0])),
    labels=classes,
    confusion=table,
    correct=corpus_statistics.Statistics(
      np.array([g == p for g, p in zip(gold, predicted, strict=True)])
    ),
  )


def of_positive(
  gold: Sequence[str], predicted: Sequence[str], positive: str
) -> dict[str, corpus_statistics.Statistics]:
  """F1 of one class and Matthews' correlation (GLUE's MRPC, QQP and CoLA).

  Args:
    gold: N right labels.
    predicted: N predicted ones.
    positive: the class; all others are one.
  """
  sides = np.array([gold, predicted]) == positive  # [2, N]
  counts = np.stack([sides.all(0), sides[1], sides[0]], 1)
  kinds = corpus_statistics.Aggregate
  return {
    'f1': corpus_statistics.Statistics(counts, kinds.F1),
    'matthews': corpus_statistics.Statistics(sides.T, kinds.MATTHEWS),
  }


def confusion_matrix(
  gold: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str]
) -> np.ndarray:
  """[C, C] counts: gold label by predicted label, in the order of `labels`."""
  places = {label: index for index, label in enumerate(labels)}
  for label in (*gold, *predicted):
    if label not in places:
      raise errors.CorpusError(
        'A label is not one of the classes',
        got=repr(label),
        expected='one of ' + ', '.join(map(repr, labels)),
      )
  table = np.zeros((len(labels), len(labels)), np.int64)
  np.add.at(
    table, ([places[g] for g in gold], [places[p] for p in predicted]), 1
  )
  return table
