"""Table of a model's scores by task, metric and language."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from xlflax.evaluation import task_families
from xlflax.evaluation.metrics import averages, example_statistics
from xlflax.evaluation.metrics.metric import Better, Unit
from xlflax.utils import errors


def to_points(metric: str, value: float) -> float:
  """Converts a score to points: fractions become percentages."""
  is_fraction = task_families.find_metric(metric).unit is Unit.FRACTION
  return 100 * value if is_fraction else value


def is_lower_better(metric: str) -> bool:
  """Returns whether lower values are better, as for AER and perplexity."""
  return task_families.find_metric(metric).better is Better.LOWER


def is_bounded(metric: str) -> bool:
  """Returns whether a metric's points lie between 0 and 100."""
  return task_families.find_metric(metric).unit is not Unit.UNBOUNDED


def is_averaged(metric: str) -> bool:
  """Returns whether a metric is included in the mean over tasks.

  A metric is included if its points are from 0 to 100 and higher values are
  better.
  """
  return is_bounded(metric) and not is_lower_better(metric)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """Cost of pretraining, fine-tuning and evaluating a model.

  Attributes:
    parameters: Number of parameters in the pretrained body, without heads.
    training_seconds: Duration of pretraining in seconds, according to the run's
      logged metrics.
    cpu_seconds: CPU seconds spent on fine-tuning and evaluation.
    device_seconds: Accelerator seconds spent on fine-tuning and evaluation,
      which are wall-clock seconds times the number of accelerators.
    device: Accelerator type, or 'cpu' if there are no accelerators.
  """

  parameters: int
  training_seconds: float = 0.0
  cpu_seconds: float = 0.0
  device_seconds: float = 0.0
  device: str = 'cpu'

  def __add__(self, other: 'Cost') -> 'Cost':
    """Returns the total of two costs of the same model."""
    devices = dict.fromkeys((*self.device.split(', '), other.device))
    return dataclasses.replace(
      self,
      cpu_seconds=self.cpu_seconds + other.cpu_seconds,
      device_seconds=self.device_seconds + other.device_seconds,
      device=', '.join(devices),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
  """A model's score on a test set.

  Attributes:
    task: Task name, such as 'xnli'.
    metric: Metric name, such as 'accuracy', 'f1' or 'bleu'.
    language: Language code, or a pair such as 'en-de'.
    score: Value in the metric's unit: a fraction, or 0 to 100 for BLEU and
      chrF.
    examples: Per-example statistics for each seed, in the order of the test
      set. If two models both have per-example statistics, the models are
      compared by the paired bootstrap.
    predictions: Path to the file of predictions, or ''.
  """

  task: str
  metric: str
  language: str
  score: float
  examples: tuple[example_statistics.Statistics, ...] | None = None
  predictions: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreTable:
  """Table of all scores of a model.

  Attributes:
    model: Model name in tables and legends.
    scores: One score per task, metric and language. The score of a task is
      the mean of its metrics, so metrics that should not be part of that mean
      are left out.
    notes: Remarks on how the scores were computed.
    cost: Cost of obtaining the scores. None if it is unknown.
    expected: Mapping from each task to the number of languages in which the
      model should have a score. For a task that is not in the mapping, a score
      is expected in every language in which any model has a score.
    run: Identifier that distinguishes the model's run from other runs with the
      same name, or ''.
  """

  model: str
  scores: tuple[Score, ...]
  notes: tuple[str, ...] = ()
  cost: Cost | None = None
  expected: Mapping[str, int] = dataclasses.field(default_factory=dict)
  run: str = ''

  def __post_init__(self):
    keys: set[tuple[str, str, str]] = set()
    for score in self.scores:
      key = (score.task, score.metric, score.language)
      if key in keys:
        raise errors.ConfigError(
          f'The ScoreTable of the model {self.model!r} contains two scores for '
          'the same task, metric and language',
          got=' '.join(key),
        )
      keys.add(key)

  @property
  def tasks(self) -> tuple[str, ...]:
    """Names of all tasks, in the order in which `scores` lists them."""
    return tuple(dict.fromkeys(score.task for score in self.scores))

  def metrics(self, task: str) -> tuple[str, ...]:
    """Returns a task's metrics in the order in which `scores` lists them."""
    return tuple(
      dict.fromkeys(score.metric for score in self.scores if score.task == task)
    )

  def by_language(self, task: str, metric: str) -> dict[str, float]:
    """Returns a task's finite scores for a metric in points, by language."""
    return {
      score.language: to_points(metric, score.score)
      for score in self.scores
      if (score.task, score.metric) == (task, metric)
      and math.isfinite(score.score)
    }

  def task_scores(self, task: str) -> dict[str, float]:
    """Returns the mean of a task's metrics in points, by language.

    Languages without a finite score in one of the metrics are omitted.
    """
    metric_scores = [
      self.by_language(task, metric) for metric in self.metrics(task)
    ]
    return {
      language: averages.macro_average(
        [scores[language] for scores in metric_scores]
      )
      for language in next(iter(metric_scores), {})
      if all(language in scores for scores in metric_scores)
    }

  def examples(
    self, task: str, metric: str, language: str
  ) -> tuple[example_statistics.Statistics, ...] | None:
    """Returns a score's per-example statistics for each seed, or None."""
    for score in self.scores:
      if (score.task, score.metric, score.language) == (task, metric, language):
        return score.examples
    return None

  def predictions(self, task: str, language: str) -> str:
    """Returns the path to the predictions for a task and language, or ''."""
    for score in self.scores:
      if (score.task, score.language) == (task, language) and score.predictions:
        return score.predictions
    return ''

  def to_json(self) -> dict[str, Any]:
    """Returns JSON values. Scores that are not finite become null."""
    return {
      'model': self.model,
      'run': self.run,
      'notes': list(self.notes),
      'expected': dict(self.expected),
      'cost': None if self.cost is None else dataclasses.asdict(self.cost),
      'scores': [
        {
          'task': score.task,
          'metric': score.metric,
          'language': score.language,
          'score': score.score if math.isfinite(score.score) else None,
          'predictions': score.predictions,
        }
        | _examples_to_json(score)
        for score in self.scores
      ],
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'ScoreTable':
    """Restores a table from the output of `to_json`."""
    return cls(
      value['model'],
      tuple(
        Score(
          score['task'],
          score['metric'],
          score['language'],
          math.nan if score['score'] is None else score['score'],
          tuple(map(example_statistics.Statistics.from_json, score['examples']))
          if 'examples' in score
          else None,
          score['predictions'],
        )
        for score in value['scores']
      ),
      tuple(value['notes']),
      None if value['cost'] is None else Cost(**value['cost']),
      value['expected'],
      value['run'],
    )


def _examples_to_json(score: Score) -> dict[str, Any]:
  """Returns per-example statistics as a JSON object, or {} if none exist."""
  if not score.examples:
    return {}
  return {'examples': [run.to_json() for run in score.examples]}
