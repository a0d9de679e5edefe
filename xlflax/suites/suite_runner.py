"""Execution of a suite's tasks on checkpoints of pretrained models."""

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Collection, Sequence
from typing import Any, Literal

from xlflax import evaluate
from xlflax.config import gin_config
from xlflax.evaluation import checkpoint_selection, eval_task, gold_labels
from xlflax.finetuning import finetune_grid, grid_report, hyperparameter_grid
from xlflax.storage import paths
from xlflax.suites import (
  cost_meter,
  suite_config,
  suite_report,
  suite_result_store,
)
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.training.devices import mmap_limit
from xlflax.utils import errors, logs, signals, validation

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Model:
  """A checkpoint that is evaluated on a suite.

  Attributes:
    label: Model name in tables and in the name of its folder.
    model_dir: Directory of the pretrained run.
    step: Step of the evaluated checkpoint.
  """

  label: str
  model_dir: str
  step: int

  @property
  def name(self) -> str:
    """Name of the checkpoint, such as 'mlm@1000'."""
    return f'{self.label}@{self.step}'


def models(model_dirs: Sequence[str], step: int | None = None) -> list[Model]:
  """Returns each run's last checkpoint, or its checkpoint at a given step.

  Args:
    model_dirs: Directories of the pretrained runs.
    step: Checkpoint step. If None, the last checkpoint of each run is returned.

  Raises:
    RunDirectoryError: If a directory does not contain a run.
    CheckpointError: If a run does not have a requested checkpoint.
  """
  labels = _labels(model_dirs)
  checkpoints = []
  for label, directory in zip(labels, model_dirs, strict=True):
    steps = saved_run.load_run(directory).steps
    if not steps or (step is not None and step not in steps):
      raise errors.CheckpointError(
        'The run does not have the requested checkpoint',
        where=directory,
        got='last' if step is None else step,
        expected='one of the steps ' + ', '.join(map(str, steps))
        if steps
        else 'a run with a finished checkpoint',
      )
    checkpoints.append(
      Model(label, directory, steps[-1] if step is None else step)
    )
  return checkpoints


def models_at(
  model_dirs: Sequence[str],
  steps: Sequence[int] | Literal['best'] | None,
  metric_for_best_model: str | None = None,
) -> list[Model]:
  """Returns each run's checkpoints at the given steps.

  Args:
    model_dirs: Directories of the pretrained runs.
    steps: Checkpoint steps. If None, the last checkpoint of each run is
      returned. If 'best', the best checkpoint of each run is returned, which
      may have a different step in each run.
    metric_for_best_model: Metric by which the best checkpoints are selected. It
      must be recorded during pretraining.

  Raises:
    RunDirectoryError: If a directory does not contain a run.
    CheckpointError: If a run does not have a requested checkpoint.
    ConfigError: If `metric_for_best_model` is required and missing, or was not
      recorded in a run.
  """
  if steps == 'best':
    labels = _labels(model_dirs)
    return [
      Model(label, directory, step)
      for label, directory in zip(labels, model_dirs, strict=True)
      for step in checkpoint_selection.select_checkpoints(
        saved_run.load_run(directory),
        'best',
        metric_for_best_model=metric_for_best_model,
      )
    ]
  return [
    model
    for step in (steps if steps else (None,))
    for model in models(model_dirs, step)
  ]


def shard(
  suite: suite_config.Suite,
  models: Sequence[Model],
  names: Sequence[str] | None,
  index: int,
  count: int,
) -> set[tuple[str, str]]:
  """Selects the tasks of one machine by round-robin assignment.

  Tasks that evaluate the models of the same grid are assigned to the same
  machine.

  Args:
    suite: Suite whose tasks are assigned.
    models: Checkpoints to evaluate.
    names: Names of the tasks to run. If None, all tasks are run.
    index: Zero-based index of the machine.
    count: Total number of machines.

  Returns:
    (checkpoint, task) pairs that this machine evaluates.
  """
  groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
  for model in models:
    for task in suite.run_tasks(model.label, names):
      group = groups.setdefault((model.name, task.trials or task.name), [])
      group.append((model.name, task.name))
  return {
    pair for group in list(groups.values())[index::count] for pair in group
  }


