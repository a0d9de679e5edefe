"""Training of a hyperparameter grid's trials, and records of their results."""

import dataclasses
import enum
import functools
import json
import logging
import pathlib
import time
from collections.abc import Callable
from typing import Any

from xlflax.config import gin_config
from xlflax.data.cache import cache_format
from xlflax.data.corpus import corpus_directory
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import (
  checkpoint_selection,
  during_training,
  eval_task,
  selection_metrics,
  task_families,
)
from xlflax.evaluation.metrics.metric import Better
from xlflax.finetuning import hyperparameter_grid
from xlflax.storage import checksums, content_hash, manifests, paths
from xlflax.trainer import Trainer
from xlflax.training.checkpointing import (
  checkpoint_reader,
  code_fingerprint,
  config_serialization,
  data_fingerprint,
  run_directory,
  saved_run,
)
from xlflax.training.devices import mmap_limit
from xlflax.training.distributed import distributed_job
from xlflax.training.initialization import init_from
from xlflax.utils import errors, user_modules

_LOG = logging.getLogger(__name__)


class Keep(enum.Enum):
  """Checkpoints to keep after a trial has finished."""

  # The checkpoint that is evaluated.
  BEST = 'best'
  # The checkpoints that the configured CheckpointOptions keep.
  ALL = 'all'


class Status(enum.Enum):
  """Status of a trial of a hyperparameter grid."""

  # Training finished.
  FINISHED = 'finished'
  # The loss was not finite. The trial is not repeated.
  DIVERGED = 'diverged'
  # Another error occurred. The next call repeats the trial.
  FAILED = 'failed'
  # A signal or a user-defined hook stopped the trial. The next call resumes it.
  STOPPED = 'stopped'
  # A signal stopped the search before the trial. The next call runs it.
  NOT_STARTED = 'not started'


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
  """Training result of a trial.

  Attributes:
    trial: Gin macro values of the trial.
    directory: Model directory of the trial.
    status: Outcome of the trial: finished, diverged, failed, stopped or not
      started.
    config: Fingerprint of the trial, which consists of a hash of the trainer's
      configuration, the numbers of steps and epochs, and a hash of the initial
      checkpoints, corpus and token cache.
    selection_fingerprint: Fingerprint of the model selection, which consists of
      the selection metric and a hash of the evaluation tasks on the dev set.
    message: Error message, or an empty string.
    exit_status: Exit status that corresponds to the error; see
      `errors.ExitStatus`.
    step: Step of the best checkpoint on the dev set, or of the last checkpoint.
    value: Value of the selection metric at `step`.
    metrics: All metrics that training evaluated at `step`.
    seconds: Total training time of the trial, in seconds.
  """

  trial: hyperparameter_grid.Trial
  directory: pathlib.Path
  status: Status
  config: str
  selection_fingerprint: str = ''
  message: str = ''
  exit_status: int = errors.ExitStatus.DONE
  step: int | None = None
  value: float | None = None
  metrics: dict[str, float] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0

  @property
  def is_final(self) -> bool:
    """True if the trial has finished or diverged."""
    return self.status in (Status.FINISHED, Status.DIVERGED)

  def to_json(self) -> dict[str, Any]:
    """Returns the result as JSON values."""
    return dataclasses.asdict(self) | {
      'trial': self.trial.name,
      'macros': dict(self.trial.values),
      'directory': self.directory.name,
      'status': self.status.value,
    }


