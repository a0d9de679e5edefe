"""Correlation of a head's predictions with human ratings of texts."""

import dataclasses

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.evaluation.metrics.example_statistics import Aggregate, Statistics
from xlflax.evaluation.metrics.metric import (
  PEARSON,
  SPEARMAN,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import head_task, mteb_tasks
from xlflax.objectives.finetuning import sequence_regression
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression(head_task.HeadOnTexts):
  """Correlation of predicted numbers with human ratings (GLUE's STS-B).

  The metrics are `spearman/<part>`, `pearson/<part>` and their means over
  parts. The score of the task is the mean of both. If all ratings are 0 or 1,
  the task also reports `roc_auc/<part>` (SEAHORSE, Clark et al., 2023). The
  file `<part>.tsv` contains one number per line.
  """

  METRICS = (
    SPEARMAN,
    PEARSON,
    Metric(
      'roc_auc',
      Better.HIGHER,
      title='area under the ROC curve',
      unit=Unit.FRACTION,
      description='Probability that a positive example has a higher score '
      'than a negative one.',
    ),
  )
  EXAMPLE = labeled_examples.RatedPair
  HEAD = sequence_regression.SequenceRegression
  ROWS = classification_featurizer.RegressionFeaturizer
  name: str = 'regression'
  objective: str = 'sequence_classification'

  @property
  def score_metrics(self) -> tuple[str, ...]:
    return 'pearson', 'spearman'

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds predictions and scores for a language or file to the result."""
    outputs = self.outputs(eval_model, objective, examples, notes)
    predictions = [str(float(output[0])) for output in outputs]
    self.add_scores(part, examples, predictions, result, notes)

  def example_statistics(self, gold, predictions):
    ratings = np.array([example.score for example in gold])
    statistics = mteb_tasks.rating_correlations(
      ratings, np.array(predictions, float)
    )
    if set(ratings) == {0, 1}:
      rows = statistics['pearson'].rows
      statistics['roc_auc'] = Statistics(rows, Aggregate.ROC_AUC)
    return statistics