def _labels(model_dirs: Sequence[str]) -> list[str]:
  """Returns the shortest path suffixes, of equal length, that are distinct."""
  parts = [pathlib.Path(path).absolute().parts for path in model_dirs]
  if len(set(parts)) < len(parts):
    raise errors.ConfigError(
      '--model_dir must not contain the same directory more than once',
      got=', '.join(model_dirs),
    )
  for size in range(1, max(map(len, parts)) + 1):
    names = ['_'.join(path_parts[-size:]).strip('/') for path_parts in parts]
    if len(set(names)) == len(names):
      break
  return names


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteRunner:
  """Runner that evaluates a suite's tasks on checkpoints.

  Attributes:
    suite: Suite to evaluate.
    output: Output directory of the suite. Fine-tuned runs are stored in
      `OUTPUT/<label>@<step>/<task>/trials/`.
    data: Directory that contains the tasks' data. It is the value of the macro
      DATA.
    task_names: Names of the tasks to run. If None, all tasks are run.
    bindings: Gin bindings for every task that requires fine-tuning, applied
      after the task's own bindings. A binding of a macro that is an axis of a
      task's grid replaces the axis.
    search_paths: Folders in which to search for gin files.
    batch_size: Number of sentences per evaluation batch.
    task_filter: Pairs (checkpoint, task) that this machine evaluates. If None,
      all pairs are evaluated.
  """

  suite: suite_config.Suite
  output: pathlib.Path
  data: str
  task_names: tuple[str, ...] | None = None
  bindings: tuple[str, ...] = ()
  search_paths: tuple[str, ...] = ()
  batch_size: validation.PositiveInt = 64
  task_filter: Collection[tuple[str, str]] | None = None

  def missing(
    self, models: Sequence[Model], report: suite_report.SuiteReport
  ) -> list[tuple[str, str]]:
    """Returns the pairs (checkpoint, task) that are missing from a report.

    The list is empty if this machine evaluates all pairs.
    """
    if self.task_filter is None:
      return []
    available = {(result.model, result.task) for result in report.results}
    required = (
      (model.name, task.name)
      for model in models
      for task in self.suite.run_tasks(model.label, self.task_names)
    )
    return [pair for pair in required if pair not in available]

  def run(self, model: Model) -> list[suite_report.TaskResult]:
    """Runs all tasks on one checkpoint and stores their results.

    Failures are recorded in the results.
    """
    run = run_directory.run_id(paths.to_path(model.model_dir))
    suite_result_store.check_run(
      model.name, run, self.suite.recipe, self.output
    )
    grids: dict[str, grid_report.GridReport] = {}
    results = []
    for task in self.suite.run_tasks(model.label, self.task_names):
      signals.check_stop_request()
      if (
        self.task_filter is not None
        and (model.name, task.name) not in self.task_filter
      ):
        continue
      _LOG.info('%s, step %d: task %s', model.label, model.step, task.name)
      meter = cost_meter.Meter(model.model_dir, model.step)
      previous_cost = suite_result_store.earlier_cost(
        task.name, model.name, self.output
      )
      result = self._run_task(task, model, grids)
      current_cost = meter.read()
      result = dataclasses.replace(
        result,
        run=run,
        recipe=self.suite.recipe,
        notes=(*self.suite.recipe_notes(task), *result.notes),
        cost=current_cost
        if previous_cost is None
        else previous_cost + current_cost,
      )
      suite_result_store.write(
        result, self.output, is_shared=self.task_filter is not None
      )
      results.append(result)
      mmap_limit.free_programs_if_scarce()
    return results

  def _run_task(self, task, model, grids) -> suite_report.TaskResult:
    """Returns the result of one task, which includes its failures."""
    failures = eval_task.Failures(task.name)
    result = suite_report.TaskResult(
      task=task.name, family=task.family, label=model.label, step=model.step
    )
    with failures.guard():
      # The tests are loaded first, so that a task without its test data fails
      # before the fine-tuning.
      tests = self.load_tests(task, model)
      if task.trials is None:
        result = self._evaluate_pretrained(model, tests, result)
      else:
        result = self._finetune_and_evaluate(task, model, tests, result, grids)
    return dataclasses.replace(
      result,
      main=task.metrics,
      failures=(*result.failures, *failures.collected()),
    )

  def configuration(
    self, task: suite_config.SuiteTask, model: Model
  ) -> gin_config.Configuration:
    """Returns the gin configuration that runs a task on a checkpoint.

    The macro MODEL_DIR is not set.
    """
    macros: dict[str, Any] = {'DATA': self.data}
    bindings = (*task.bindings, *task.recipe)
    if task.trials is not None:
      macros |= {'INIT_FROM': model.model_dir, 'INIT_STEP': model.step}
      bindings += self.bindings
    return gin_config.load_gin_files(
      (task.gin_file,), bindings, self.search_paths, macros=macros, partial=True
    )

  @property
  def _binding_names(self) -> frozenset[str]:
    """Names of the macros and parameters in `bindings`."""
    return frozenset(
      binding.partition('=')[0].strip() for binding in self.bindings
    )

  def check_bindings(self) -> None:
    """Checks that each gin binding in `bindings` affects at least one task.

    Bindings in gin files of the tasks are checked as well. No objects are
    built.

    Raises:
      ConfigError: If a binding does not affect any task.
    """
    names = self._binding_names
    configurations: list[gin_config.Configuration] = []
    for task in self.suite.select_tasks(self.task_names):
      # The failure of a task is recorded when the task runs.
      with contextlib.suppress(errors.XlflaxError):
        configurations += self._built_configurations(task)
    gin_config.check_bindings(
      [
        dataclasses.replace(
          configuration,
          bindings=[
            binding
            for binding in configuration.bindings
            if not binding.is_flag or binding.name in names
          ],
          flags=frozenset(),
        )
        for configuration in configurations
      ]
    )

  def check_test_data(self, models: Sequence[Model]) -> None:
    """Logs a warning for test data that is unreadable or has no gold labels.

    The test data of all selected tasks is read, so that a mistake is reported
    before the first fine-tuning run. If no task is fine-tuned, nothing is read,
    because the results of the tasks report the same problems.

    Args:
      models: Checkpoints to evaluate.
    """
    tasks = self.selected_tasks(models)
    if not any(task.trials for task, _ in tasks):
      return
    data = {
      task.name: self._read_test_data(task, task_models[0])
      for task, task_models in tasks
    }
    for message in (
      gold_labels.describe_unlabeled(data),
      gold_labels.describe_failures(data),
    ):
      if message:
        _LOG.warning('%s', message, extra=logs.ONCE)

  def selected_tasks(
    self, models: Sequence[Model]
  ) -> list[tuple[suite_config.SuiteTask, list[Model]]]:
    """Returns the tasks to run, each with the checkpoints to evaluate.

    Args:
      models: Checkpoints to evaluate.
    """
    models_by_task: dict[str, list[Model]] = {}
    for model in models:
      for task in self.suite.run_tasks(model.label, self.task_names):
        if (
          self.task_filter is None
          or (model.name, task.name) in self.task_filter
        ):
          models_by_task.setdefault(task.name, []).append(model)
    return [
      (task, models_by_task[task.name])
      for task in self.suite.tasks
      if task.name in models_by_task
    ]

  def _read_test_data(
    self, task: suite_config.SuiteTask, model: Model
  ) -> gold_labels.TestData:
    """Reads the test data of a task and counts the gold labels."""
    failures = eval_task.Failures(task.name)
    tests: list[eval_task.EvalTask] = []
    with failures.guard():
      tests = self.load_tests(task, model)
    return gold_labels.read_test_data(tests, failures)

  def _built_configurations(
    self, task: suite_config.SuiteTask
  ) -> list[gin_config.Configuration]:
    """Returns the gin configurations from which a suite task builds objects."""
    model = Model('', '', 0)
    configuration = self.configuration(task, model)
    configuration.expect_build(evaluate.evaluate)
    if task.trials is None:
      return [configuration]
    grid_task = self.suite.task(task.trials)
    return [
      configuration,
      *finetune_grid.trial_configurations(
        self.configuration(grid_task, model),
        self.grid_axes(grid_task),
        select=grid_task.select,
      ),
    ]

  def grid_axes(
    self, task: suite_config.SuiteTask
  ) -> tuple[hyperparameter_grid.Axis, ...]:
    """Returns the axes of a fine-tuning grid that `bindings` do not set."""
    return tuple(
      axis
      for axis in map(hyperparameter_grid.parse_axis, task.grid)
      if axis.macro not in self._binding_names
    )

  def load_tests(
    self, task: suite_config.SuiteTask, model: Model
  ) -> list[eval_task.EvalTask]:
    """Returns the evaluation tasks configured in a suite task's gin file."""
    return list(
      self.configuration(task, model).parameter(
        'evaluate.evaluate.tasks', what='evaluation tasks'
      )
    )

  def _evaluate_pretrained(self, model, tests, result):
    """Adds the test results of the pretrained model to a result.

    The directory of the pretrained run is not modified.
    """
    report = evaluate.evaluate(
      model_dir=model.model_dir,
      tasks=tests,
      steps=[model.step],
      batch_size=self.batch_size,
      output=str(self.directory(model)),
    )
    return result.with_report(report, model.step)

  def _finetune_and_evaluate(self, task, model, tests, result, grids):
    """Adds the test results of the selected settings, for all seeds.

    Args:
      task: Suite task that requires fine-tuning.
      model: Checkpoint to fine-tune.
      tests: Evaluation tasks for the test sets.
      result: Result to which the test results are added.
      grids: Finished grids of the checkpoint by task name. If the grid of the
        given task is missing, the grid is run and added to the mapping.
    """
    grid_task = self.suite.task(task.trials)
    if grid_task.name not in grids:
      axes = self.grid_axes(grid_task)
      if len(axes) < len(grid_task.grid):
        _LOG.info(
          'Task %s: Bindings replace axes of the grid %s.',
          grid_task.name,
          ' '.join(grid_task.grid),
        )
      grids[grid_task.name] = finetune_grid.finetune(
        output=str(self.directory(model) / grid_task.name),
        configuration=self.configuration(grid_task, model),
        axes=axes,
        select=grid_task.select,
      )
    grid = grids[grid_task.name]
    result = dataclasses.replace(
      result,
      failures=tuple(
        eval_task.Failure(
          task=task.name,
          part=f'trial {trial.trial.name}',
          message=trial.message,
          status=trial.exit_status,
        )
        for trial in grid.trials
        if trial.message
      ),
    )
    settings = grid.ranking[: task.test_top_k]
    result = dataclasses.replace(
      result, setting=' and '.join(setting.name for setting in settings)
    )
    for setting in settings:
      for trial in setting.finished:
        report = finetune_grid.evaluate_trial(
          trial, tests, batch_size=self.batch_size
        )
        result = result.with_report(report, trial.step)
    return result

  def directory(self, model: Model) -> pathlib.Path:
    """Returns the directory that contains a checkpoint's fine-tuned runs."""
    return self.output / model.name