@dataclasses.dataclass(frozen=True)
class MadeTrial:
  """Trial of a hyperparameter grid and the trainer that runs it.

  Attributes:
    trial: Gin macro values of the trial.
    trainer: Trainer that runs the trial.
    gin_config: Function that returns the trainer's configuration as the text of
      a gin file.
  """

  trial: hyperparameter_grid.Trial
  trainer: Trainer
  gin_config: Callable[[], str]

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hashes of the configuration and of the run's inputs.

    For example, the fingerprint of a trial of 100 steps is '3f2a… 100 None
    77ab…'.
    """
    length = f'{self.trainer.num_train_steps} {self.trainer.epochs}'
    identity = config_serialization.config_fingerprint(self.trainer)
    return f'{identity} {length} {_hash_inputs(self.trainer)}'


def _hash_inputs(trainer: Trainer) -> str:
  """Returns a hash of the current initial checkpoints, corpus and cache.

  The examples of user-defined sources are included. The configuration contains
  only the spelling of the paths in their fields.
  """
  corpus = trainer.corpus and _list_corpus_files(trainer.corpus)
  cache = trainer.cache_dir and content_hash.hash_paths(
    str(paths.to_path(trainer.cache_dir) / cache_format.CACHE_FILE)
  )
  inputs: list[Any] = [
    init_from.checkpoints_of(trainer.init_from),
    corpus,
    cache,
  ]
  examples = [
    _hash_examples(dataset.source)
    for dataset in trainer.datasets
    if isinstance(dataset, supervised_dataset.LabeledDatasetConfig)
    and _is_user_source(dataset.source)
  ]
  if examples:
    inputs.append(examples)
  return checksums.digest_json(inputs).rpartition(':')[2][:16]


def _is_user_source(source: Any) -> bool:
  """Returns whether a source, or a source that it contains, is user-defined."""
  if user_modules.is_user_class(type(source)):
    return True
  nested = (*getattr(source, 'sources', ()), getattr(source, 'source', None))
  return any(_is_user_source(part) for part in nested if part is not None)


def _hash_examples(source: example_source.ExampleSource) -> str | None:
  """Returns a hash of a source's examples, or None on errors."""
  try:
    return source.fingerprint()
  except Exception:  # Training raises this error again.
    return None


def _list_corpus_files(corpus: str) -> list[list[Any]] | None:
  """Returns names and sizes of a corpus's files, or None on errors."""
  try:
    files = corpus_directory.Corpus(corpus).fingerprint()
  except errors.XlflaxError:
    return None  # Training raises this error again.
  return [[file.path, file.size] for file in files]


