"""A suite: tasks that are fine-tuned for and evaluated together."""

import dataclasses
from collections.abc import Mapping, Sequence

from xlflax.utils import errors, name_suggestions, validation

OURS = 'ours'  # the recipe without a file of its own


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteTask:
  """One task of a suite.

  Attributes:
    name: of the task; its gin file gives its test tasks names of their own.
    family: the group of tasks that it belongs to, for averages.
    gin_file: binds `evaluate.tasks`, the test sets, and for a task with
      fine-tuning also all that `xlflax finetune` needs but INIT_FROM. It
      reads data from the macro DATA.
    bindings: 'NAME=VALUE' for that file.
    trials: the task whose fine-tuned models are evaluated, often this one;
      None for a task without fine-tuning.
    grid: axes of its own fine-tuning, such as 'LEARNING_RATE=1e-5,2e-5'.
    select: metric of the dev set that selects checkpoint and setting.
    metrics: those whose mean is the task's score, as in 'f1/fr'; () for those
      that the test tasks declare (`EvalTask.score_metrics`).
    recipe: further bindings, of a published recipe -> where each is published.
    departures: what the recipe asks for besides, and is not done.
  """

  name: str
  family: str
  gin_file: str
  bindings: tuple[str, ...] = ()
  trials: str | None = None
  grid: tuple[str, ...] = ()
  select: str | None = None
  metrics: tuple[str, ...] = ()
  recipe: Mapping[str, str] = dataclasses.field(default_factory=dict)
  departures: tuple[str, ...] = ()

  def __post_init__(self):
    for name in ('bindings', 'grid', 'metrics'):
      value = getattr(self, name)
      object.__setattr__(
        self, name, (value,) if isinstance(value, str) else tuple(value)
      )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
  """Tasks with a name.

  Attributes:
    name: of the suite.
    tasks: in the order of its table.
    source_language: the one that models are fine-tuned on.
    recipe: whose settings the tasks have (`SuiteTask.recipe`).
  """

  name: str
  tasks: tuple[SuiteTask, ...]
  source_language: str = 'en'
  recipe: str = OURS

  def __post_init__(self):
    object.__setattr__(self, 'tasks', tuple(self.tasks))
    names = [task.name for task in self.tasks]
    if not names or len(set(names)) < len(names):
      raise errors.ConfigError(
        'The tasks of a suite are no different ones',
        got=', '.join(names) or 'none',
        where=f'suite {self.name!r}',
      )
    for task in self.tasks:
      if task.trials is not None and task.trials not in names:
        raise errors.ConfigError(
          'A task of a suite uses the models of one that the suite lacks',
          got=task.trials,
          expected='one of ' + ', '.join(names),
          where=f'suite {self.name!r}, task {task.name}',
        )

  def recipe_notes(self, task: SuiteTask) -> tuple[str, ...]:
    """What a result says about the recipe that it follows."""
    settings = '; '.join(task.recipe) or 'as the suite'
    return (
      f'recipe {self.recipe}: {settings}',
      *(f'recipe {self.recipe}, but: {one}' for one in task.departures),
    )

  @validation.validate_call
  def task(self, name: str) -> SuiteTask:
    """The task of this name.

    Raises:
      ConfigError: the suite has none.
    """
    return self.chosen([name])[0]

  @validation.validate_call
  def chosen(self, names: Sequence[str] | None) -> tuple[SuiteTask, ...]:
    """Some tasks, in the suite's order; all for None.

    Raises:
      ConfigError: the suite has no task of a name.
    """
    known = [task.name for task in self.tasks]
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
      raise errors.ConfigError(
        'The suite has no such task',
        got=', '.join(unknown),
        expected='some of ' + ', '.join(known),
        where=f'suite {self.name!r}',
        fix=name_suggestions.did_you_mean(unknown[0], known)
        or 'name some of its tasks (--tasks)',
      )
    return tuple(
      task for task in self.tasks if names is None or task.name in names
    )
