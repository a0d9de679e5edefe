"""Fine-tuning over a hyperparameter grid, model selection and testing."""

import contextlib
import dataclasses
import enum
import logging
from collections.abc import Sequence
from typing import Any

from xlflax import evaluate
from xlflax.config import binding_effects, binding_locations, gin_config
from xlflax.data.supervised import supervised_loader
from xlflax.evaluation import during_training, eval_task, selection_metrics
from xlflax.finetuning import (
  grid_data,
  grid_report,
  grid_trials,
  hyperparameter_grid,
  input_checks,
  model_selection,
  transfer_matrix,
)
from xlflax.storage import bucket_access, directory_lease, paths
from xlflax.training.checkpointing import run_directory
from xlflax.training.distributed import distributed_job
from xlflax.training.initialization import init_from
from xlflax.utils import errors, logs, rich_tables, signals, validation

_LOG = logging.getLogger(__name__)


class Tested(enum.Enum):
  """Hyperparameter settings to evaluate on the test sets."""

  # The best setting on the dev set.
  SELECTED = 'selected'
  # The two best settings on the dev set, and their mean (ECS).
  BEST_TWO = 'best_two'
  # All settings.
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
  check_files: bool = False,
  batch_size: validation.PositiveInt = 64,
  on_config_mismatch: run_directory.OnConfigMismatch | str = (
    run_directory.OnConfigMismatch.ERROR
  ),
) -> grid_report.GridReport:
  """Fine-tunes all trials of a hyperparameter grid and tests the best setting.

  Each trial is an ordinary run in `OUTPUT/trials/<MACRO=VALUE,...>/`. After an
  interruption, the same call resumes the interrupted trial from its last
  checkpoint and skips finished trials. If a trial fails, the failure is
  recorded and the remaining trials are run.

  Args:
    output: Output directory of the hyperparameter grid.
    configuration: Training configuration, without MODEL_DIR and the values of
      the axes.
    axes: Axes of the hyperparameter grid, each with a gin macro and its values.
      If empty, there is a single trial.
    select: Metric that training evaluates on the (English) dev set, such as
      'classification/accuracy/en'. It determines the best checkpoint of a trial
      and, by its mean over seeds, the best setting. If None, the grid must have
      a single setting, and the last checkpoint is used.
    test: Gin configuration that binds `evaluate.tasks` for the test sets.
    test_tasks: Evaluation tasks for the test sets, as an alternative to `test`.
    tested: Hyperparameter settings to evaluate on the test sets. The trials of
      all seeds are evaluated.
    keep: Checkpoints to keep after a trial has finished.
    untrained: Whether to also run each trial from randomly initialized
      parameters. The best setting of these additional trials is tested as a
      baseline.
    check_files: Whether to read and check all training, development and test
      files before the first trial. Otherwise, a test file that cannot be read
      is reported as a failure after training.
    batch_size: Number of sentences per batch on the test sets.
    on_config_mismatch: Action to take if a trial's directory contains a run
      with a different configuration.

  Returns:
    The report, which is also written to `grid.json`.

  Raises:
    XlflaxError: If the grid or a configuration is invalid.
  """
  tested = validation.validate(tested, Tested, name='finetune.tested')
  if test is not None:
    test_tasks = bound_tasks(test)
  runner = grid_trials.TrialRunner(
    output=paths.to_path(output),
    select=select,
    configuration=configuration,
    keep=validation.validate(keep, grid_trials.Keep, name='finetune.keep'),
    on_config_mismatch=validation.validate(
      on_config_mismatch,
      run_directory.OnConfigMismatch,
      name='finetune.on_config_mismatch',
    ),
  )
  trials = make_trials(runner, axes, untrained=untrained)
  data: tuple[grid_data.TrainingData, ...] = ()
  if check_files:
    data = input_checks.check_inputs(
      [trial.trainer for trial in trials], test_tasks or ()
    )
  bucket_access.check_usable(runner.output)
  check_initial_checkpoints(runner, trials)
  with contextlib.ExitStack() as stack:
    if distributed_job.is_lead():
      stack.enter_context(directory_lease.Lease(runner.output))
    # All trials read the same examples.
    stack.enter_context(logs.skip_repeated_messages(supervised_loader.__name__))
    report = _train_all(runner, trials, data)
    if test_tasks and not _is_stopped(report):
      report = _evaluate_settings(report, test_tasks, tested, batch_size)
      report.write(runner.output)
    return report


