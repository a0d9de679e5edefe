"""The interface of evaluation: an `EvalTask` scores a `Subject`.

A task does not stop because one of its parts fails. `Failures.guard` catches
the error and names task and part; the other parts are scored. Whoever runs
tasks (`xlflax.evaluate`, the training loop) reports the failures at the end.
"""

import contextlib
import dataclasses
import enum
import hashlib
import json
import logging
import math
import pathlib
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pydantic

from xlflax.data.tokenizers import base_vocabulary
from xlflax.evaluation import sentence_embedding  # registers them
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.metrics.metric import Metric
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import objective_base as objectives_base
from xlflax.training import nonfinite_checks
from xlflax.training.devices import partitioning
from xlflax.utils import (
  class_registry,
  errors,
  progress_reporting,
  repr_html,
  validation,
)

_LOG = logging.getLogger(__name__)

STATISTICS = '.examples'  # ends the names of files of `statistics_files`
Row = dict[str, Any]
_tasks: dict[str, type['EvalTask']] = {}
_metrics: dict[str, Metric] = {}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
  """What is evaluated: a model with the parameters of one checkpoint.

  Attributes:
    model: the Linen encoder.
    params: `{'model': ..., 'heads': ...}`, unboxed; may be sharded over mesh.
    vocabulary: the run's vocabulary.
    partitioner: splits batches over its mesh; None: one device.
    seed: of every random choice of a task, such as which tokens it masks.
    batch_size: sentences a batch where results do not depend on it; rows
      longer than 128 tokens come in proportionally smaller batches.
    objectives: what the run trained, by name; a head's labels are theirs.
    inputs: Settings with which the run turned labeled examples into model
      inputs, by the name of the objective.
    sentence: what its sentence vectors are.
  """

  model: Any
  params: Any
  vocabulary: pydantic.SkipValidation[base_vocabulary.Vocabulary]
  partitioner: partitioning.Partitioner | None = None
  seed: validation.Seed = 0
  batch_size: validation.PositiveInt = 64
  objectives: Mapping[str, objectives_base.Objective] = dataclasses.field(
    default_factory=dict
  )
  inputs: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  sentence: sentence_embedding.SentenceEncoding = dataclasses.field(
    default_factory=sentence_embedding.SentenceEncoding
  )

  @property
  def sharing(self) -> parameter_sharing.SharingPlan | None:
    """The model's sharing plan: each batch must then be of one language."""
    return parameter_sharing.plan_of(self.model)

  @property
  def needs_languages(self) -> bool:
    """Whether text can only be read by its language's own parts or pieces."""
    return self.sharing is not None or self.vocabulary.needs_language


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
  """One part of a task that could not be evaluated.

  Attributes:
    task: name of the task.
    part: language, pair or file; '' when the task as a whole failed.
    message: the exception's text.
    status: the exit status that fits it; see `errors.ExitStatus`.
  """

  task: str
  part: str
  message: str
  status: int = errors.ExitStatus.MISTAKE

  def __str__(self) -> str:
    return f'{": ".join(filter(None, (self.task, self.part)))}: {self.message}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalResult:
  """What a task found.

  Attributes:
    metrics: flat `name/part` -> number, such as `accuracy/de`.
    tables: name -> rows, each a flat dict, for what is too much for metrics.
    notes: facts a reader must know, such as how many sentences were cut.
    failures: parts that are missing from the metrics, and why.
    files: name -> text of files such as predictions; written beside the JSON
      file, to `<step>/<name>`, and not read back.
    score_metrics: the metrics whose mean is the task's score.
    inputs: Settings that turned labeled examples into model inputs, such as
      `length` and `separator`: those of the run, unless the task sets others.
  """

  metrics: dict[str, float]
  tables: dict[str, list[Row]] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()
  failures: tuple[Failure, ...] = ()
  files: dict[str, str] = dataclasses.field(default_factory=dict)
  score_metrics: tuple[str, ...] = ()
  inputs: dict[str, Any] = dataclasses.field(default_factory=dict)

  def _repr_html_(self) -> str:
    rows = {**self.metrics, 'failures': self.failures or 'none'}
    return repr_html.html_table('Metrics', rows)

  def to_json(self) -> dict[str, Any]:
    """As plain JSON values without `files`; NaN and infinity become null."""
    value = dataclasses.asdict(self)
    del value['files']
    return nonfinite_checks.or_null(value)

  @classmethod
  def from_json(cls, value: dict[str, Any]) -> 'EvalResult':
    """The inverse of `to_json`; null in metrics becomes NaN.

    Raises:
      ValueError: it is no result.
    """
    numbers = value['metrics']
    if not isinstance(numbers, dict) or not all(
      number is None or type(number) in (int, float)
      for number in numbers.values()
    ):
      raise ValueError('metrics that are no numbers')
    tables, texts = value['tables'], value['notes']
    if not isinstance(tables, dict) or not all(
      isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
      for rows in tables.values()
    ):
      raise ValueError('tables that are none')
    if not all(isinstance(text, str) for text in texts):
      raise ValueError('notes that are no text')
    return cls(
      metrics={
        name: math.nan if number is None else number
        for name, number in numbers.items()
      },
      tables=tables,
      notes=tuple(texts),
      failures=tuple(Failure(**f) for f in value['failures']),
      score_metrics=tuple(value.get('score_metrics', ())),
      inputs=dict(value.get('inputs', {})),
    )


