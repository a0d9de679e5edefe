"""Configuration of a suite, a list of tasks that are evaluated together."""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

from xlflax.suites import paper_table
from xlflax.utils import errors, name_suggestions, validation

_LOG = logging.getLogger(__name__)

DEFAULT_RECIPE = (
  'xlflax'  # The default recipe, which has no gin file of its own.
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteTask:
  """Definition of a suite task: its gin file, fine-tuning grid and score.

  Attributes:
    name: Name of the suite task. Its gin file defines the evaluation tasks that
      score the test sets.
    family: Group of tasks to which the task belongs when scores are averaged.
    gin_file: Gin file that binds `evaluate.tasks`, the evaluation tasks for the
      test sets. For a task with fine-tuning, the file also binds everything
      that `xlflax finetune` needs except INIT_FROM. The macro DATA specifies
      the directory of the data.
    bindings: Bindings 'NAME=VALUE' to apply to the gin file.
    trials: Name of the suite task whose fine-tuned models are evaluated. It can
      be the task's own name. None for a task without fine-tuning.
    grid: Axes of the task's fine-tuning grid, such as
      'LEARNING_RATE=1e-5,2e-5'. Only for tasks that are fine-tuned (`trials`
      is their own name).
    select: Dev-set metric that selects the best checkpoint of a trial and the
      best setting of the grid.
    test_top_k: Number of hyperparameter settings to evaluate on the test sets,
      ranked by `select`. The task's score is the mean over these settings. The
      ECS paper reports the mean of the two best settings.
    metrics: Metrics whose mean is the task's score, such as 'f1' for 'f1/fr'.
      If empty, the metrics that the evaluation tasks declare in
      `EvalTask.score_metrics` are used.
    recipe: Mapping from bindings of a published recipe, such as 'EPOCHS = 5',
      to the source of each binding. The recipe's bindings are applied after
      `bindings`.
    deviations: Descriptions of recipe settings that are not implemented.
  """

  name: str
  family: str
  gin_file: str
  bindings: tuple[str, ...] = ()
  trials: str | None = None
  grid: tuple[str, ...] = ()
  select: str | None = None
  test_top_k: validation.PositiveInt = 1
  metrics: tuple[str, ...] = ()
  recipe: Mapping[str, str] = dataclasses.field(default_factory=dict)
  deviations: tuple[str, ...] = ()

  def __post_init__(self):
    for name in ('bindings', 'grid', 'metrics'):
      value = getattr(self, name)
      object.__setattr__(
        self, name, (value,) if isinstance(value, str) else tuple(value)
      )
    if self.grid and self.trials != self.name:
      raise errors.ConfigError(
        f'The task {self.name!r} is not fine-tuned, so its `grid` would have '
        'no effect',
        got=', '.join(self.grid),
        where=errors.field_location(self, 'grid'),
        fix='Bind the grid in the scopes of the tasks that are fine-tuned, '
        'such as xnli/suite_config.SuiteTask.grid.',
      )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
  """Evaluation suite, a named list of tasks that are evaluated together.

  Attributes:
    name: Name of the suite.
    tasks: Tasks in the order of the suite's result table.
    source_language: Language of the fine-tuning data.
    recipe: Name of the fine-tuning recipe that the tasks follow
      (`SuiteTask.recipe`).
    table: Table of a paper that the suite reproduces. Each run is then
      evaluated only on the tasks that the table contains for the run. If None,
      each run is evaluated on all tasks.
    head_languages: Codes of the languages with a large amount of training text.
      If not empty, the report contains the averages over these head languages
      and over the other languages, the tail languages.
  """

  name: str
  tasks: tuple[SuiteTask, ...]
  source_language: str = 'en'
  recipe: str = DEFAULT_RECIPE
  table: paper_table.PaperTable | None = None
  head_languages: tuple[str, ...] = ()

  def __post_init__(self):
    object.__setattr__(self, 'tasks', tuple(self.tasks))
    names = [task.name for task in self.tasks]
    if not names or len(set(names)) < len(names):
      raise errors.ConfigError(
        f'The suite {self.name!r} must contain at least one task, and its '
        'tasks must have different names',
        got=', '.join(names) or 'no tasks',
      )
    for task in self.tasks:
      if task.trials is not None and task.trials not in names:
        raise errors.ConfigError(
          f'The field `trials` of the task {task.name!r} must be the name of a '
          f'task in the suite {self.name!r}',
          got=task.trials,
          expected='one of ' + ', '.join(names),
        )
    if self.table is not None:
      self.table.check(names)

  def recipe_notes(self, task: SuiteTask) -> tuple[str, ...]:
    """Returns notes on a task's fine-tuning recipe, to add to its results."""
    settings = '; '.join(task.recipe) or 'settings of the suite'
    return (
      f'recipe {self.recipe}: {settings}',
      *(
        f'recipe {self.recipe}, not implemented: {departure}'
        for departure in task.deviations
      ),
    )

  @validation.validate_call
  def task(self, name: str) -> SuiteTask:
    """Returns the suite's task with the given name.

    Raises:
      ConfigError: If the suite does not have a task with this name.
    """
    return self.select_tasks([name])[0]

  @validation.validate_call
  def select_tasks(self, names: Sequence[str] | None) -> tuple[SuiteTask, ...]:
    """Returns the tasks with the given names, in the suite's order.

    Args:
      names: Task names. If None, all tasks are returned.

    Raises:
      ConfigError: If the suite does not have a task with one of the names.
    """
    available_names = [task.name for task in self.tasks]
    unknown_names = sorted(set(names or ()) - set(available_names))
    if unknown_names:
      raise errors.ConfigError(
        f'The suite {self.name!r} does not contain the requested tasks',
        got=', '.join(unknown_names),
        expected='some of ' + ', '.join(available_names),
        fix=name_suggestions.did_you_mean(unknown_names[0], available_names)
        or 'Pass names of its tasks with --tasks.',
      )
    return tuple(
      task for task in self.tasks if names is None or task.name in names
    )

  def run_tasks(
    self, run: str, names: Sequence[str] | None
  ) -> tuple[SuiteTask, ...]:
    """Returns the tasks on which a run is evaluated, in the suite's order.

    Args:
      run: Name of the run.
      names: Task names to select from. If None, all tasks are selected.

    Raises:
      ConfigError: If the suite does not have a task with one of the names.
    """
    tasks = self.select_tasks(names)
    if self.table is None:
      return tasks
    run_tasks = self.table.tasks_by_run.get(run, frozenset())
    return tuple(task for task in tasks if task.name in run_tasks)

  def find_runs(
    self, model_dirs: Sequence[str], names: Sequence[str] | None
  ) -> list[str]:
    """Returns the directories of the runs to evaluate.

    If the suite has a table, each run is evaluated only on the tasks of its
    row. Runs without a selected task are omitted with a warning.

    Args:
      model_dirs: Directories of runs. If the suite has a table, they may also
        be directories that contain runs.
      names: Names of the selected tasks. If None, all tasks are selected.

    Raises:
      ConfigError: If the suite does not have a task with one of the names, or
        if there is no run to evaluate.
    """
    self.select_tasks(names)
    if self.table is None:
      return list(model_dirs)
    directories = self.table.find_runs(model_dirs)
    omitted = {
      directory: self.run_tasks(pathlib.Path(directory).name, None)
      for directory in directories
      if not self.run_tasks(pathlib.Path(directory).name, names)
    }
    if len(omitted) == len(directories):
      table_tasks = dict.fromkeys(
        task.name for tasks in omitted.values() for task in tasks
      )
      raise errors.ConfigError(
        f'The suite {self.name!r} does not evaluate any of the runs on the '
        'selected tasks',
        got=', '.join(names or ()),
        expected='some of ' + ', '.join(table_tasks),
        fix='Pass one or more of these tasks with --tasks.',
      )
    for directory, tasks in omitted.items():
      _LOG.warning(
        'Skipping %s, because the suite does not evaluate it on the selected '
        'tasks. The suite evaluates it on %s.',
        directory,
        ', '.join(task.name for task in tasks),
      )
    return [path for path in directories if path not in omitted]
