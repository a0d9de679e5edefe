"""One trial of a grid: an ordinary run, its record, its best checkpoint."""

import dataclasses
import enum
import json
import logging
import pathlib
import time
from collections.abc import Callable
from typing import Any

from xlflax import trainer as trainer_lib
from xlflax.config import gin_config
from xlflax.data.cache import cache_format
from xlflax.data.corpus import corpus_directory
from xlflax.evaluation import (
  checkpoint_selection,
  during_training,
  task_families,
)
from xlflax.evaluation import eval_task as evaluation_base
from xlflax.evaluation.metrics.metric import Better
from xlflax.finetuning import hyperparameter_grid
from xlflax.storage import checksums, content_hash, manifests, paths
from xlflax.training.checkpointing import (
  checkpoint_reader,
  config_serialization,
  run_directory,
  saved_run,
)
from xlflax.training.devices import mmap_limit
from xlflax.training.distributed import distributed_job
from xlflax.training.initialization import init_from
from xlflax.utils import errors

TRIALS = 'trials'
_LOG = logging.getLogger(__name__)


class Keep(enum.Enum):
  """Which checkpoints of a finished trial are kept."""

  BEST = 'best'  # the one that is evaluated
  ALL = 'all'  # as the configuration's CheckpointOptions say


class Status(enum.Enum):
  """How a trial ended."""

  FINISHED = 'finished'
  DIVERGED = 'diverged'  # its loss was not finite; not tried again
  FAILED = 'failed'  # anything else; tried again by the next call
  STOPPED = 'stopped'  # a signal ended it; continued by the next call


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
  """What a trial gave.

  Attributes:
    trial: which one.
    directory: of its run.
    status: how it ended.
    config: fingerprint of its trainer, total steps and epochs.
    judged_by: the metric that is selected by, and a hash of the dev tasks.
    message: what went wrong, if anything.
    exit_status: what fits that; see `errors.ExitStatus`.
    step: of its checkpoint: the best on the dev set, or the last.
    value: the metric that is selected by, at that step.
    metrics: all that training evaluated at that step.
    seconds: that training took, all calls together.
  """

  trial: hyperparameter_grid.Trial
  directory: pathlib.Path
  status: Status
  config: str
  judged_by: str = ''
  message: str = ''
  exit_status: int = errors.ExitStatus.DONE
  step: int | None = None
  value: float | None = None
  metrics: dict[str, float] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0

  @property
  def is_final(self) -> bool:
    return self.status in (Status.FINISHED, Status.DIVERGED)

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values."""
    return dataclasses.asdict(self) | {
      'trial': self.trial.name,
      'macros': dict(self.trial.values),
      'directory': self.directory.name,
      'status': self.status.value,
    }


@dataclasses.dataclass(frozen=True)
class MadeTrial:
  """A trial that is ready to be trained.

  Attributes:
    trial: which one.
    trainer: its run.
    gin_config: the text of a gin file that builds the trainer.
  """

  trial: hyperparameter_grid.Trial
  trainer: trainer_lib.Trainer
  gin_config: Callable[[], str]

  @property
  def fingerprint(self) -> str:
    """Hashes of what makes the run what it is and of what it starts from.

    Before: a trial of 100 steps; after: '3f2a… 100 None 77ab…'.
    """
    length = f'{self.trainer.total_steps} {self.trainer.epochs}'
    identity = config_serialization.config_fingerprint(self.trainer)
    return f'{identity} {length} {_sources(self.trainer)}'


def _sources(trainer: trainer_lib.Trainer) -> str:
  """A hash of the checkpoints, the text and the cache as they are now."""
  corpus = trainer.corpus and _text(trainer.corpus)
  cache = trainer.cache_dir and content_hash.hash_paths(
    str(paths.to_path(trainer.cache_dir) / cache_format.CACHE_FILE)
  )
  starts = init_from.checkpoints_of(trainer.init_from)
  return checksums.digest_json([starts, corpus, cache]).rpartition(':')[2][:16]


def _text(corpus: str) -> list[list[Any]] | None:
  """Names and sizes of a corpus's files; None where it cannot be read."""
  try:
    files = corpus_directory.Corpus(corpus).fingerprint()
  except errors.XlflaxError:
    return None  # which training says
  return [[file.path, file.size] for file in files]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialRunner:
  """Runs trials, one after the other, in folders of one directory.

  Attributes:
    output: the grid's directory; trials lie in its folder `trials`.
    configuration: of training; each trial adds its macros and MODEL_DIR.
    select: metric of the dev set that says which checkpoint is best, such as
      'classification/accuracy/en'; None: the last checkpoint.
    keep: which checkpoints stay.
    other_config: what to do where a trial's folder holds another run.
  """

  output: pathlib.Path
  configuration: gin_config.Configuration
  select: str | None = None
  keep: Keep = Keep.BEST
  other_config: run_directory.OtherConfig = run_directory.OtherConfig.REFUSE

  def directory(self, trial: hyperparameter_grid.Trial) -> pathlib.Path:
    """Of the trial's run."""
    return self.output / TRIALS / trial.name

  def make(self, trial: hyperparameter_grid.Trial) -> MadeTrial:
    """The trainer of a trial; nothing is written.

    Raises:
      ConfigError: the configuration is wrong, or has no metric `select`.
    """
    values = trial.macros | {'MODEL_DIR': str(self.directory(trial))}
    if trial.untrained:
      kind = trainer_lib.Trainer
      values |= {f'{kind.__module__}.{kind.__qualname__}.init_from': None}
    configuration = self.configuration.with_macros(values)
    trainer = configuration.build(
      trainer_lib.Trainer, other_config=self.other_config
    )
    if self.select is not None:
      if trainer.evaluation is None:
        trainer = dataclasses.replace(
          trainer, evaluation=configuration.build(during_training.Evaluation)
        )
      trainer = self._keeping_best(trainer)
    configuration.warn_of_unread()
    return MadeTrial(trial, trainer, configuration.operative)

  def _keeping_best(self, trainer: trainer_lib.Trainer) -> trainer_lib.Trainer:
    """The trainer with the checkpoints that selection needs."""
    assert self.select is not None
    lowest = task_families.better_of(self.select) is Better.LOWER
    options = dataclasses.replace(
      trainer.checkpoints, best_metric=self.select, best_is_highest=not lowest
    )
    if self.keep is Keep.BEST:
      options = dataclasses.replace(options, keep_last=1)
    return dataclasses.replace(trainer, checkpoints=options)

  def run(self, made: MadeTrial) -> TrialResult:
    """Trains a trial to its end, unless that has been done.

    Raises:
      RunDirectoryError: the trial's folder is of another configuration.
    """
    recorded = self.record(made.trial)
    if recorded is None:  # what judges it is known whatever ends it
      self._write(TrialResult(**self._known(made), status=Status.STOPPED))
    else:
      self._check_same_run(recorded, made)
      if recorded.is_final and recorded.config == made.fingerprint:
        return recorded
    result = self._train(made, recorded.seconds if recorded else 0.0)
    self._write(result)
    self._prune(result)
    return result

  def _check_same_run(self, known: TrialResult, made: MadeTrial) -> None:
    """Raises RunDirectoryError unless the trial may be continued."""
    if known.judged_by != self._judged_by(made):
      raise errors.RunDirectoryError(
        'The folder holds a trial that another metric or dev set has judged',
        got=str(known.directory),
        where='--output',
        fix='give another --output: scores of two dev sets cannot be compared',
      )
    before, current = known.config.split(), made.fingerprint.split()
    if self.other_config is not run_directory.OtherConfig.REFUSE:
      return
    description = "another configuration's trial"
    if before[0] == current[0]:
      if not known.is_final or before[-1] == current[-1]:
        return
      description = 'a trial that began from another checkpoint, text or cache'
    raise errors.RunDirectoryError(
      f'The folder holds {description}',
      got=str(known.directory),
      where='--output',
      fix='give another --output, or continue the trial with the new '
      'settings by --on_config_mismatch=continue',
    )

  def _known(self, made: MadeTrial) -> dict[str, Any]:
    """What is known of a trial before it is trained."""
    return {
      'trial': made.trial,
      'directory': self.directory(made.trial),
      'config': made.fingerprint,
      'judged_by': self._judged_by(made),
    }

  def _judged_by(self, made: MadeTrial) -> str:
    evaluation: Any = made.trainer.evaluation
    judges = evaluation and [
      evaluation.tasks,
      evaluation.seed,
      evaluation.use_ema,
    ]
    settings = evaluation_base.task_settings(judges)
    return f'{self.select} {evaluation_base.settings_hash(settings)}'

  def record(self, trial: hyperparameter_grid.Trial) -> TrialResult | None:
    """What an earlier call has written of a trial."""
    path = self._record_file(trial)
    if not path.exists():
      return None

    def into(fields: dict[str, Any]) -> TrialResult:
      del fields['macros']
      trial_fields = {'trial': trial, 'directory': self.directory(trial)}
      return TrialResult(
        **fields | trial_fields | {'status': Status(fields['status'])}
      )

    return checksums.read_json(
      path,
      error=errors.RunDirectoryError,
      message="A trial's record is damaged",
      has_digest=True,
      fix='delete it: the trial is then continued',
      convert=into,
    )

  def _train(self, made: MadeTrial, seconds: float) -> TrialResult:
    """One call of `train`; what it raises is part of the result."""
    start = time.monotonic()
    trial = made.trial
    result_fields = self._known(made)
    try:
      outcome = made.trainer.train(gin_config=made.gin_config)
      result_fields |= {
        'status': Status.STOPPED,
        'message': 'stopped by a signal',
        'exit_status': int(errors.ExitStatus.STOPPED),
      }
      if outcome['finished']:
        result_fields |= self._best(trial)
        result_fields |= {
          'status': Status.FINISHED,
          'message': '',
          'exit_status': 0,
        }
    except errors.XlflaxError as error:
      result_fields |= _failed(error)
    except OSError as error:
      result_fields |= _failed(errors.of_os_error(error))
    except Exception as error:
      _LOG.exception('Trial %s failed.', trial.name)
      result_fields |= {
        'status': Status.FAILED,
        'message': f'{type(error).__name__}: {error}',
        'exit_status': int(errors.ExitStatus.BUG),
      }
    mmap_limit.free_programs_if_scarce()  # parameters and programs of the trial
    return TrialResult(
      **result_fields, seconds=round(seconds + time.monotonic() - start, 1)
    )

  def _best(self, trial) -> dict[str, Any]:
    """Step, value and metrics of the checkpoint that counts."""
    run = saved_run.open_run(self.directory(trial))
    if self.select is None:
      step = checkpoint_selection.select_checkpoints(run, 'last')[0]
    else:
      step = checkpoint_selection.select_checkpoints(
        run, 'best', best_metric=self.select
      )[0]
    metrics = checkpoint_selection.training_evaluations(run).get(step, {})
    return {
      'step': step,
      'metrics': metrics,
      'value': metrics[self.select] if self.select else None,
    }

  def _record_file(self, trial) -> pathlib.Path:
    return self.output / TRIALS / f'{trial.name}.json'

  def _write(self, result: TrialResult) -> None:
    if distributed_job.is_lead():
      record = checksums.add_digest(result.to_json())
      text = json.dumps(record, indent=2, ensure_ascii=False) + '\n'
      name = f'{TRIALS}/{result.trial.name}.json'
      manifests.write_files(self.output, manifests.Kind.GRID, {name: text})

  def _prune(self, result: TrialResult) -> None:
    """Deletes the checkpoints that nothing will read."""
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


def _failed(error: errors.XlflaxError) -> dict[str, Any]:
  """What a trial's record says of an error that ended it.

  A run that cannot learn has diverged; one that a hang, a lost process or a
  full disk ended is tried again.
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