class Failures:
  """Collects what fails inside a task, so that the rest goes on."""

  def __init__(self, task: str):
    self._task = task
    self._failures: list[Failure] = []

  @contextlib.contextmanager
  def guard(self, part: str = ''):
    """Records an exception of the block under the name `part`.

    A user's mistake is kept as its message; anything else is logged with its
    traceback, since it may be a bug.
    """
    try:
      yield
    except errors.XlflaxError as error:
      self._add(part, str(error), error.status)
    except OSError as error:
      error_with_status = errors.of_os_error(error)
      self._add(part, str(error_with_status), error_with_status.status)
    except Exception as error:
      _LOG.exception(
        'Evaluation task %s failed at %s.', self._task, part or 'its start'
      )
      message = f'{type(error).__name__}: {error}'
      self._add(part, message, errors.ExitStatus.BUG)

  def _add(self, part: str, message: str, status: int):
    self._failures.append(
      Failure(task=self._task, part=part, message=message, status=int(status))
    )

  def collected(self) -> tuple[Failure, ...]:
    """Returns the failures so far."""
    return tuple(self._failures)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalTask:
  """Base of evaluation tasks: a frozen dataclass of settings.

  A public subclass that gives `name` a default is a task family: that default
  is its name on the command line (`xlflax evaluate --tasks`). It declares
  `METRICS`.

  Attributes:
    name: of the folder that its results lie in, under `eval/`.
    METRICS: what `evaluate` reports, the primary metric first.
    SOURCES: further names on the command line, with the class of the source
      that the task reads under that name.
  """

  METRICS: ClassVar[tuple[Metric, ...]] = ()
  SOURCES: ClassVar[Mapping[str, Any]] = {}

  name: str

  def __init_subclass__(cls, **options):
    super().__init_subclass__(**options)
    if isinstance(cls.__dict__.get('name'), str) and cls.__name__[0] != '_':
      _register(cls)

  @property
  def split(self) -> str:
    """The split of the text that is read; 'all' where it has no splits."""
    return getattr(getattr(self, 'source', None), 'split', 'all')

  @property
  def primary_metric(self) -> str:
    """The metric, before the `/`, that summary tables show."""
    if not self.METRICS:
      raise errors.ConfigError(
        'An evaluation task declares no metric',
        where=type(self).__name__,
        expected="METRICS = (Metric('accuracy'), ...), the primary one first",
      )
    return self.METRICS[0].name

  @property
  def further_metrics(self) -> tuple[str, ...]:
    """Metrics that summary tables show beside the primary one."""
    return ()

  @property
  def score_metrics(self) -> tuple[str, ...]:
    """The metrics whose mean is the task's score in reports."""
    return (self.primary_metric,)

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any] | None:
    """Returns the function that creates the text source from options.

    Its parameters are the options of `xlflax evaluate` that the task reads,
    such as `corpus` and `languages`. Parameters without a default are
    required. By default, it is `from_options` of the class of the field
    `source`.

    Args:
      name: Name by which the task was requested.

    Returns:
      The function, or None if the source is not created from options.
    """
    source = cls.SOURCES.get(name) or typing.get_type_hints(cls).get('source')
    return getattr(source, 'from_options', None)

  @classmethod
  def arguments(cls, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a task that reads the text of some options.

    Args:
      name: Name by which the task was requested.
      options: Arguments of `source_factory`.

    Raises:
      ConfigError: If the options do not locate any text.
    """
    create_source = cls.source_factory(name)
    return {} if create_source is None else {'source': create_source(**options)}

  def statistics(
    self, part: str, folder: pathlib.Path
  ) -> dict[str, corpus_statistics.Statistics]:
    """What single examples contribute to the scores of a part.

    Two models are compared on the examples themselves (`metrics.bootstrap`).

    Args:
      part: of the task's source, or what its metrics call it.
      folder: with the files of the task's result, `eval/<name>/<step>/`.

    Returns:
      Metric -> statistics of the examples, in the order of the source; {} if
      the files do not tell, or the part has no gold labels.

    Raises:
      OSError: a file is missing.
    """
    file = folder / statistics_file(part)
    if not file.exists():
      return {}
    return {
      metric: corpus_statistics.Statistics.from_json(value)
      for metric, value in json.loads(file.read_text('utf-8')).items()
    }

  def evaluate(self, subject: Subject) -> EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    raise NotImplementedError


def statistics_file(part: str) -> str:
  """The name of the file with what a part's single examples contribute."""
  return f'{part}{STATISTICS}'


def statistics_files(
  part: str,
  found: Mapping[str, corpus_statistics.Statistics],
  files: Mapping[str, str] | None = None,
) -> dict[str, str]:
  """That file, of `EvalResult.files`: `EvalTask.statistics` reads it.

  Args:
    part: what the metrics call it, the `de` of `f1/de`.
    found: metric -> statistics of its examples.
    files: of the result, of which the file's other metrics are kept.
  """
  name = statistics_file(part)
  stored = json.loads((files or {}).get(name, '{}'))
  values = {metric: statistic.to_json() for metric, statistic in found.items()}
  return {name: json.dumps(stored | values) + '\n'}


def evaluate_task(task: EvalTask, subject: Subject) -> EvalResult:
  """`task.evaluate`, where even a failure of the whole task is a result."""
  failures = Failures(task.name)
  with progress_reporting.progress_name(task.name), failures.guard():
    declared = task.score_metrics  # asked first: what fails here fails early
    return dataclasses.replace(task.evaluate(subject), score_metrics=declared)
  return EvalResult(metrics={}, failures=failures.collected())


def known_tasks() -> Mapping[str, type[EvalTask]]:
  """Name on the command line -> class, of all modules imported so far."""
  return _tasks


def known_metrics() -> Mapping[str, Metric]:
  """Name -> metric that some task declares, of all modules imported so far."""
  return _metrics


def _register(cls: type[EvalTask]) -> None:
  """Makes a family known; the same class may be defined again."""
  names = (cls.__dict__['name'], *cls.__dict__.get('SOURCES', ()))
  for name in names:
    registered = _tasks.get(name, cls)
    if _origin(registered) != _origin(cls):
      raise errors.ConfigError(
        'Two evaluation tasks have the same name',
        got=_origin(cls),
        expected=f'another name than {name!r} of {_origin(registered)}',
      )
  for metric in cls.METRICS:
    if _metrics.get(metric.name, metric) != metric:
      raise errors.ConfigError(
        'Two evaluation tasks declare a metric differently',
        got=str(metric),
        expected=str(_metrics[metric.name]),
        where=f'{cls.__qualname__}.METRICS',
      )
  _tasks.update(dict.fromkeys(names, cls))
  _metrics.update({metric.name: metric for metric in cls.METRICS})


def _origin(cls: type) -> str:
  return f'{cls.__module__}.{cls.__qualname__}'


def task_settings(value: Any) -> Any:
  """The settings of a task as JSON values, equal where results must be equal.

  An object with a method `fingerprint` stands for data and is replaced by
  what that method says, a field that is `class_registry.known_by_content` by what
  lies at its paths: the text counts, not the path it lies at.
  """
  if hasattr(value, 'fingerprint'):
    return {'class': type(value).__name__, 'fingerprint': value.fingerprint()}
  if dataclasses.is_dataclass(value):
    fields = {
      field.name: class_registry.content_of(field, getattr(value, field.name))
      or task_settings(getattr(value, field.name))
      for field in dataclasses.fields(value)
    }
    return {'class': type(value).__name__, **fields}
  if isinstance(value, enum.Enum):
    return value.value
  if isinstance(value, (list, tuple)):
    return [task_settings(item) for item in value]
  return value


def settings_hash(value: Any) -> str:
  """First 16 hexadecimal digits of the SHA-256 of JSON values."""
  text = json.dumps(value, sort_keys=True, ensure_ascii=True)
  return hashlib.sha256(text.encode('ascii')).hexdigest()[:16]
