"""The evaluation interface, in which an `EvalTask` scores an `EvalModel`.

The languages, language pairs or files of a task are its parts. A failure in one
part does not stop the remaining parts. `Failures.guard` catches the exception
and records the task and the part. The callers (`xlflax.evaluate` and the
training loop) report all failures at the end.
"""

import collections
import contextlib
import contextvars
import dataclasses
import enum
import hashlib
import json
import logging
import math
import os
import pathlib
import statistics
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pydantic

from xlflax.data.tokenizers import base_vocabulary
from xlflax.evaluation import sentence_embedding
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.metrics.metric import Better, Metric
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import objective_base
from xlflax.storage import paths
from xlflax.training import nonfinite_checks
from xlflax.training.devices import partitioning
from xlflax.utils import (
  class_registry,
  errors,
  logs,
  progress_reporting,
  repr_html,
  user_modules,
  validation,
)

_LOG = logging.getLogger(__name__)

# Fields in which sources limit the number of examples.
_LIMITS = ('max_examples', 'max_lines', 'max_pairs')
_MAX_LISTED = 5  # Maximum number of metrics in a warning.
STATISTICS = '.examples'  # suffix of the files of `statistics_files`
Row = dict[str, Any]
_tasks: dict[str, type['EvalTask']] = {}
_metrics: dict[str, Metric] = {}
# Declarations from stored results.
_stored_metrics: dict[str, Metric] = {}
# Hashes of the texts that the current task has encoded, in order.
_encoded_texts: contextvars.ContextVar[list[int] | None] = (
  contextvars.ContextVar('encoded_texts', default=None)
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalModel:
  """A model with restored parameters, as passed to evaluation tasks.

  Attributes:
    model: Flax Linen module of an encoder or an encoder-decoder.
    params: Parameters of the model and its heads, `{'model': ..., 'heads':
      ...}`, unboxed. The arrays may be sharded over the mesh.
    vocabulary: Vocabulary of the training run.
    partitioner: Partitioner that shards batches over its device mesh. If None,
      a single device is used.
    seed: Random seed of the tasks, for example for sampling masked tokens.
    batch_size: Number of sentences per batch. Sequences of more than 128 tokens
      are evaluated in proportionally smaller batches. Tasks only use this batch
      size if it does not affect their results.
    objectives: Mapping from names to the run's training objectives, which
      contain the labels of the heads.
    inputs: Mapping from each objective's name to the settings with which the
      run converted labeled examples to model inputs, such as `length` and
      `separator`.
    sentence: Definition of how sentence vectors are computed from hidden
      states.
  """

  model: Any
  params: Any
  vocabulary: pydantic.SkipValidation[base_vocabulary.Vocabulary]
  partitioner: partitioning.Partitioner | None = None
  seed: validation.Seed = 0
  batch_size: validation.PositiveInt = 64
  objectives: Mapping[str, objective_base.Objective] = dataclasses.field(
    default_factory=dict
  )
  inputs: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  sentence: sentence_embedding.SentenceEmbedding = dataclasses.field(
    default_factory=sentence_embedding.SentenceEmbedding
  )

  @property
  def sharing(self) -> parameter_sharing.SharingPlan | None:
    """Language-specific parameters, or None if all parameters are shared.

    Language-specific parameters require monolingual batches.
    """
    return parameter_sharing.get_sharing_plan(self.model)

  @property
  def needs_languages(self) -> bool:
    """True if the language of a text is required to encode the text.

    The language is required if the model has language-specific parameters or
    the vocabulary has language-specific tokens.
    """
    return self.sharing is not None or self.vocabulary.needs_language


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
  """A failure of a complete task, or of a single language or file in a task.

  Attributes:
    task: Name of the evaluation task.
    part: Language, language pair or file that failed. The string is empty if
      the complete task failed.
    message: Message of the exception that was raised.
    status: Exit status of the process for this failure; see
      `errors.ExitStatus`.
  """

  task: str
  part: str
  message: str
  status: int = errors.ExitStatus.MISTAKE

  def __str__(self) -> str:
    return f'{": ".join(filter(None, (self.task, self.part)))}: {self.message}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalResult:
  """The result of evaluating a task on one checkpoint.

  Attributes:
    metrics: Metric values. The keys have the format `metric/part`, such as
      `accuracy/de`.
    tables: Tables by name. They contain results that are too detailed for
      `metrics`. Each row is a flat dictionary.
    notes: Remarks on the result, such as the number of truncated sentences.
    failures: Languages, language pairs or files that are missing from
      `metrics`, with the reason for each.
    files: Contents of text files, such as predictions, by file name. They are
      written to `<step>/<name>`, next to the JSON file, and are not read back.
    score_metrics: Metrics whose mean is reported as the task's score.
    inputs: Settings with which labeled examples were converted to model inputs,
      such as `length` and `separator`. The run's settings are used unless the
      task overrides them.
    is_development: Whether the task was evaluated during training. Such results
      may select checkpoints and settings, so they are not test results.
    layers: Indices of the layers from whose hidden states the scores are
      computed. 0 is the embedding output. The tuple is empty if the scores are
      computed from the model's outputs.
    num_layers: Number of the model's layers. None if `layers` is empty.
    declarations: Declarations of the task's metrics. Reports use them to
      interpret a stored result if the module of the task is not imported.
    test_data: Directory or SeqIO mixture with the text that was evaluated. It
      is empty if the task does not read a directory or mixture.
    max_examples: Maximum number of examples that were read for each language or
      language pair. None if all examples were read.
  """

  metrics: dict[str, float]
  tables: dict[str, list[Row]] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()
  failures: tuple[Failure, ...] = ()
  files: dict[str, str] = dataclasses.field(default_factory=dict)
  score_metrics: tuple[str, ...] = ()
  inputs: dict[str, Any] = dataclasses.field(default_factory=dict)
  is_development: bool = False
  layers: tuple[int, ...] = ()
  num_layers: int | None = None
  declarations: tuple[Metric, ...] = ()
  test_data: str = ''
  max_examples: int | None = None

  def _repr_html_(self) -> str:
    rows = {**self.metrics, 'failures': self.failures or 'none'}
    return repr_html.html_table('Metrics', rows)

  def to_json(self) -> dict[str, Any]:
    """Converts the result to JSON values, without the field `files`.

    NaN and infinity become null.
    """
    value = dataclasses.asdict(self)
    del value['files']
    value['declarations'] = [metric.to_json() for metric in self.declarations]
    return nonfinite_checks.or_null(value)

  @classmethod
  def from_json(cls, value: dict[str, Any]) -> 'EvalResult':
    """Restores a result from the output of `to_json`. Null metrics become NaN.

    Raises:
      ValueError: If the metrics, tables, notes, layers or limit of examples
        have the wrong type.
    """
    numbers = value['metrics']
    if not isinstance(numbers, dict) or not all(
      number is None or type(number) in (int, float)
      for number in numbers.values()
    ):
      raise ValueError('`metrics` must map metric names to numbers or null.')
    tables, notes = value['tables'], value['notes']
    if not isinstance(tables, dict) or not all(
      isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
      for rows in tables.values()
    ):
      raise ValueError('`tables` must map table names to lists of rows.')
    if not all(isinstance(note, str) for note in notes):
      raise ValueError('`notes` must be a list of strings.')
    if not isinstance(value.get('max_examples'), int | None):
      raise ValueError('`max_examples` must be an integer or null.')
    layers, num_layers = value.get('layers', []), value.get('num_layers')
    if (
      not isinstance(layers, list | tuple)
      or not all(type(layer) is int for layer in layers)
      or (type(num_layers) is not int if layers else num_layers is not None)
    ):
      raise ValueError(
        '`layers` must be a list of integers. `num_layers` must be an integer '
        'if `layers` is not empty, and null otherwise.'
      )
    return cls(
      metrics={
        name: math.nan if number is None else number
        for name, number in numbers.items()
      },
      tables=tables,
      notes=tuple(notes),
      failures=tuple(Failure(**f) for f in value['failures']),
      score_metrics=tuple(value.get('score_metrics', ())),
      inputs=dict(value.get('inputs', {})),
      is_development=bool(value.get('is_development', False)),
      layers=tuple(layers),
      num_layers=num_layers,
      declarations=tuple(map(Metric.from_json, value.get('declarations', ()))),
      test_data=str(value.get('test_data', '')),
      max_examples=value.get('max_examples'),
    )


class LabelCount(NamedTuple):
  """Counts of labeled examples and of all examples in a language or file.

  Attributes:
    num_labeled: Number of examples with gold labels.
    num_examples: Total number of examples.
  """

  num_labeled: int
  num_examples: int


class Failures:
  """Recorder for failures of individual languages, language pairs or files."""

  def __init__(self, task: str):
    self._task = task
    self._failures: list[Failure] = []

  @contextlib.contextmanager
  def guard(self, part: str = ''):
    """Records an exception in the `with` block as a failure.

    User errors and exceptions of user-defined classes are recorded with their
    message. Other exceptions are also logged with their traceback, since they
    may be bugs.

    Args:
      part: Language, language pair or file. The empty string denotes the
        complete task.
    """
    try:
      yield
    except errors.XlflaxError as error:
      self._add(part, str(error), error.status)
    except OSError as error:
      error_with_status = errors.convert_os_error(error)
      self._add(part, str(error_with_status), error_with_status.status)
    except Exception as error:
      converted = user_modules.convert_class_error(error)
      if converted is None:
        self._add_bug(part, error)
      else:
        self._add(part, str(converted), converted.status)

  def _add_bug(self, part: str, error: Exception):
    _LOG.exception(
      'Evaluation task %s failed (part: %s).', self._task, part or 'all'
    )
    message = f'{type(error).__name__}: {error}'
    self._add(part, message, errors.ExitStatus.BUG)

  def _add(self, part: str, message: str, status: int):
    self._failures.append(
      Failure(task=self._task, part=part, message=message, status=int(status))
    )

  def collected(self) -> tuple[Failure, ...]:
    """Returns the failures that have been recorded so far."""
    return tuple(self._failures)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalTask(validation.ValidatedFields):
  """Base class for evaluation tasks, which are frozen dataclasses of settings.

  A public subclass that defines a default for `name` is a task family and must
  declare `METRICS`. The default is the name of the family on the command line
  (`xlflax evaluate --tasks`).

  Attributes:
    name: Name of the folder under `eval/` in which the results are stored.
    METRICS: Metrics that `evaluate` reports. The primary metric comes first.
    SOURCES: Additional command-line names of the task. Each name is mapped to
      the class of the text source that the task reads when it is requested
      under that name.
    USES_MLM_HEAD: Whether the task predicts tokens with the masked LM head of
      the model. `xlflax evaluate` then logs a warning if the head was not
      trained.
  """

  METRICS: ClassVar[tuple[Metric, ...]] = ()
  SOURCES: ClassVar[Mapping[str, Any]] = {}
  USES_MLM_HEAD: ClassVar[bool] = False

  name: str

  def __init_subclass__(cls, **options):
    super().__init_subclass__(**options)
    if isinstance(cls.__dict__.get('name'), str) and cls.__name__[0] != '_':
      _register(cls)

  @property
  def split(self) -> str:
    """Data split that the task reads, or 'all' if the source has no splits."""
    return getattr(getattr(self, 'source', None), 'split', 'all')

  @property
  def test_data(self) -> str:
    """Directory or SeqIO mixture that the task reads, or '' if it has none."""
    source = getattr(self, 'source', None)
    names = (getattr(source, name, '') for name in ('directory', 'mixture'))
    return next((str(name) for name in names if name), '')

  @property
  def primary_metric(self) -> str:
    """Name of the metric to show in summary tables, such as 'accuracy'."""
    if not self.METRICS:
      raise errors.ConfigError(
        'The evaluation task must declare at least one metric',
        where=type(self).__name__,
        fix="Define the field METRICS = (Metric('accuracy', Better.HIGHER), "
        '...), with the primary metric first.',
      )
    return self.METRICS[0].name

  def computed_metrics(self) -> tuple[Metric, ...]:
    """Metrics of `METRICS` that are computed with the task's settings."""
    return self.METRICS

  @property
  def further_metrics(self) -> tuple[str, ...]:
    """Metrics that are shown in summary tables next to the primary metric."""
    return ()

  @property
  def score_metrics(self) -> tuple[str, ...]:
    """Metrics whose mean is reported as the task's score."""
    return (self.primary_metric,)

  def check_inputs(self, objectives: Mapping[str, Any]) -> None:
    """Reads and checks the task's labeled examples before training.

    By default, nothing is checked.

    Args:
      objectives: Objectives of the run, by name. The task evaluates their
        heads.

    Raises:
      XlflaxError: If a file cannot be read, or if its examples or labels do not
        fit the task or the head.
    """

  def scored_layers(self, eval_model: EvalModel) -> tuple[int, ...]:
    """Returns the layers that are used to compute the scores.

    Layer 0 is the embedding output. By default, the result is empty, which
    means that the scores are computed from the model's outputs.

    Args:
      eval_model: Model to evaluate.

    Raises:
      ConfigError: If the model does not have a layer.
    """
    return ()

  def labeled_parts(self) -> tuple[str, ...]:
    """Returns the languages or files that are scored with gold labels.

    By default, the result is empty.
    """
    return ()

  def missing_parts(self) -> tuple[str, ...]:
    """Returns the languages of the data set that are missing from the source.

    By default, the result is empty.
    """
    return ()

  def count_gold_labels(self, part: str) -> LabelCount:
    """Counts the examples that have gold labels in one language or file.

    Args:
      part: Name of the language or file in the source.

    Raises:
      XlflaxError: If a file cannot be read.
    """
    raise NotImplementedError

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any] | None:
    """Returns the function that creates the task's text source from options.

    The function's parameters are the options of `xlflax evaluate` that the task
    reads, such as `corpus` and `languages`. Parameters with other names are
    rejected. Parameters without a default are required. By default, the function
    is `from_options` of the class of the field `source`.

    Args:
      name: Name under which the task was requested on the command line.

    Returns:
      The function, or None if the source is not created from options.
    """
    source = cls.SOURCES.get(name) or typing.get_type_hints(cls).get('source')
    return getattr(source, 'from_options', None)

  @classmethod
  def arguments(cls, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the task's constructor arguments for the given source options.

    Args:
      name: Name under which the task was requested on the command line.
      options: Arguments for the function that `source_factory` returns.

    Raises:
      ConfigError: If the options do not specify a text source.
    """
    create_source = cls.source_factory(name)
    return {} if create_source is None else {'source': create_source(**options)}

  def statistics(
    self, part: str, folder: pathlib.Path
  ) -> dict[str, example_statistics.Statistics]:
    """Returns the per-example statistics that determine the scores.

    The statistics are used to compare two models by resampling the examples
    (see `metrics.bootstrap`).

    Args:
      part: Language, language pair or file, as named in the metrics.
      folder: Folder with the task's result files, `eval/<name>/<step>/`.

    Returns:
      Per-example statistics by metric, in the order of the source. The mapping
      is empty if the files do not contain statistics, or if there are no gold
      labels.

    Raises:
      OSError: If a statistics file is missing.
    """
    file = folder / statistics_file(part)
    if not file.exists():
      return {}
    return {
      metric: example_statistics.Statistics.from_json(value)
      for metric, value in json.loads(file.read_text('utf-8')).items()
    }

  def evaluate(self, eval_model: EvalModel) -> EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    raise NotImplementedError


def describe_training_split(split: str) -> str:
  """Returns the display name of a split that is evaluated during training.

  The name is 'development set', unless the split is declared as a test or
  training split, such as 'test split'.

  Args:
    split: Name of the split that the evaluation task reads.
  """
  is_declared = split.startswith(('test', 'train'))
  return f'{split} split' if is_declared else 'development set'


def statistics_file(part: str) -> str:
  """Returns the file name of a language's per-example statistics."""
  return f'{part}{STATISTICS}'


def statistics_files(
  part: str,
  statistics: Mapping[str, example_statistics.Statistics],
  files: Mapping[str, str] | None = None,
) -> dict[str, str]:
  """Returns per-example statistics as an entry for `EvalResult.files`.

  `EvalTask.statistics` reads the file.

  Args:
    part: Language, language pair or file as named in the metrics, such as `de`
      in `f1/de`.
    statistics: Per-example statistics by metric.
    files: Existing files of the result, as contents by file name. If the
      statistics file is one of them, its statistics for other metrics are kept.
  """
  name = statistics_file(part)
  stored = json.loads((files or {}).get(name, '{}'))
  new = {metric: values.to_json() for metric, values in statistics.items()}
  return {name: json.dumps(stored | new) + '\n'}


def evaluate_task(task: EvalTask, eval_model: EvalModel) -> EvalResult:
  """Evaluates a task and records any failure of the complete task."""
  failures = Failures(task.name)
  with progress_reporting.progress_name(task.name), failures.guard():
    # An error in `score_metrics` is raised before the costly evaluation.
    score_metrics = task.score_metrics
    encoded_texts: list[int] = []
    token = _encoded_texts.set(encoded_texts)
    try:
      with user_modules.converting_class_errors(task, 'evaluate'):
        result = task.evaluate(eval_model)
    finally:
      _encoded_texts.reset(token)
    result = _check_result(task, result)
    if not user_modules.is_xlflax(type(task).evaluate.__module__):
      _warn_of_return_in_loop(task)
      _warn_of_overwritten_pairs(task, result.metrics)
      notes = _check_perfect_metrics(task, result.metrics, encoded_texts)
      result = dataclasses.replace(
        result,
        metrics=result.metrics | missing_means(task, result.metrics),
        notes=(*result.notes, *notes),
      )
    layers = task.scored_layers(eval_model)
    return dataclasses.replace(
      result,
      score_metrics=score_metrics,
      layers=layers,
      num_layers=eval_model.model.config.num_layers if layers else None,
      declarations=tuple(task.METRICS),
      test_data=task.test_data,
      max_examples=_example_limit(task),
    )
  return EvalResult(metrics={}, failures=failures.collected())


def missing_means(
  task: EvalTask, metrics: Mapping[str, float]
) -> dict[str, float]:
  """Computes the means that a task did not return, such as 'accuracy/mean'.

  The mean is that over the languages or files in `metrics`. It is geometric for
  perplexities, as in the tasks of xlflax. If a task returns only 'accuracy' and
  no value for a language or file, the mean is the value of 'accuracy'. A metric
  has no mean if its `better` is NEITHER or if one of its values is NaN or
  infinite.

  Args:
    task: Task that computed the metrics.
    metrics: Metric values by name, such as 'accuracy/de'.

  Returns:
    Means by name, such as 'accuracy/mean'. Means that are in `metrics` are
    omitted.
  """
  means = {}
  for metric in task.METRICS:
    name = f'{metric.name}/mean'
    values = [
      value
      for key, value in metrics.items()
      if key.startswith(f'{metric.name}/')
    ]
    if not values and metric.name in metrics:
      values = [metrics[metric.name]]
    if (
      name in metrics
      or metric.better is Better.NEITHER
      or not values
      or not np.all(np.isfinite(values))
    ):
      continue
    if metric.name.endswith('perplexity') and min(values) > 0:
      means[name] = statistics.geometric_mean(values)
    else:
      means[name] = statistics.fmean(values)
  return means


def _example_limit(task: EvalTask) -> int | None:
  """Returns the maximum number of examples that the task's source reads."""
  source = getattr(task, 'source', None)
  limits = (getattr(source, name, None) for name in _LIMITS)
  return next((limit for limit in limits if isinstance(limit, int)), None)


def _check_result(task: EvalTask, result: Any) -> EvalResult:
  """Checks the result that a task's class returns.

  Args:
    task: Task that was evaluated.
    result: Return value of `task.evaluate`.

  Returns:
    The result, in which all metrics are Python numbers.

  Raises:
    ConfigError: If the result is not an `EvalResult`, or if one of its fields
      has the wrong type.
  """
  name = type(task).__name__
  if not isinstance(result, EvalResult):
    raise errors.ConfigError(
      f'The method `{name}.evaluate` must return an EvalResult',
      got=f'an object of the type {type(result).__name__}',
      where=name,
      fix='Return eval_task.EvalResult(metrics={...}), where eval_task is '
      'xlflax.evaluation.eval_task (docs/extending.md).',
    )
  for field, types, expected in (
    ('metrics', dict, 'a dictionary from metric names to numbers'),
    ('tables', dict, 'a dictionary from table names to lists of rows'),
    ('notes', (list, tuple), 'a tuple of strings'),
    ('failures', (list, tuple), 'a tuple of failures (`Failures.collected`)'),
    ('files', dict, 'a dictionary from file names to texts'),
  ):
    value = getattr(result, field)
    if not isinstance(value, types):
      raise errors.ConfigError(
        f'The field `{field}` of the result of `{name}.evaluate` is invalid',
        got=user_modules.describe_value(value),
        expected=expected,
        where=name,
      )
  metrics = {
    key: _to_number(key, value, where=name)
    for key, value in result.metrics.items()
  }
  warn_of_unexpected_metrics(task, metrics)
  return dataclasses.replace(result, metrics=metrics)


def record_encoded_texts(*call: Any) -> None:
  """Records the texts that a task encodes, to detect repeated calls.

  Args:
    *call: Hashable values that determine the vectors, such as a tuple of texts.
  """
  encoded_texts = _encoded_texts.get()
  if encoded_texts is not None:
    encoded_texts.append(hash(call))


def _warn_of_return_in_loop(task: EvalTask) -> None:
  """Logs a warning if a task returns after the first language or pair."""
  line = user_modules.find_return_in_loop(type(task).evaluate)
  if line is not None:
    _LOG.warning(
      '%s: `%s.evaluate` returns in the first iteration of a loop, in %s, so '
      'the result contains only the first language or pair. Put the `return` '
      'after the loop.',
      task.name,
      type(task).__name__,
      line,
      extra=logs.ONCE,
    )


def _warn_of_overwritten_pairs(
  task: EvalTask, metrics: Mapping[str, float]
) -> None:
  """Logs a warning if values of pairs have the same name.

  This is the case if the name of a metric contains only one of the languages,
  such as `accuracy/en` for the pairs en-de and en-fr.

  Args:
    task: User-defined task that computed the metrics. Only tasks whose source
      provides language pairs are checked.
    metrics: Metric values of the task's result, by name.
  """
  source: Any = getattr(task, 'source', None)
  if not hasattr(source, 'pairs'):
    return
  pairs = list(source.pairs())
  parts = {name.partition('/')[2] for name in metrics} - {'', 'mean'}
  for side in (0, 1):
    languages = {pair[side] for pair in pairs}
    if parts == languages and len(languages) < len(pairs):
      examples = [pair for pair in pairs if pair[side] == min(parts)]
      _LOG.warning(
        '%s: the source has %d language pairs, but the result has only values '
        'for %s. If `%s.evaluate` does not average the values of pairs such as '
        '%s, the last one replaces the others. Use different names of the '
        'metrics, such as %s.',
        task.name,
        len(pairs),
        ', '.join(sorted(parts)),
        type(task).__name__,
        ' and '.join('-'.join(pair) for pair in examples[:2]),
        f'{task.METRICS[0].name}/{"-".join(pairs[0])}',
        extra=logs.ONCE,
      )
      return


def _check_perfect_metrics(
  task: EvalTask, metrics: Mapping[str, float], encoded_texts: Sequence[int]
) -> tuple[str, ...]:
  """Returns notes on metrics that have the best possible value in each part.

  A warning is logged if the task also encoded the same texts twice instead of
  two sides.

  Args:
    task: User-defined task that computed the metrics.
    metrics: Metric values of the task's result, by name.
    encoded_texts: Hashes of the texts that the task has encoded, in order.
  """
  perfect = []
  for metric in task.METRICS:
    values = [
      value
      for key, value in metrics.items()
      if key.split('/')[0] == metric.name
    ]
    if values and all(map(metric.is_best_possible, values)):
      perfect.append(metric.name)
  if not perfect:
    return ()
  names = ', '.join(perfect)
  sides = list(zip(encoded_texts[::2], encoded_texts[1::2], strict=False))
  if sides and all(first == second for first, second in sides):
    _LOG.warning(
      '%s: `%s.evaluate` encodes the same texts twice in succession, and the '
      'metrics %s have the best possible value. The vectors are probably '
      'compared with themselves. Pass the texts of the other side to the second '
      'call of `self.vectors`.',
      task.name,
      type(task).__name__,
      names,
      extra=logs.ONCE,
    )
  return (
    f'the metrics {names} have the best possible value everywhere; check that '
    'the task does not compare the model with itself or read the gold labels',
  )


def _to_number(key: Any, value: Any, *, where: str) -> int | float:
  """Returns the value of a metric as an integer or a float."""
  if not isinstance(key, str):
    raise errors.ConfigError(
      'The name of a metric must be a string such as "accuracy/en"',
      got=repr(key),
      where=where,
    )
  if type(value) in (int, float):
    return value
  # Arrays of shape [], such as the result of a mean, are numbers.
  is_number = isinstance(value, int | float) or hasattr(value, 'dtype')
  if is_number and np.ndim(value) == 0:
    with contextlib.suppress(TypeError, ValueError):
      return float(value)
  raise errors.ConfigError(
    f'The value of the metric {key!r} must be a number',
    got=f'an array of shape {list(value.shape)}'
    if hasattr(value, 'shape')
    else user_modules.describe_value(value),
    where=where,
    fix='Return one number for each language or part, such as '
    'float(numpy.mean(values)).',
  )


def warn_of_unexpected_metrics(
  task: EvalTask, metrics: Mapping[str, float]
) -> None:
  """Logs warnings about undeclared metrics and impossible values.

  NaN and infinity only cause a warning if the task's method `evaluate` is
  user-defined. The tasks of xlflax return NaN for scores that are not defined,
  such as those of a language without gold labels.

  Args:
    task: Task that computed the metrics.
    metrics: Metric values of the task's result, by name, such as 'accuracy/de'.
  """
  declared = {metric.name: metric for metric in task.METRICS}
  undeclared = [key for key in metrics if key.split('/')[0] not in declared]
  if undeclared:
    _LOG.warning(
      '%s: %s.METRICS does not declare the metrics %s. The name before the `/` '
      'must be the name of a declared metric: %s.',
      task.name,
      type(task).__name__,
      ', '.join(undeclared[:_MAX_LISTED]),
      ', '.join(declared) or 'none',
      extra=logs.ONCE,
    )
  for key, value in metrics.items():
    metric = declared.get(key.split('/')[0])
    if metric is not None and not metric.is_in_range(value):
      _LOG.warning(
        '%s: the value %g of the metric %s is outside the declared range (%s). '
        'Return values in this range, or change the unit of the metric in '
        '%s.METRICS.',
        task.name,
        value,
        key,
        metric.value_range,
        type(task).__name__,
        extra=logs.ONCE,
      )
      break
  non_finite = [key for key, value in metrics.items() if not np.isfinite(value)]
  if non_finite and not user_modules.is_xlflax(type(task).evaluate.__module__):
    _LOG.warning(
      '%s: `%s.evaluate` returned values that are NaN or infinite for the '
      'metrics %s. Tables show them as missing. Check for means over no '
      'examples and for divisions by zero, or omit metrics that are not '
      'defined.',
      task.name,
      type(task).__name__,
      ', '.join(non_finite[:_MAX_LISTED]),
      extra=logs.ONCE,
    )


def known_tasks() -> Mapping[str, type[EvalTask]]:
  """Returns all registered task classes, by command-line name.

  Tasks are registered when their module is imported.
  """
  return _tasks


def known_metrics() -> Mapping[str, Metric]:
  """Returns all declared metrics by metric name.

  These are the metrics of registered tasks, whose modules were imported, and
  those of stored results that were read. A registered task takes precedence.
  """
  return collections.ChainMap(_metrics, _stored_metrics)


def recall_metrics(declarations: Iterable[Metric]) -> None:
  """Adds the metric declarations of a stored result to `known_metrics`.

  Args:
    declarations: Metric declarations that are stored with a result, as in
      `EvalResult.declarations`.
  """
  _stored_metrics.update({metric.name: metric for metric in declarations})


def _register(cls: type[EvalTask]) -> None:
  """Registers a task family. The same class may be registered again."""
  names = (cls.__dict__['name'], *cls.__dict__.get('SOURCES', ()))
  for name in names:
    registered = _tasks.get(name, cls)
    if _origin(registered) != _origin(cls):
      raise errors.ConfigError(
        f'The evaluation tasks {_origin(registered)} and {_origin(cls)} are '
        f'both registered under the name {name!r}, but names must be unique'
      )
  for metric in cls.METRICS:
    if _metrics.get(metric.name, metric) != metric:
      raise errors.ConfigError(
        f'`{cls.__qualname__}.METRICS` declares the metric {metric.name!r} '
        'differently from another evaluation task',
        got=str(metric),
        expected=str(_metrics[metric.name]),
      )
  _tasks.update(dict.fromkeys(names, cls))
  for metric in cls.METRICS:
    # Another task may declare the same metric without a description.
    if metric.name not in _metrics or metric.description:
      _metrics[metric.name] = metric


def _origin(cls: type) -> str:
  return f'{cls.__module__}.{cls.__qualname__}'


def task_settings(value: Any) -> Any:
  """Converts an evaluation task's settings to JSON, to identify its results.

  An object with a method `fingerprint` represents data and is replaced by its
  fingerprint. A field that is `class_registry.path_field` is replaced by
  the content of its files. The results are therefore identified by the text,
  not by the paths.
  """
  if hasattr(value, 'fingerprint'):
    return {'class': type(value).__name__, 'fingerprint': value.fingerprint()}
  if dataclasses.is_dataclass(value):
    fields = {
      field.name: class_registry.describe_content(
        field, getattr(value, field.name)
      )
      or task_settings(getattr(value, field.name))
      for field in dataclasses.fields(value)
    }
    return {'class': type(value).__name__, **fields}
  if isinstance(value, enum.Enum):
    return value.value
  if isinstance(value, (list, tuple)):
    return [task_settings(item) for item in value]
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  if _is_unidentified_source(value):
    return {'class': type(value).__name__}
  return value


def find_unidentified_data(task: EvalTask) -> str | None:
  """Finds data of a user-defined task whose changes cannot be detected.

  These are sources without a method `fingerprint`, and paths in fields that are
  not a `class_registry.path_field`. The results of such a task must not be
  reused, because the text may have changed since they were computed.

  Returns:
    The first such field and its class, such as 'source (WordLists)', or None if
    `task_settings` identifies all data.
  """
  return next(_unidentified_fields(task), None)


def _unidentified_fields(value: Any) -> Iterator[str]:
  for field in dataclasses.fields(value):
    if field.name in ('name', 'split'):
      continue
    is_user_field = user_modules.is_user_class(type(value))
    item = getattr(value, field.name)
    if class_registry.describe_content(field, item):
      continue
    for part in item if isinstance(item, (list, tuple)) else (item,):
      if hasattr(part, 'fingerprint'):
        continue
      if _is_unidentified_source(part):
        yield f'{field.name} ({type(part).__name__})'
      elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        yield from (
          f'{field.name}.{path}' for path in _unidentified_fields(part)
        )
      elif is_user_field and isinstance(part, str | os.PathLike) and part:
        if _is_existing_path(part):
          yield f'{field.name} ({os.fspath(part)})'


def _is_unidentified_source(value: Any) -> bool:
  """Returns whether a value reads data but has no method `fingerprint`."""
  if hasattr(value, 'fingerprint') or isinstance(value, type):
    return False
  return hasattr(value, 'load') or hasattr(value, 'from_options')


def _is_existing_path(text: str | os.PathLike[str]) -> bool:
  try:
    return paths.to_path(text).exists()
  except (OSError, ValueError, errors.XlflaxError):
    return False


def settings_hash(value: Any) -> str:
  """Returns the first 16 hexadecimal digits of the SHA-256 of JSON values."""
  text = json.dumps(value, sort_keys=True, ensure_ascii=True)
  return hashlib.sha256(text.encode('ascii')).hexdigest()[:16]
