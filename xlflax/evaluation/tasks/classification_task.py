"""Classification of texts and of pairs of texts: accuracy and macro F1."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.evaluation import eval_task, label_checks
from xlflax.evaluation.label_checks import Unseen
from xlflax.evaluation.metrics import classification_metrics
from xlflax.evaluation.metrics.metric import ACCURACY, F1, Metric
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.finetuning import sequence_classification
from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(head_task.HeadOnTexts):
  """How many texts, or pairs of texts, get the right class.

  Metrics, for each part of the source: `accuracy/<part>`, `macro_f1/<part>`
  (mean over the classes that occur), and `majority/<part>`, the accuracy of
  the part's most frequent class; `accuracy/mean` and `macro_f1/mean`. With
  `positive` also `f1/<part>` of that class and `matthews/<part>`. The
  table `confusion` counts gold and predicted classes. The file `<part>.tsv`
  has the predicted class of each example, one a line, as XTREME's submissions.
  Examples without a label are not scored; a part without any label (a blind
  test set) gives nothing else.

  Attributes:
    unseen: what is done about gold classes that the head does not have; a
      part all of whose classes are unknown is an error in any case.
    positive: the class that counts as found, for tasks of two (GLUE); None:
      no class does.
  """

  METRICS = (
    ACCURACY,
    Metric('macro_f1'),
    Metric('majority'),
    F1,
    Metric('matthews', title="Matthews' correlation"),
  )
  EXAMPLE = labeled_examples.ClassifiedText
  HEAD = sequence_classification.SequenceClassification
  AVERAGED = ('accuracy', 'macro_f1', 'f1', 'matthews')
  name: str = 'classification'
  objective: str = 'sequence_classification'
  unseen: Unseen = Unseen.WRONG
  positive: str | None = None

  def rows(self, objective):
    return classification_featurizer.ClassificationRows(
      labels=objective.labels, **self.template
    )

  def score_part(
    self, subject, objective, part, examples, result, notes
  ) -> None:
    """Adds a part's predictions and scores to the result."""
    if self.positive not in (None, *objective.labels):
      raise errors.ConfigError(
        'The positive class is none of the model',
        got=repr(self.positive),
        expected=f'one of {", ".join(objective.labels)}',
        where='Classification.positive',
      )
    label_checks.check_labels_known(
      examples, objective.labels, self.unseen, part=part, notes=notes
    )
    predictions = [
      objective.labels[int(np.argmax(logits))]
      for logits in self.outputs(subject, objective, examples, notes)
    ]
    labelled, predictions = self.add_scores(
      part, examples, predictions, result, notes
    )
    if not labelled:
      return
    gold = [example.label for example in labelled]
    unseen_labels = sorted(set(gold) - set(objective.labels))
    scores = classification_metrics.classification_scores(
      gold, predictions, labels=(*objective.labels, *unseen_labels)
    )
    result.metrics.update(_metrics(part, gold, scores))
    result.tables.setdefault('confusion', []).extend(_confusion(part, scores))

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
  majority_count = collections.Counter(gold).most_common(1)[0][1]
  return {
    f'macro_f1/{part}': scores.macro_f1,
    f'majority/{part}': majority_count / len(gold),
  }


def _confusion(
  part: str, scores: classification_metrics.ClassificationScores
) -> list[eval_task.Row]:
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