def check_initial_checkpoints(
  runner: grid_trials.TrialRunner, trials: Sequence[grid_trials.MadeTrial]
) -> None:
  """Checks that the initial checkpoints of the trials exist.

  The trials of an existing grid are checked when they start.

  Raises:
    CheckpointError: If a model directory or a checkpoint does not exist.
  """
  if not runner.output.exists():
    for trial in trials:
      init_from.check_checkpoints_exist(
        trial.trainer.init_from, trial.trainer.model_dir
      )


def _train_all(
  runner: grid_trials.TrialRunner,
  trials: Sequence[grid_trials.MadeTrial],
  data: tuple[grid_data.TrainingData, ...],
) -> grid_report.GridReport:
  """Runs trials until one is stopped, and writes the report after each.

  The report of a stopped search also contains the remaining trials.
  """
  report = grid_report.GridReport(
    select=runner.select,
    select_split=_find_split(runner.select, trials),
    training_data=data,
  )
  for number, trial in enumerate(trials, 1):
    signals.check_stop_request()
    _LOG.info(
      'Trial %d of %d has already finished: %s'
      if runner.is_finished(trial)
      else 'Running trial %d of %d: %s',
      number,
      len(trials),
      trial.trial.name,
    )
    report = report.with_trial(runner.run(trial))
    report.write(runner.output)
    if _is_stopped(report):
      for remaining_trial in trials[number:]:
        report = report.with_trial(runner.read_result(remaining_trial))
      report.write(runner.output)
      break
  return report


def _find_split(
  select: str | None, trials: Sequence[grid_trials.MadeTrial]
) -> str:
  """Returns the split on which a selection metric is computed, or 'all'."""
  name = (select or '').partition('/')[0]
  for trial in trials:
    for task in getattr(trial.trainer.evaluation, 'tasks', ()):
      if task.name == name:
        return task.split
  return 'all'


def _is_stopped(report: grid_report.GridReport) -> bool:
  """Returns whether a signal or a hook stopped a trial."""
  return any(
    trial.status is grid_trials.Status.STOPPED for trial in report.trials
  )


def make_trials(
  runner: grid_trials.TrialRunner,
  axes: Sequence[hyperparameter_grid.Axis],
  *,
  untrained: bool = False,
) -> list[grid_trials.MadeTrial]:
  """Creates and checks a hyperparameter grid's trials, without writing files.

  Args:
    runner: Runner that creates the trials.
    axes: Axes of the hyperparameter grid, each with a gin macro and its values.
    untrained: Whether to add trials with randomly initialized parameters.

  Raises:
    XlflaxError: If the grid or a configuration is invalid.
  """
  trials = hyperparameter_grid.expand_grid(axes)
  model_selection.check_metric(
    runner.select, len(hyperparameter_grid.group_by_setting(trials))
  )
  if untrained:
    trials += hyperparameter_grid.untrained_trials(trials)
  return [runner.make(trial) for trial in trials]


def trial_configurations(
  configuration: gin_config.Configuration,
  axes: Sequence[hyperparameter_grid.Axis],
  *,
  select: str | None = None,
) -> list[gin_config.Configuration]:
  """Returns the gin configuration of each trial, for checks of the bindings.

  No objects are built. The values of the axes are treated as bindings by the
  user.

  Args:
    configuration: Training configuration, without MODEL_DIR and the values of
      the axes.
    axes: Axes of the hyperparameter grid, each with a gin macro and its values.
    select: Metric that training evaluates on the dev set, as in `finetune`.
  """
  configurations = []
  for trial in hyperparameter_grid.expand_grid(axes):
    trial_configuration = configuration.with_macros(
      trial.macros | {'MODEL_DIR': ''}
    )
    trial_configuration.expect_build(
      grid_trials.Trainer, ['on_config_mismatch']
    )
    if select is not None:
      trial_configuration.expect_build(during_training.Evaluation)
    bindings = [
      *configuration.bindings,
      *(
        binding_locations.flag_binding(name, '--grid') for name in trial.macros
      ),
    ]
    configurations.append(
      dataclasses.replace(trial_configuration, bindings=bindings)
    )
  return configurations


