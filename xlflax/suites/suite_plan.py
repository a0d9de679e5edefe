"""Plan of a suite, which lists its fine-tuning runs, files and tables.

A plan is created without training or writing files.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlflax.data.supervised import supervised_dataset
from xlflax.evaluation import eval_task, gold_labels
from xlflax.finetuning import finetune_grid, grid_trials, input_checks
from xlflax.storage import paths
from xlflax.suites import (
  suite_config,
  suite_export,
  suite_result_store,
  suite_runner,
  table_export,
)
from xlflax.training.checkpointing import run_directory
from xlflax.utils import name_suggestions, rich_tables

TRAINING, DEVELOPMENT, TEST = 'training', 'development', 'test'


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitFiles:
  """Languages of a data split, divided into those with and without files.

  Attributes:
    available: Languages whose files exist.
    missing: Languages without files, or with paths that do not exist.
  """

  available: tuple[str, ...] = ()
  missing: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskPlan:
  """Checkpoints, data files and errors of a planned suite task.

  Attributes:
    task: Name of the suite task.
    grid: Name of the suite task whose fine-tuned models are evaluated. None for
      a task without fine-tuning.
    models: Names of the checkpoints on which the task is evaluated.
    num_stored: Number of checkpoints in `models` for which an earlier call
      stored a result.
    splits: Mapping from the splits 'training', 'development' and 'test' to the
      languages with and without files.
    test_data: Languages or files of the test data that can be read. If a
      language or file has unlabeled examples, the number of its labeled
      examples is also included.
    failures: Files that cannot be read, and other errors of the task.
  """

  task: str
  grid: str | None
  models: tuple[str, ...]
  num_stored: int
  splits: Mapping[str, SplitFiles]
  test_data: gold_labels.TestData
  failures: tuple[eval_task.Failure, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridPlan:
  """Trials of a fine-tuning grid, and the numbers of planned and finished runs.

  Attributes:
    trials: Names of the grid's trials for each checkpoint.
    num_runs: Number of fine-tuning runs for all checkpoints.
    num_finished: Number of fine-tuning runs that are already finished.
  """

  trials: tuple[str, ...]
  num_runs: int
  num_finished: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuitePlan:
  """Plan of a suite, with its checkpoints, tasks, grids and printed tables.

  Attributes:
    suite: Name of the suite.
    models: Names of the checkpoints to evaluate.
    tasks: Plans of the tasks, in the order of the suite.
    grids: Plan of the fine-tuning grid of each suite task, by task name.
    tables: Titles of the tables that the suite prints.
  """

  suite: str
  models: tuple[str, ...]
  tasks: tuple[TaskPlan, ...]
  grids: Mapping[str, GridPlan]
  tables: tuple[str, ...]

  @property
  def failures(self) -> tuple[eval_task.Failure, ...]:
    """Failures of all tasks."""
    return tuple(failure for task in self.tasks for failure in task.failures)


def make_plan(
  runner: suite_runner.SuiteRunner, models: Sequence[suite_runner.Model]
) -> SuitePlan:
  """Creates the plan of a suite without training or writing files.

  All training, development and test files are read.

  Args:
    runner: Runner of the suite.
    models: Checkpoints to evaluate.

  Raises:
    RunDirectoryError: If the output directory contains results of another run
      or recipe.
  """
  for model in models:
    run = run_directory.run_id(paths.to_path(model.model_dir))
    suite_result_store.check_run(
      model.name, run, runner.suite.recipe, runner.output
    )
  planner = _Planner(runner)
  tasks = [
    planner.plan_task(task, task_models)
    for task, task_models in runner.selected_tasks(models)
  ]
  suite = runner.suite
  return SuitePlan(
    suite=suite.name,
    models=tuple(model.name for model in models),
    tasks=tuple(tasks),
    grids=planner.grids,
    tables=suite_export.table_titles(suite.name, suite.head_languages)
    if suite.table is None
    else table_export.table_titles(suite.table),
  )


class _Planner:
  """Planner of a suite's tasks, which plans each grid once.

  Attributes:
    grids: Plan of the fine-tuning grid of each suite task, by task name.
  """

  def __init__(self, runner: suite_runner.SuiteRunner):
    self._runner = runner
    self.grids: dict[str, GridPlan] = {}
    self._splits: dict[str, dict[str, SplitFiles]] = {}

  def plan_task(
    self, task: suite_config.SuiteTask, models: Sequence[suite_runner.Model]
  ) -> TaskPlan:
    """Returns the plan of a suite task for the given checkpoints."""
    failures = eval_task.Failures(task.name)
    splits: dict[str, SplitFiles] = {}
    if task.trials is not None:
      with failures.guard('fine-tuning'):
        splits |= self._plan_grid(task.trials, models)
    tests: list[eval_task.EvalTask] = []
    with failures.guard():
      tests = self._runner.load_tests(task, models[0])
      sources = [
        test.source  # type: ignore[attr-defined]
        for test in tests
        if test.labeled_parts()
      ]
      splits[TEST] = _find_files(sources)
    test_data = gold_labels.read_test_data(tests, failures)
    stored = (
      suite_result_store.has_result(task.name, model.name, self._runner.output)
      for model in models
    )
    return TaskPlan(
      task=task.name,
      grid=task.trials,
      models=tuple(model.name for model in models),
      num_stored=sum(stored),
      splits=splits,
      test_data=test_data,
      failures=failures.collected(),
    )

  def _plan_grid(
    self, name: str, models: Sequence[suite_runner.Model]
  ) -> dict[str, SplitFiles]:
    """Plans a grid, and returns which languages have files, by split."""
    if name in self._splits:
      return self._splits[name]
    task = self._runner.suite.task(name)
    trials: list[grid_trials.MadeTrial] = []
    num_runs = num_finished = 0
    for model in models:
      runner = grid_trials.TrialRunner(
        output=self._runner.directory(model) / name,
        configuration=self._runner.configuration(task, model),
        select=task.select,
      )
      trials = finetune_grid.make_trials(runner, self._runner.grid_axes(task))
      num_runs += len(trials)
      num_finished += sum(map(runner.is_finished, trials))
    self.grids[name] = GridPlan(
      trials=tuple(trial.trial.name for trial in trials),
      num_runs=num_runs,
      num_finished=num_finished,
    )
    trainers = [trial.trainer for trial in trials]
    self._splits[name] = {
      TRAINING: _find_files(
        dataset.source
        for trainer in trainers
        for dataset in trainer.datasets
        if isinstance(dataset, supervised_dataset.LabeledDatasetConfig)
      ),
      DEVELOPMENT: _find_files(
        dev_task.source
        for trainer in trainers
        for dev_task in getattr(trainer.evaluation, 'tasks', ())
        if dev_task.labeled_parts()
      ),
    }
    input_checks.check_inputs(trainers, ())
    return self._splits[name]


def _find_files(sources: Iterable[Any]) -> SplitFiles:
  """Divides the languages of sources into those with and without files."""
  available: list[str] = []
  missing: list[str] = []
  for source in sources:
    files = getattr(source, 'files', {})
    for part in source.languages():
      part_files = files.get(part, ())
      if isinstance(part_files, str):
        part_files = (part_files,)
      exists = all(paths.to_path(file).exists() for file in part_files)
      (available if exists else missing).append(part)
    missing += getattr(source, 'missing_languages', tuple)()
  return SplitFiles(
    available=tuple(dict.fromkeys(available)),
    missing=tuple(dict.fromkeys(missing)),
  )


def print_plan(plan: SuitePlan, console: Any) -> None:
  """Prints a suite's tasks, fine-tuning runs, files and tables.

  Args:
    plan: Plan of the suite.
    console: Rich console on which the plan is printed.
  """
  table = rich_tables.make_table(
    ('', 'fine-tuning'),
    ('runs', TRAINING, DEVELOPMENT, TEST, 'gold labels', 'results'),
    title=f'{plan.suite}: plan for {", ".join(plan.models)}',
    title_justify='left',
  )
  for task in plan.tasks:
    table.add_row(task.task, *_format_task(task, plan))
  rich_tables.print_table(table, console)

  def print_line(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

  print_line(
    'The columns of splits contain the number of languages with files. Gold '
    'labels: number of languages in which all test examples have gold labels.'
  )
  for name, grid in plan.grids.items():
    print_line(
      f'Fine-tuning runs of {name} for each checkpoint: '
      f'{name_suggestions.format_names(grid.trials)}'
    )
  for task in plan.tasks:
    for split, files in task.splits.items():
      if files.missing:
        print_line(
          f'Missing {split} files of {task.task}: '
          f'{name_suggestions.format_names(files.missing)}'
        )
  unlabeled = gold_labels.describe_unlabeled(
    {task.task: task.test_data for task in plan.tasks}
  )
  if unlabeled:
    print_line(unlabeled)
  num_runs = sum(grid.num_runs for grid in plan.grids.values())
  num_finished = sum(grid.num_finished for grid in plan.grids.values())
  print_line(
    f'Total: {num_runs:,} fine-tuning runs ({num_finished:,} finished), '
    f'{sum(len(task.models) for task in plan.tasks):,} task results '
    f'({sum(task.num_stored for task in plan.tasks):,} stored).'
  )
  print_line(f'Tables: {"; ".join(plan.tables)}')


def _format_task(task: TaskPlan, plan: SuitePlan) -> list[str]:
  """Returns a task's table cells, except for the cell with its name."""
  grid = plan.grids.get(task.grid or '')
  runs = '-'
  if task.grid is None:
    method = 'none'
  elif task.grid != task.task:
    method = f'models of {task.grid}'
  elif grid is None:
    method = 'failed'
  else:
    method = f'{len(grid.trials):,} per checkpoint'
    runs = f'{grid.num_runs:,}'
    if grid.num_finished:
      runs += f' ({grid.num_finished:,} finished)'
  num_parts = len(task.test_data.parts)
  labeled = num_parts - len(task.test_data.unlabeled)
  return [
    method,
    runs,
    *(
      _format_files(task.splits.get(split))
      for split in (TRAINING, DEVELOPMENT, TEST)
    ),
    f'{labeled} of {num_parts}' if num_parts else '-',
    f'{task.num_stored} of {len(task.models)}',
  ]


def _format_files(files: SplitFiles | None) -> str:
  """Formats the number of languages with files, such as '3 of 15'."""
  if files is None or not (files.available or files.missing):
    return '-'
  num_available = len(files.available)
  return f'{num_available} of {num_available + len(files.missing)}'
