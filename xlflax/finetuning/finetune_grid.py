"""`finetune`: a grid of runs, selection on the dev set, results of the best."""

import contextlib
import dataclasses
import enum
import logging
from collections.abc import Sequence
from typing import Any

from xlflax import evaluate as evaluate_lib
from xlflax.config import gin_config
from xlflax.evaluation import during_training, eval_task
from xlflax.finetuning import (
  grid_report,
  grid_trials,
  hyperparameter_grid,
  model_selection,
  transfer_matrix,
)
from xlflax.storage import bucket_access, directory_lease, paths
from xlflax.training.checkpointing import run_directory
from xlflax.training.distributed import distributed_job
from xlflax.utils import errors, rich_tables, signals, validation

_LOG = logging.getLogger(__name__)


class Tested(enum.Enum):
  """Which settings the test tasks are run on."""

  SELECTED = 'selected'  # the best on the dev set
  BEST_TWO = 'best_two'  # and the second, with the mean of both (ECS)
  ALL = 'all'


@validation.validate_call
def finetune(
  *,
  output: validation.FilePath,
  configuration: gin_config.Configuration,
  axes: Sequence[hyperparameter_grid.Axis] = (),
  select: str | None = None,
  test: gin_config.Configuration | None = None,
  test_tasks: Sequence[eval_task.EvalTask] | None = None,
  tested: Tested | str = Tested.SELECTED,
  keep: grid_trials.Keep | str = grid_trials.Keep.BEST,
  untrained: bool = False,
  batch_size: validation.PositiveInt = 64,
  other_config: run_directory.OtherConfig | str = (
    run_directory.OtherConfig.REFUSE
  ),
) -> grid_report.GridReport:
  """Fine-tunes every trial of a grid, and evaluates the best setting.

  Each trial is an ordinary run in `OUTPUT/trials/<MACRO=VALUE,...>/`. A call
  that was killed goes on in the trial and at the checkpoint where it was; what
  was finished is not computed again. A trial that fails is recorded, and the
  others go on.

  Args:
    output: directory of the grid.
    configuration: of training, without MODEL_DIR and the axes' values.
    axes: macros and their values; () for one trial.
    select: a metric that training evaluates on the (English) dev set, such
      as 'classification/accuracy/en': the best checkpoint of a trial and the
      best setting are those with the best value (its mean over seeds). None:
      the last checkpoint of the only setting.
    test: binds `evaluate.tasks`, for the test sets.
    test_tasks: the test tasks themselves, instead.
    tested: which settings are evaluated by them; all seeds of each.
    keep: which checkpoints of a finished trial stay.
    untrained: whether every trial is also run from random parameters of the
      same model; the best setting of these is tested beside, as a baseline.
    batch_size: sentences a batch of the test tasks.
    other_config: what to do where a trial's folder holds another run.

  Returns:
    Everything that `grid.json` has.

  Raises:
    XlflaxError: the grid or a configuration is wrong.
  """
  tested = validation.validate(tested, Tested, name='finetune.tested')
  if test is not None:
    test_tasks = _tasks(test)
  runner = grid_trials.TrialRunner(
    output=paths.to_path(output),
    select=select,
    configuration=configuration,
    keep=validation.validate(keep, grid_trials.Keep, name='finetune.keep'),
    other_config=validation.validate(
      other_config, run_directory.OtherConfig, name='finetune.other_config'
    ),
  )
  trials = make_trials(runner, axes, untrained=untrained)
  bucket_access.check_usable(runner.output)
  with contextlib.ExitStack() as stack:
    if distributed_job.is_lead():
      stack.enter_context(directory_lease.Lease(runner.output))
    report = _train_all(runner, trials)
    if test_tasks and not _is_stopped(report):
      report = _test(report, test_tasks, tested, batch_size)
      report.write(runner.output)
    return report


def _train_all(
  runner: grid_trials.TrialRunner, made: Sequence[grid_trials.MadeTrial]
) -> grid_report.GridReport:
  """Runs trials until one is stopped; the report is written after each."""
  report = grid_report.GridReport(select=runner.select)
  for number, trial in enumerate(made, 1):
    signals.check_stop_request()
    _LOG.info('Trial %d of %d: %s', number, len(made), trial.trial.name)
    report = report.with_trial(runner.run(trial))
    report.write(runner.output)
    if _is_stopped(report):
      break
  return report


def _is_stopped(report: grid_report.GridReport) -> bool:
  return any(
    trial.status is grid_trials.Status.STOPPED for trial in report.trials
  )


