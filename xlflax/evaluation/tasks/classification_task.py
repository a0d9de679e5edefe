"""Classification of texts and text pairs, scored by accuracy and macro F1."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.evaluation import eval_task, label_checks
from xlflax.evaluation.label_checks import UnseenLabelPolicy
from xlflax.evaluation.metrics import classification_metrics
from xlflax.evaluation.metrics.metric import (
  ACCURACY,
  F1,
  MAJORITY,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.finetuning import sequence_classification
from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(head_task.HeadOnTexts):
  """Accuracy of classifying texts or text pairs.

  The metrics of each part (language or file) of the source are
  `accuracy/<part>`, `macro_f1/<part>` (the mean over the classes that occur),
  and `majority/<part>`, the accuracy of the part's most frequent class. With
  `positive`, they also include `f1/<part>` of that class and `matthews/<part>`.
  `<metric>/mean` is the mean over parts.

  The table `confusion` counts pairs of gold and predicted classes. The file
  `<part>.tsv` contains the predicted class of each example, one per line, in
  the format of XTREME's submissions. Examples without a label are not scored. A
  part without any label (a blind test set) yields predictions only.

  Attributes:
    unseen: Treatment of gold classes that the head was not trained with. An
      error is always raised if the head was trained with none of the gold
      classes of a language or file.
    positive: Positive class, for tasks with two classes such as those in GLUE.
      If None, no class is positive, and F1 and Matthews correlation of the
      class are not computed.
  """

  METRICS = (
    ACCURACY,
    Metric(
      'macro_f1',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='Mean F1 over the classes that occur in the test set.',
    ),
    MAJORITY,
    F1,
    Metric(
      'matthews',
      Better.HIGHER,
      title="Matthews' correlation",
      unit=Unit.FRACTION,
      description='Correlation of predicted and gold classes, for two classes.',
    ),
  )
  EXAMPLE = labeled_examples.ClassifiedText
  HEAD = sequence_classification.SequenceClassification
  AVERAGED = ('accuracy', 'macro_f1', 'majority', 'f1', 'matthews')
  name: str = 'classification'
  objective: str = 'sequence_classification'
  unseen: UnseenLabelPolicy = UnseenLabelPolicy.WRONG
  positive: str | None = None

  def computed_metrics(self) -> tuple[Metric, ...]:
    """Metrics to compute. F1 and Matthews correlation need a positive class."""
    return tuple(
      metric
      for metric in self.METRICS
      if self.positive is not None or metric.name not in ('f1', 'matthews')
    )

  def rows(self, objective):
    """Returns the featurizer that prepares the head's inputs."""
    return classification_featurizer.ClassificationFeaturizer(
      labels=objective.labels, **self.template
    )

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds predictions and scores for a language or file to the result."""
    if self.positive not in (None, *objective.labels):
      raise errors.ConfigError(
        'The positive class must be one of the classes of the head',
        got=repr(self.positive),
        expected='one of ' + ', '.join(objective.labels),
        where=errors.field_location(self, 'positive'),
      )
    self.check_labels(objective, part, examples, notes)
    predictions = [
      objective.labels[int(np.argmax(logits))]
      for logits in self.outputs(eval_model, objective, examples, notes)
    ]
    labeled, predictions = self.add_scores(
      part, examples, predictions, result, notes
    )
    if not labeled:
      return
    gold = [example.label for example in labeled]
    unseen_labels = sorted(set(gold) - set(objective.labels))
    scores = classification_metrics.classification_scores(
      gold, predictions, labels=(*objective.labels, *unseen_labels)
    )
    result.metrics.update(_metrics(part, gold, scores))
    result.tables.setdefault('confusion', []).extend(_confusion(part, scores))

  def check_labels(self, objective, part, examples, notes) -> None:
    """Checks that the head's classes include all gold labels."""
    if not objective.labels:
      raise errors.ConfigError(
        'The evaluation task requires a head that was trained to predict '
        'classes, but the head of the run computes scores',
        got=type(objective).__name__,
        where=errors.field_location(self, 'objective'),
        fix='Pass --tasks=reranking or --tasks=regression.',
      )
    label_checks.check_labels_known(
      examples,
      objective.labels,
      self.unseen,
      part=part,
      notes=notes,
      source=self.source,
    )

  def example_statistics(self, gold, predictions):
    labels = [example.label for example in gold]
    statistics = {
      'accuracy': classification_metrics.classification_scores(
        labels, predictions
      ).correct
    }
    if self.positive is not None:
      statistics |= classification_metrics.of_positive(
        labels, predictions, self.positive
      )
    return statistics


def _metrics(
  part: str,
  gold: Sequence[str],
  scores: classification_metrics.ClassificationScores,
) -> dict[str, float]:
  """Returns the metrics that do not have per-example statistics."""
  majority_count = collections.Counter(gold).most_common(1)[0][1]
  return {
    f'macro_f1/{part}': scores.macro_f1,
    f'majority/{part}': majority_count / len(gold),
  }


def _confusion(
  part: str, scores: classification_metrics.ClassificationScores
) -> list[eval_task.Row]:
  """Returns the confusion matrix of a language or file as table rows."""
  return [
    {
      'part': part,
      'gold': gold,
      'predicted': predicted,
      'examples': int(scores.confusion[i, j]),
    }
    for i, gold in enumerate(scores.labels)
    for j, predicted in enumerate(scores.labels)
  ]
