"""Classification metrics: accuracy, macro F1 and the confusion matrix."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.evaluation.metrics import example_statistics, metric_checks
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationScores:
  """Scores on a classification test set, as fractions.

  Attributes:
    accuracy: Fraction of examples with a correct label.
    macro_f1: Unweighted mean of the classes' F1 scores. Classes without gold
      and predicted examples are excluded, as in scikit-learn.
    labels: The C classes in the order of rows and columns in `confusion`.
    confusion: Array of counts of shape [C, C]. Rows are gold classes, and
      columns are predicted classes.
    correct: 1 for each correctly classified example and 0 for the others, for
      significance tests.
  """

  accuracy: float
  macro_f1: float
  labels: tuple[str, ...]
  confusion: np.ndarray
  correct: example_statistics.Statistics


def classification_scores(
  gold: Sequence[str],
  predicted: Sequence[str],
  *,
  labels: Sequence[str] | None = None,
) -> ClassificationScores:
  """Computes accuracy, macro F1 and the confusion matrix of predicted labels.

  Args:
    gold: N gold labels.
    predicted: N predicted labels.
    labels: Classes in the order of the confusion matrix. If None, the sorted
      labels that occur in `gold` or `predicted`.

  Raises:
    CorpusError: If there are no labels, if the numbers of gold and predicted
      labels differ, or if a label is not in `labels`.
  """
  metric_checks.same_length(gold, predicted, what='labels')
  metric_checks.not_empty(gold, what='labels')
  classes = (
    tuple(sorted({*gold, *predicted})) if labels is None else tuple(labels)
  )
  confusion = confusion_matrix(gold, predicted, labels=classes)
  num_correct = np.diagonal(confusion)
  num_labels = confusion.sum(0) + confusion.sum(1)  # predicted + gold, [C]
  class_f1 = example_statistics.safe_divide(2 * num_correct, num_labels)
  return ClassificationScores(
    accuracy=float(num_correct.sum() / len(gold)),
    macro_f1=float(np.mean(class_f1[num_labels > 0])),
    labels=classes,
    confusion=confusion,
    correct=example_statistics.Statistics(
      np.array([g == p for g, p in zip(gold, predicted, strict=True)])
    ),
  )


def of_positive(
  gold: Sequence[str], predicted: Sequence[str], positive: str
) -> dict[str, example_statistics.Statistics]:
  """Returns the positive class's F1 and the Matthews correlation, as in GLUE.

  Args:
    gold: N gold labels.
    predicted: N predicted labels.
    positive: Positive class. All other classes are the negative class.
  """
  is_positive = np.array([gold, predicted]) == positive  # [2, N]
  counts = np.stack([is_positive.all(0), is_positive[1], is_positive[0]], 1)
  return {
    'f1': example_statistics.Statistics(
      counts, example_statistics.Aggregate.F1
    ),
    'matthews': example_statistics.Statistics(
      is_positive.T, example_statistics.Aggregate.MATTHEWS
    ),
  }


def confusion_matrix(
  gold: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str]
) -> np.ndarray:
  """Returns example counts by gold and predicted label, of shape [C, C].

  Args:
    gold: N gold labels.
    predicted: N predicted labels.
    labels: The C classes in the order of the returned rows and columns.

  Raises:
    CorpusError: If a label is not in `labels`.
  """
  indices = {label: index for index, label in enumerate(labels)}
  for label in (*gold, *predicted):
    if label not in indices:
      raise errors.CorpusError(
        'Every gold and predicted label must be in the list of classes',
        got=repr(label),
        expected='one of ' + ', '.join(map(repr, labels)),
      )
  counts = np.zeros((len(labels), len(labels)), np.int64)
  np.add.at(
    counts,
    (
      [indices[label] for label in gold],
      [indices[label] for label in predicted],
    ),
    1,
  )
  return counts