def _build_evaluation(
  configuration: gin_config.Configuration,
) -> during_training.Evaluation:
  """Builds the evaluation on the dev set, which selects a checkpoint.

  Raises:
    ConfigError: If there is no dev set, or if the configuration is invalid.
  """
  try:
    return configuration.build(during_training.Evaluation)
  except errors.ConfigError as error:
    names = [binding.name for binding in configuration.bindings]
    if 'DEV_FILES' not in names or configuration.macro('DEV_FILES'):
      raise
    raise errors.ConfigError(
      'The flag --metric_for_best_model requires a development file for each '
      'language, but the macro DEV_FILES is empty',
      fix="Pass --gin.DEV_FILES=\"{'en': 'FILE'}\".",
    ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialRunner:
  """Runner that trains each trial in its own subdirectory.

  Attributes:
    output: Directory of the grid. The subdirectory `trials` contains the
      trials.
    configuration: Training configuration. Each trial adds its macros and
      MODEL_DIR.
    select: Dev-set metric that determines the best checkpoint, such as
      'classification/accuracy/en'. If None, the last checkpoint is used.
    keep: Checkpoints to keep after a trial has finished.
    on_config_mismatch: Action to take if a trial's directory contains a run
      with a different configuration.
  """

  output: pathlib.Path
  configuration: gin_config.Configuration
  select: str | None = None
  keep: Keep = Keep.BEST
  on_config_mismatch: run_directory.OnConfigMismatch = (
    run_directory.OnConfigMismatch.ERROR
  )

  def directory(self, trial: hyperparameter_grid.Trial) -> pathlib.Path:
    """Returns a trial's model directory."""
    return self.output / run_directory.GRID_TRIALS / trial.name

  def make(self, trial: hyperparameter_grid.Trial) -> MadeTrial:
    """Creates a trial's trainer without writing files.

    Args:
      trial: Gin macro values of the trial.

    Raises:
      ConfigError: If the configuration is invalid, or does not evaluate the
        metric `select`.
    """
    values = trial.macros | {'MODEL_DIR': str(self.directory(trial))}
    if trial.untrained:
      parameter = f'{Trainer.__module__}.{Trainer.__qualname__}.init_from'
      values[parameter] = None
    configuration = self.configuration.with_macros(values)
    try:
      trainer = configuration.build(
        Trainer, on_config_mismatch=self.on_config_mismatch
      )
    except errors.ConfigError as error:
      hint = hyperparameter_grid.suggest_without_brackets(trial, error.got)
      if error.fix is not None or hint is None:
        raise
      raise errors.ConfigError(
        error.what,
        got=error.got,
        expected=error.expected,
        where=error.where,
        fix=hint,
      ) from error
    if self.select is not None:
      if trainer.evaluation is None:
        trainer = dataclasses.replace(
          trainer, evaluation=_build_evaluation(configuration)
        )
      if isinstance(trainer.evaluation, during_training.Evaluation):
        selection_metrics.check_exists(
          self.select,
          trainer.evaluation.tasks,
          where='--metric_for_best_model',
          requires_part=True,
        )
      trainer = self._keep_best_checkpoint(trainer)
    return MadeTrial(trial, trainer, configuration.operative)

  def _keep_best_checkpoint(self, trainer: Trainer) -> Trainer:
    """Returns a trainer that keeps the checkpoint that `select` determines."""
    assert self.select is not None
    lower_is_better = task_families.better_of(self.select) is Better.LOWER
    options = dataclasses.replace(
      trainer.checkpoints,
      metric_for_best_model=self.select,
      greater_is_better=not lower_is_better,
    )
    if self.keep is Keep.BEST:
      options = dataclasses.replace(options, max_to_keep=1)
    return dataclasses.replace(trainer, checkpoints=options)

  def run(self, trial: MadeTrial) -> TrialResult:
    """Trains a trial to its end, unless it has already finished.

    Args:
      trial: Trial whose trainer has been created.

    Raises:
      RunDirectoryError: If the trial's directory contains a run with
        another configuration.
    """
    record = self.record(trial.trial)
    if record is None:
      # Record the metric and the dev tasks first, so that later calls can check
      # them even if training is killed.
      self._write(
        TrialResult(
          **self._initial_fields(trial),
          status=Status.STOPPED,
          message='the process ended during the trial',
          exit_status=int(errors.ExitStatus.STOPPED),
        )
      )
    else:
      self._check_same_run(record, trial)
      if record.is_final:
        if record.config == trial.fingerprint:
          self._warn_if_code_changed(trial)
          return record
        self._warn_if_not_trained(record, trial)
    result = self._train(trial, record.seconds if record else 0.0)
    self._write(result)
    self._prune(result)
    return result

  def read_result(self, trial: MadeTrial) -> TrialResult:
    """Returns the recorded result of a trial, without running the trial.

    The status of a trial without a record of the same configuration is
    NOT_STARTED.

    Args:
      trial: Trial whose trainer has been created.
    """
    record = self.record(trial.trial)
    initial_fields = self._initial_fields(trial)
    if record is not None and all(
      getattr(record, name) == initial_fields[name]
      for name in ('config', 'selection_fingerprint')
    ):
      return record
    return TrialResult(
      **initial_fields,
      status=Status.NOT_STARTED,
      message='a signal stopped an earlier trial',
      exit_status=int(errors.ExitStatus.STOPPED),
    )

  def is_finished(self, trial: MadeTrial) -> bool:
    """Returns whether a trial has finished or diverged in an earlier call.

    Args:
      trial: Trial whose trainer has been created.
    """
    record = self.record(trial.trial)
    return (
      record is not None
      and record.is_final
      and record.config == trial.fingerprint
    )

  def _check_same_run(self, record: TrialResult, trial: MadeTrial) -> None:
    """Raises RunDirectoryError unless the recorded trial may be resumed."""
    if record.selection_fingerprint != self._selection_fingerprint(trial):
      raise errors.RunDirectoryError(
        'The directory given with --output contains a trial that was evaluated '
        'with a different metric or development set',
        got=str(record.directory),
        fix='Pass a different --output. Scores on different development sets '
        'cannot be compared.',
      )
    if self.on_config_mismatch is not run_directory.OnConfigMismatch.ERROR:
      return
    recorded_hashes = record.config.split()
    current_hashes = trial.fingerprint.split()
    if recorded_hashes[0] != current_hashes[0]:
      message = (
        'The directory given with --output contains a trial with a different '
        'configuration or with different training files'
      )
    elif record.is_final and recorded_hashes[-1] != current_hashes[-1]:
      message = (
        'The directory given with --output contains a trial that was started '
        'from a different checkpoint, corpus or cache'
      )
    else:
      return
    raise errors.RunDirectoryError(
      message,
      got=str(record.directory),
      fix='Pass a different --output. To resume the trial with the new '
      'settings, pass --on_config_mismatch=continue.'
      if trial.trainer.can_resume()
      else 'Pass a different --output. The trial cannot be resumed with the '
      'new settings, because its checkpoint does not fit the new model.',
    )

  def _warn_if_not_trained(self, record: TrialResult, trial: MadeTrial) -> None:
    """Warns that a finished trial does not take the new settings into account.

    A trial that has become longer is trained to its new end without a warning.
    """
    _, *recorded_length, _ = record.config.split()
    _, *current_length, _ = trial.fingerprint.split()
    if recorded_length == current_length:
      logging.warning(
        'The trial %s had finished before its configuration or its training '
        'data changed. It is not trained again. To train with the new settings '
        'and data, pass a different --output.',
        trial.trial.name,
      )

  def _warn_if_code_changed(self, trial: MadeTrial) -> None:
    """Warns that a finished trial was trained with other source code."""
    files = user_modules.describe_changed_files(
      data_fingerprint.recorded_code(self.directory(trial.trial)),
      code_fingerprint.describe_code(trial.trainer),
    )
    if files:
      logging.warning(
        'The trial %s had finished before the source code of %s changed. It is '
        'not trained again. To train with the new code, pass a different '
        '--output.',
        trial.trial.name,
        files,
      )

  def _initial_fields(self, trial: MadeTrial) -> dict[str, Any]:
    """Returns the fields of a result that do not depend on training."""
    return {
      'trial': trial.trial,
      'directory': self.directory(trial.trial),
      'config': trial.fingerprint,
      'selection_fingerprint': self._selection_fingerprint(trial),
    }

  def _selection_fingerprint(self, trial: MadeTrial) -> str:
    """Returns the selection metric and a hash of the tasks on the dev set."""
    evaluation: Any = trial.trainer.evaluation
    evaluation_settings = evaluation and [
      evaluation.tasks,
      evaluation.seed,
      evaluation.use_ema,
    ]
    settings = eval_task.task_settings(evaluation_settings)
    return f'{self.select} {eval_task.settings_hash(settings)}'

  def record(self, trial: hyperparameter_grid.Trial) -> TrialResult | None:
    """Returns a trial's recorded result, or None if it has not been run.

    Raises:
      RunDirectoryError: If the trial's record is damaged.
    """
    path = self._record_file(trial)
    if not path.exists():
      return None

    def to_result(fields: dict[str, Any]) -> TrialResult:
      del fields['macros']
      fields['trial'] = trial
      fields['directory'] = self.directory(trial)
      fields['status'] = Status(fields['status'])
      return TrialResult(**fields)

    return checksums.read_json(
      path,
      error=errors.RunDirectoryError,
      message='The record of a trial is damaged',
      has_digest=True,
      fix='Delete the file. The trial is then resumed.',
      convert=to_result,
    )

  def _train(self, trial: MadeTrial, seconds: float) -> TrialResult:
    """Trains a trial and returns its result, including raised errors.

    Args:
      trial: Trial whose trainer has been created.
      seconds: Seconds for which the trial was trained before it is resumed.
    """
    start = time.monotonic()
    result_fields = self._initial_fields(trial)
    try:
      outcome = trial.trainer.train(gin_config=trial.gin_config)
      hook = outcome.get('stopped_by')
      result_fields |= {
        'status': Status.STOPPED,
        'message': f'stopped by the hook {hook}, which can be removed from '
        'Trainer.hooks'
        if hook
        else 'stopped by a signal',
        'exit_status': int(errors.ExitStatus.STOPPED),
      }
      if outcome['finished']:
        result_fields |= self._best_checkpoint(trial.trial)
        result_fields |= {
          'status': Status.FINISHED,
          'message': '',
          'exit_status': 0,
        }
    except errors.XlflaxError as error:
      result_fields |= _error_fields(error)
    except OSError as error:
      result_fields |= _error_fields(errors.convert_os_error(error))
    except Exception as error:
      _LOG.exception('Trial %s failed.', trial.trial.name)
      result_fields |= {
        'status': Status.FAILED,
        'message': f'{type(error).__name__}: {error}',
        'exit_status': int(errors.ExitStatus.BUG),
      }
    # Free the parameters and compiled programs of the trial.
    mmap_limit.free_programs_if_scarce()
    return TrialResult(
      **result_fields, seconds=round(seconds + time.monotonic() - start, 1)
    )

  def _best_checkpoint(self, trial) -> dict[str, Any]:
    """Returns step, metrics and value of the best or last checkpoint."""
    run = saved_run.load_run(self.directory(trial))
    if self.select is None:
      step = checkpoint_selection.select_checkpoints(run, 'last')[0]
    else:
      step = checkpoint_selection.select_checkpoints(
        run, 'best', metric_for_best_model=self.select
      )[0]
    metrics = checkpoint_selection.training_evaluations(run).get(step, {})
    return {
      'step': step,
      'metrics': metrics,
      'value': metrics[self.select] if self.select else None,
    }

  def _record_file(self, trial) -> pathlib.Path:
    """Returns the path to a trial's record."""
    return self.output / run_directory.GRID_TRIALS / f'{trial.name}.json'

  def _write(self, result: TrialResult) -> None:
    """Writes a trial's record."""
    if distributed_job.is_lead():
      record = checksums.add_digest(result.to_json())
      text = json.dumps(record, indent=2, ensure_ascii=False) + '\n'
      name = f'{run_directory.GRID_TRIALS}/{result.trial.name}.json'
      manifests.write_files(self.output, manifests.Kind.GRID, {name: text})

  def _prune(self, result: TrialResult) -> None:
    """Deletes a finished trial's checkpoints, except the one to evaluate."""
    if (
      self.keep is Keep.ALL
      or result.status is not Status.FINISHED
      or not distributed_job.is_lead()
    ):
      return
    for step in checkpoint_reader.finished_steps(result.directory):
      if step != result.step:
        paths.remove_directory(
          checkpoint_reader.checkpoint_path(result.directory, step)
        )


def _error_fields(error: errors.XlflaxError) -> dict[str, Any]:
  """Returns the fields of a trial's result that describe an error.

  A training error whose status is MISTAKE means that the trial diverged. Trials
  that ended because of a hang, a lost process or a full disk are repeated.
  """
  diverged = (
    isinstance(error, errors.TrainingError)
    and error.status is errors.ExitStatus.MISTAKE
  )
  return {
    'status': Status.DIVERGED if diverged else Status.FAILED,
    'message': str(error),
    'exit_status': int(error.status),
  }