def make_trials(
  runner: grid_trials.TrialRunner,
  axes: Sequence[hyperparameter_grid.Axis],
  *,
  untrained: bool = False,
) -> list[grid_trials.MadeTrial]:
  """All trials of a grid, checked; nothing is written.

  Raises:
    XlflaxError: the grid or a configuration is wrong.
  """
  trials = hyperparameter_grid.expand_grid(axes)
  model_selection.check_metric(
    runner.select, len(hyperparameter_grid.group_by_setting(trials))
  )
  if untrained:
    trials += hyperparameter_grid.untrained_trials(trials)
  made_trials = [runner.make(trial) for trial in trials]
  for trial in made_trials:
    evaluation = trial.trainer.evaluation
    if runner.select and isinstance(evaluation, during_training.Evaluation):
      model_selection.check_exists(runner.select, evaluation.tasks)
  return made_trials


@validation.validate_call
def finetune_directions(
  *,
  languages: Sequence[str],
  output: validation.FilePath,
  configuration: gin_config.Configuration,
  select: str | None = None,
  **arguments: Any,
) -> dict[str, grid_report.GridReport]:
  """A grid for each training language, and the matrix of all directions.

  Writes `OUTPUT/<language>/` for each, `OUTPUT/directions.<task>.csv` and a
  heat map.

  Args:
    languages: to train on; each is the macro TRAIN_LANGUAGE in turn.
    output: directory.
    configuration: of training, which uses TRAIN_LANGUAGE.
    select: as in `finetune`, with `{language}` for the training language,
      such as 'classification/accuracy/{language}'.
    **arguments: of `finetune`.

  Returns:
    Training language -> its grid.

  Raises:
    XlflaxError: see `finetune`; there are no test tasks.
  """
  transfer_matrix.check_directions(languages)
  if arguments.get('test') is None and not arguments.get('test_tasks'):
    raise errors.ConfigError(
      'Directions of transfer are measured on test sets',
      got='no test task',
      where='--train_languages',
      fix='give --eval_gin_file=evaluate/NAME.gin and --eval_gin',
    )
  reports = {}
  for language in languages:
    reports[language] = finetune(
      output=str(paths.to_path(output) / language),
      configuration=configuration.with_macros(
        {transfer_matrix.MACRO: language}
      ),
      select=select and select.replace('{language}', language),
      **arguments,
    )
    if _is_stopped(reports[language]):
      return reports
  transfer_matrix.write_matrices(
    paths.to_path(output), transfer_matrix.transfer_matrices(reports)
  )
  return reports


def _tasks(test: gin_config.Configuration) -> list[eval_task.EvalTask]:
  """The tasks that gin files bind."""
  return list(
    test.parameter('evaluate.evaluate.tasks', what='evaluation tasks')
  )


def _test(
  report: grid_report.GridReport,
  tasks: Sequence[eval_task.EvalTask],
  tested: Tested,
  batch_size: int,
) -> grid_report.GridReport:
  """Evaluates the trials of the settings that count."""
  rankings = report.ranking, report.untrained_ranking
  chosen = {
    Tested.SELECTED: [setting for ranked in rankings for setting in ranked[:1]],
    Tested.BEST_TWO: [setting for ranked in rankings for setting in ranked[:2]],
    Tested.ALL: report.settings,
  }[tested]
  for setting in chosen:
    for result in setting.finished:
      report = report.with_test(
        result, evaluate_trial(result, tasks, batch_size=batch_size)
      )
  return report


@validation.validate_call
def evaluate_trial(
  result: grid_trials.TrialResult,
  tasks: Sequence[eval_task.EvalTask],
  *,
  batch_size: validation.PositiveInt = 64,
) -> evaluate_lib.Report:
  """Evaluates a trial's best checkpoint; what is there is read back.

  A task with the name of one that ran during training is called
  '<name>_test', so that each keeps its results.
  """
  trained_task_names = {name.split('/')[0] for name in result.metrics}
  renamed = [
    dataclasses.replace(task, name=f'{task.name}_test')
    if task.name in trained_task_names
    else task
    for task in tasks
  ]
  if result.step is None:
    raise errors.ConfigError(
      'A trial without a checkpoint cannot be tested', got=result.trial.name
    )
  return evaluate_lib.evaluate(
    model_dir=str(result.directory),
    tasks=renamed,
    steps=[result.step],
    batch_size=batch_size,
  )


def print_report(report: grid_report.GridReport, console: Any) -> None:
  """The tables of a grid."""
  for table in grid_report.grid_tables(report):
    rich_tables.print_table(table, console)