def selection_option(
  configuration: gin_config.Configuration,
) -> binding_effects.Option:
  """Returns the option `--metric_for_best_model` and the metrics it accepts.

  Args:
    configuration: Training configuration of a trial.
  """
  flag = '--metric_for_best_model'
  try:
    # The copy keeps the record of the bindings that training uses.
    copy = configuration.with_macros({})
    tasks = copy.build(during_training.Evaluation).tasks
  except errors.XlflaxError:  # For example, there are no development files.
    return binding_effects.Option(f'{flag}=TASK/METRIC/LANGUAGE')
  metrics = ', '.join(map(selection_metrics.list_metrics, tasks))
  metric = selection_metrics.primary_metric(tasks[0]) if tasks else 'METRIC'
  return binding_effects.Option(f'{flag}={metric}', f'{flag} with {metrics}')


@validation.validate_call
def finetune_directions(
  *,
  languages: Sequence[str],
  output: validation.FilePath,
  configuration: gin_config.Configuration,
  select: str | None = None,
  **arguments: Any,
) -> dict[str, grid_report.GridReport]:
  """Runs a grid search for each training language and writes transfer matrices.

  The grid of a language is written to `OUTPUT/<language>/`, and the transfer
  matrices to `OUTPUT/directions.<task>.csv` with a heat map.

  Args:
    languages: Training languages. They are the values of the macro
      TRAIN_LANGUAGE.
    output: Output directory, with one subdirectory per training language.
    configuration: Training configuration, which refers to TRAIN_LANGUAGE.
    select: Selection metric, such as 'classification/accuracy/{language}', in
      which `{language}` stands for the training language (see `finetune`).
    **arguments: Additional arguments of `finetune`.

  Returns:
    Mapping from training languages to grid reports.

  Raises:
    XlflaxError: If there are no test tasks, or if `finetune` raises an error.
  """
  transfer_matrix.check_directions(languages)
  if arguments.get('test') is None and not arguments.get('test_tasks'):
    raise errors.ConfigError(
      'The flag --train_languages requires evaluation tasks for the test sets, '
      'but no task is configured',
      fix='Pass --eval_gin_file=evaluate/NAME.gin and --eval_gin NAME=VALUE.',
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


def bound_tasks(test: gin_config.Configuration) -> list[eval_task.EvalTask]:
  """Returns the evaluation tasks that a gin configuration specifies."""
  return list(
    test.parameter('evaluate.evaluate.tasks', what='the evaluation tasks')
  )


def _evaluate_settings(
  report: grid_report.GridReport,
  tasks: Sequence[eval_task.EvalTask],
  tested: Tested,
  batch_size: int,
) -> grid_report.GridReport:
  """Evaluates the tested settings' trials and adds the scores to the report."""
  settings: Sequence[model_selection.Setting]
  if tested is Tested.ALL:
    settings = report.settings
  else:
    num_best = 1 if tested is Tested.SELECTED else 2
    settings = (
      *report.ranking[:num_best],
      *report.untrained_ranking[:num_best],
    )
  for setting in settings:
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
) -> evaluate.Report:
  """Evaluates a trial's best checkpoint, or reads existing results.

  A test task that has the same name as an evaluation task of training is
  renamed to '<name>_test', so that their results are stored separately.

  Args:
    result: Training result of the trial.
    tasks: Evaluation tasks for the test sets.
    batch_size: Number of sentences per batch.

  Raises:
    ConfigError: If the trial does not have a checkpoint.
  """
  training_task_names = {name.split('/')[0] for name in result.metrics}
  renamed_tasks = [
    dataclasses.replace(task, name=f'{task.name}_test')
    if task.name in training_task_names
    else task
    for task in tasks
  ]
  if result.step is None:
    raise errors.ConfigError(
      'The trial cannot be evaluated on the test sets, because it has no '
      'checkpoint',
      got=result.trial.name,
    )
  _LOG.info(
    'Evaluating trial %s on the test sets, checkpoint of step %d',
    result.trial.name,
    result.step,
  )
  return evaluate.evaluate(
    model_dir=str(result.directory),
    tasks=renamed_tasks,
    steps=[result.step],
    batch_size=batch_size,
  )


def print_report(report: grid_report.GridReport, console: Any) -> None:
  """Prints tables of the dev and test scores of a hyperparameter grid."""
  for table in grid_report.grid_tables(report):
    rich_tables.print_table(table, console)
  for note in grid_report.untrained_notes(report):
    console.print(f'Warning: {note}', markup=False, highlight=False)
