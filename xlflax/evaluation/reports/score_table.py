"""What reports are made of: one model's scores by task, metric, language."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from xlflax.evaluation import task_families
from xlflax.evaluation.metrics import averages, corpus_statistics
from xlflax.evaluation.metrics.metric import Better, Unit
from xlflax.utils import errors


def points(metric: str, value: float) -> float:
  """A score as reports show it: fractions in percent, others as they are."""
  return (
    100 * value
    if task_families.find_metric(metric).unit is Unit.FRACTION
    else value
  )


def lower_is_better(metric: str) -> bool:
  """Whether the metric is declared so: AER, perplexity, loss."""
  return task_families.find_metric(metric).better is Better.LOWER


def is_bounded(metric: str) -> bool:
  """Whether its points are 0..100: all but perplexity and loss."""
  return task_families.find_metric(metric).unit is not Unit.UNBOUNDED


def is_averaged(metric: str) -> bool:
  """Whether it counts in the mean over tasks: 0..100, higher is better."""
  return is_bounded(metric) and not lower_is_better(metric)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """What a model's scores have cost.

  Attributes:
    parameters: of the pretrained body.
    training_seconds: of its pretraining, as its metrics record it.
    cpu_seconds: processor time of fine-tuning and evaluation.
    device_seconds: the same on accelerators: wall-clock time, times how many.
    device: their kind; 'cpu' for none.
  """

  parameters: int
  training_seconds: float = 0.0
  cpu_seconds: float = 0.0
  device_seconds: float = 0.0
  device: str = 'cpu'

  def __add__(self, other: 'Cost') -> 'Cost':
    """Both together, of one model."""
    devices = dict.fromkeys((*self.device.split(', '), other.device))
    return dataclasses.replace(
      self,
      cpu_seconds=self.cpu_seconds + other.cpu_seconds,
      device_seconds=self.device_seconds + other.device_seconds,
      device=', '.join(devices),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
  """One number.

  Attributes:
    task: such as 'xnli'.
    metric: such as 'accuracy', 'f1', 'bleu'.
    language: code, or a pair such as 'en-de'.
    score: in the metric's own unit: a fraction; BLEU and chrF 0..100.
    examples: for each seed, what each example contributed, in the order of
      the test set; two models that both have it are compared by the paired
      bootstrap.
    predictions: path of the file that was scored; '' for none.
  """

  task: str
  metric: str
  language: str
  score: float
  examples: tuple[corpus_statistics.Statistics, ...] | None = None
  predictions: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreTable:
  """All scores of one model.

  Attributes:
    model: name in tables and legends.
    scores: one for each task, metric and language. The mean of a task's
      metrics is its score: leave out those that do not count.
    notes: facts a reader must know.
    cost: of the scores; None where it is not known.
    expected: task -> how many languages it has, of every task that there
      should be; other tasks have those of all models side by side.
    run: what tells the model's run from another one of its name; '' if nothing.
  """

  model: str
  scores: tuple[Score, ...]
  notes: tuple[str, ...] = ()
  cost: Cost | None = None
  expected: Mapping[str, int] = dataclasses.field(default_factory=dict)
  run: str = ''

  def __post_init__(self):
    seen: set[tuple[str, str, str]] = set()
    for one in self.scores:
      key = (one.task, one.metric, one.language)
      if key in seen:
        raise errors.ConfigError(
          'A table has two scores of one kind',
          got=' '.join(key),
          expected='one for each task, metric and language',
          where=f'ScoreTable {self.model!r}',
        )
      seen.add(key)

  @property
  def tasks(self) -> tuple[str, ...]:
    """In the order of their first score."""
    return tuple(dict.fromkeys(one.task for one in self.scores))

  def metrics(self, task: str) -> tuple[str, ...]:
    """A task's metrics, in the order of their first score."""
    return tuple(
      dict.fromkeys(one.metric for one in self.scores if one.task == task)
    )

  def by_language(self, task: str, metric: str) -> dict[str, float]:
    """Language -> points; scores that are not finite are left out."""
    return {
      one.language: points(metric, one.score)
      for one in self.scores
      if (one.task, one.metric) == (task, metric) and math.isfinite(one.score)
    }

  def task_scores(self, task: str) -> dict[str, float]:
    """Language -> mean of the task's metrics in points."""
    found = [self.by_language(task, name) for name in self.metrics(task)]
    return {
      language: averages.macro_average([one[language] for one in found])
      for language in next(iter(found), {})
      if all(language in one for one in found)
    }

  def examples(
    self, task: str, metric: str, language: str
  ) -> tuple[corpus_statistics.Statistics, ...] | None:
    """The statistics of one score by seed, if it is there and has them."""
    for one in self.scores:
      if (one.task, one.metric, one.language) == (task, metric, language):
        return one.examples
    return None

  def predictions(self, task: str, language: str) -> str:
    """Path of the predictions that a task's scores are of; '' for none."""
    return next(
      (
        one.predictions
        for one in self.scores
        if (one.task, one.language) == (task, language) and one.predictions
      ),
      '',
    )

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values; a score that is not finite becomes null."""
    return {
      'model': self.model,
      'run': self.run,
      'notes': list(self.notes),
      'expected': dict(self.expected),
      'cost': None if self.cost is None else dataclasses.asdict(self.cost),
      'scores': [
        {
          'task': one.task,
          'metric': one.metric,
          'language': one.language,
          'score': one.score if math.isfinite(one.score) else None,
          'predictions': one.predictions,
        }
        | _examples(one)
        for one in self.scores
      ],
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'ScoreTable':
    """The inverse of `to_json`."""
    return cls(
      value['model'],
      tuple(
        Score(
          one['task'],
          one['metric'],
          one['language'],
          math.nan if one['score'] is None else one['score'],
          tuple(map(corpus_statistics.Statistics.from_json, one['examples']))
          if 'examples' in one
          else None,
          one['predictions'],
        )
        for one in value['scores']
      ),
      tuple(value['notes']),
      None if value['cost'] is None else Cost(**value['cost']),
      value['expected'],
      value['run'],
    )


def _examples(one: Score) -> dict[str, Any]:
  """What is recorded of single examples, if anything."""
  if not one.examples:
    return {}
  return {'examples': [run.to_json() for run in one.examples]}
