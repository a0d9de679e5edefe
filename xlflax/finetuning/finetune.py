"""`finetune`: a grid of runs, selection on the dev set, results of the best."""

import contextlib
import dataclasses
import enum
import logging
from collections.abc import Sequence
from typing import Any

from xlflax import evaluate as evaluate_lib
from xlflax.configuration import config
from xlflax.evaluation import base, during_training
from xlflax.finetuning import directions, selection
from xlflax.finetuning import grid as grid_lib
from xlflax.finetuning import report as report_lib
from xlflax.finetuning import trials as trials_lib
from xlflax.foundation import console_tables, errors, stopping, validation
from xlflax.storage import bucket_checks, lease, paths
from xlflax.training.checkpointing import run_directory
from xlflax.training.processes import distributed

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
  configuration: config.Configuration,
  axes: Sequence[grid_lib.Axis] = (),
  select: str | None = None,
  test: config.Configuration | None = None,
  test_tasks: Sequence[base.EvalTask] | None = None,
  tested: Tested | str = Tested.SELECTED,
  keep: trials_lib.Keep | str = trials_lib.Keep.BEST,
  untrained: bool = False,
  batch_size: validation.PositiveInt = 64,
  other_config: run_directory.OtherConfig | str = (
    run_directory.OtherConfig.REFUSE
  ),
) -> report_lib.GridReport:
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
  runner = trials_lib.TrialRunner(
    output=paths.to_path(output),
    select=select,
    configuration=configuration,
    keep=validation.validate(keep, trials_lib.Keep, name='finetune.keep'),
    other_config=validation.validate(
      other_config, run_directory.OtherConfig, name='finetune.other_config'
    ),
  )
  made = make_trials(runner, axes, untrained=untrained)
  bucket_checks.check_usable(runner.output)
  with contextlib.ExitStack() as stack:
    if distributed.is_lead():
      stack.enter_context(lease.Lease(runner.output))
    report = _train_all(runner, made)
    if test_tasks and not _is_stopped(report):
      report = _test(report, test_tasks, tested, batch_size)
      report.write(runner.output)
    return report


def _train_all(
  runner: trials_lib.TrialRunner, made: Sequence[trials_lib.MadeTrial]
) -> report_lib.GridReport:
  """Runs trials until one is stopped; the report is written after each."""
  report = report_lib.GridReport(select=runner.select)
  for number, trial in enumerate(made, 1):
    stopping.check_stop_request()
    _LOG.info('Trial %d of %d: %s', number, len(made), trial.trial.name)
    report = report.with_trial(runner.run(trial))
    report.write(runner.output)
    if _is_stopped(report):
      break
  return report


def _is_stopped(report: report_lib.GridReport) -> bool:
  return any(
    trial.status is trials_lib.Status.STOPPED for trial in report.trials
  )


def make_trials(
  runner: trials_lib.TrialRunner,
  axes: Sequence[grid_lib.Axis],
  *,
  untrained: bool = False,
) -> list[trials_lib.MadeTrial]:
  """All trials of a grid, checked; nothing is written.

  Raises:
    XlflaxError: the grid or a configuration is wrong.
  """
  trials = grid_lib.expand_grid(axes)
  selection.check_metric(runner.select, len(grid_lib.group_by_setting(trials)))
  if untrained:
    trials += grid_lib.untrained_trials(trials)
  made = [runner.make(trial) for trial in trials]
  for one in made:
    evaluation = one.trainer.evaluation
    if runner.select and isinstance(evaluation, during_training.Evaluation):
      selection.check_exists(runner.select, evaluation.tasks)
  return made


@validation.validate_call
def finetune_directions(
  *,
  languages: Sequence[str],
  output: validation.FilePath,
  configuration: config.Configuration,
  select: str | None = None,
  **arguments: Any,
) -> dict[str, report_lib.GridReport]:
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
  directions.check_directions(languages)
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
      configuration=configuration.with_macros({directions.MACRO: language}),
      select=select and select.replace('{language}', language),
      **arguments,
    )
    if _is_stopped(reports[language]):
      return reports
  directions.write_matrices(
    paths.to_path(output), directions.transfer_matrices(reports)
  )
  return reports


def _tasks(test: config.Configuration) -> list[base.EvalTask]:
  """The tasks that gin files bind."""
  return list(
    test.parameter('evaluate.evaluate.tasks', what='evaluation tasks')
  )


def _test(
  report: report_lib.GridReport,
  tasks: Sequence[base.EvalTask],
  tested: Tested,
  batch_size: int,
) -> report_lib.GridReport:
  """Evaluates the trials of the settings that count."""
  rankings = report.ranking, report.untrained_ranking
  chosen = {
    Tested.SELECTED: [one for ranked in rankings for one in ranked[:1]],
    Tested.BEST_TWO: [one for ranked in rankings for one in ranked[:2]],
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
  result: trials_lib.TrialResult,
  tasks: Sequence[base.EvalTask],
  *,
  batch_size: validation.PositiveInt = 64,
) -> evaluate_lib.Report:
  """Evaluates a trial's best checkpoint; what is there is read back.

  A task with the name of one that ran during training is called
  '<name>_test', so that each keeps its results.
  """
  known = {name.split('/')[0] for name in result.metrics}
  renamed = [
    dataclasses.replace(task, name=f'{task.name}_test')
    if task.name in known
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


def print_report(report: report_lib.GridReport, console: Any) -> None:
  """The tables of a grid."""
  for table in report_lib.grid_tables(report):
    console_tables.print_table(table, console)
