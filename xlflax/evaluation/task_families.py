"""Registry of evaluation tasks by name.

Tasks in `xlflax.evaluation.tasks` are imported when a name is first looked up.
A task in a different module is registered when the module is imported.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation import eval_task, tasks
from xlflax.evaluation.metrics.metric import Better, Metric
from xlflax.utils import errors, name_suggestions, user_modules

# Gin files that evaluate tasks on files of labeled examples.
GIN_FILES = {
  'bitext_mining': 'evaluate/mining.gin',
  'classification': 'evaluate/classification.gin',
  'clustering': 'evaluate/clustering.gin',
  'likelihood_choice': 'evaluate/likelihood_choice.gin',
  'multiple_choice': 'evaluate/multiple_choice.gin',
  'pair_classification': 'evaluate/pair_classification.gin',
  'parsing': 'evaluate/parsing.gin',
  'probe': 'evaluate/probe.gin',
  'question_answering': 'evaluate/question_answering.gin',
  'regression': 'evaluate/regression.gin',
  'semantic_similarity': 'evaluate/semantic_similarity.gin',
  'tagging': 'evaluate/tagging.gin',
  'word_alignment': 'evaluate/word_alignment.gin',
}
# Values of TEST_FILES for the tasks that read several files per language pair.
_TEST_FILES = {
  'bitext_mining': "{'fr-en': ('FILE.fr', 'FILE.en', 'FILE.gold')}",
  'word_alignment': "{'fr-en': ('FILE', 'FILE.gold')}",
}


def task_names() -> tuple[str, ...]:
  """Returns the names that `xlflax evaluate --tasks` accepts."""
  _import_tasks()
  return tuple(sorted(eval_task.known_tasks()))


def find_task_class(name: str) -> type[eval_task.EvalTask]:
  """Returns the evaluation task class registered under a name.

  Raises:
    ConfigError: If no task is registered under the name.
  """
  if name not in task_names():
    raise errors.ConfigError(
      'The flag --tasks must contain names of registered evaluation tasks',
      got=name,
      expected='one of ' + ', '.join(task_names()),
      fix=name_suggestions.suggestion_or_hint(
        name, task_names(), _suggest_registration(name)
      ),
    )
  return eval_task.known_tasks()[name]


def _suggest_registration(name: str) -> str:
  """Returns the instruction that registers a user-defined task.

  Args:
    name: Requested name, which is not registered.
  """
  classes = _find_unnamed_tasks(eval_task.EvalTask)
  if not classes:
    return (
      'Pass --task_module=MODULE, or a --gin_file that imports the module of '
      'your own task.'
    )
  cls = next(
    (c for c in classes if c.__name__.lower() == name.replace('_', '').lower()),
    classes[0],
  )
  return (
    f'The class {cls.__module__}.{cls.__qualname__} is not registered, because '
    'it does not define a default value for the field `name`. Add `name: str = '
    f'{name!r}` to the class.'
  )


def _find_unnamed_tasks(
  base: type[eval_task.EvalTask],
) -> list[type[eval_task.EvalTask]]:
  """Returns the user-defined tasks without a name on the command line.

  Private classes, and classes with subclasses, are not expected to have a name.

  Args:
    base: Class whose subclasses are searched.
  """
  registered = set(map(_import_path, eval_task.known_tasks().values()))
  classes = []
  for cls in base.__subclasses__():
    if cls.__subclasses__():
      classes += _find_unnamed_tasks(cls)
    elif (
      user_modules.is_user_extension(cls)
      and not cls.__name__.startswith('_')
      and _import_path(cls) not in registered
    ):
      classes.append(cls)
  return classes


def _import_path(cls: type) -> tuple[str, str]:
  """Returns the module and the name of a class."""
  return cls.__module__, cls.__qualname__


def text_options(name: str) -> Mapping[str, inspect.Parameter]:
  """Returns the options that specify the evaluation text of a task.

  Args:
    name: Command-line name of the task; see `task_names`.

  Raises:
    ConfigError: If no task is registered under the name.
  """
  create_source = find_task_class(name).source_factory(name)
  if create_source is None:
    return {}
  return inspect.signature(create_source).parameters


def check_text_options(name: str, options: Sequence[str]) -> None:
  """Checks that the command has an option for each parameter of a source.

  Args:
    name: Command-line name of the task; see `task_names`.
    options: Names of the command's options that specify text.

  Raises:
    ConfigError: If no task is registered under the name, or if the function
      that creates the task's source has a parameter that is not an option.
  """
  unknown = [option for option in text_options(name) if option not in options]
  if not unknown:
    return
  create_source = find_task_class(name).source_factory(name)
  function = getattr(create_source, '__qualname__', str(create_source))
  is_python = hasattr(create_source, '__code__')
  raise errors.ConfigError(
    f'The parameters of `{function}` must be options of `xlflax evaluate` that '
    'specify text',
    got=', '.join(unknown),
    expected=name_suggestions.format_choices(options),
    where=user_modules.find_definition(create_source) if is_python else None,
    fix='Rename or remove the parameters. Set other fields of the source with '
    'gin (docs/extending.md#options-of-your-own-source).',
  )


def task_arguments(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the constructor arguments of a task for the given text options.

  Args:
    name: Command-line name of the task; see `task_names`.
    options: Text options, such as `corpus`. Options that the task does
      not read are ignored.

  Raises:
    ConfigError: If no task is registered under the name, or if an option that
      it requires is missing.
  """
  task_class, parameters = find_task_class(name), text_options(name)
  for parameter in parameters.values():
    if parameter.default is parameter.empty and parameter.name not in options:
      raise _missing_source_error(name, parameter.name)
  name_argument = (
    {} if getattr(task_class, 'name', '') == name else {'name': name}
  )
  task_options = {key: options[key] for key in options if key in parameters}
  return name_argument | task_class.arguments(name, task_options)


def _missing_source_error(name: str, option: str) -> errors.ConfigError:
  """Returns the error for a task without the option that it requires.

  Args:
    name: Command-line name of the task.
    option: Name of the required option, such as 'mixture'.
  """
  if option != 'mixture':
    return errors.ConfigError(
      f'The evaluation task {name!r} requires a source of text',
      fix=f'Pass --{option}=DIR.',
    )
  hint = 'For a SeqIO mixture of labeled examples, pass --mixture=NAME.'
  if name in GIN_FILES:
    files = _TEST_FILES.get(name, "{'fr': 'FILE'}")
    hint = (
      f'For files, replace --tasks with --gin_file={GIN_FILES[name]} '
      f'--gin.TEST_FILES="{files}". {hint}'
    )
  return errors.ConfigError(
    f'The evaluation task {name!r} requires a source of labeled examples',
    fix=hint,
  )


def find_metric(name: str) -> Metric:
  """Returns the declaration of a metric, such as 'accuracy'.

  For a metric that no registered task declares, the direction and the range are
  unknown.
  """
  _import_tasks()
  return eval_task.known_metrics().get(name, Metric(name, Better.NEITHER))


def better_of(recorded: str) -> Better:
  """Returns the direction in which a recorded metric improves.

  Args:
    recorded: Metric name in the format '<task>/<metric>/<part>', such as
      'word_alignment/best_aer/mean'.

  Raises:
    ConfigError: If no task declares the metric, or if neither higher nor lower
      values are better.
  """
  task, _, suffix = recorded.partition('/')
  name = suffix.split('/')[0]
  _import_tasks()
  metric = eval_task.known_metrics().get(name)
  if metric is None or metric.better is Better.NEITHER:
    raise _unknown_direction_error(recorded, task, name)
  return metric.better


def _unknown_direction_error(
  recorded: str, task: str, metric: str
) -> errors.ConfigError:
  """Returns the error for a metric that cannot select a checkpoint.

  Args:
    recorded: Metric name as requested, such as 'word_alignment/best_aer/mean'.
    task: Task in the name, such as 'word_alignment'.
    metric: Metric in the name, such as 'best_aer', or '' if there is none.
  """
  task_class = eval_task.known_tasks().get(task)
  if not metric:
    return errors.ConfigError(
      'The metric must have a name of the form <task>/<metric>/<part>',
      got=recorded,
    )
  if metric in eval_task.known_metrics():
    return errors.ConfigError(
      'The metric cannot select a checkpoint, because its declaration does not '
      'specify whether higher or lower values are better',
      got=recorded,
      where=task_class and f'{task_class.__name__}.METRICS',
      fix='Select the checkpoint by a different metric. If the metric is your '
      'own, declare it with Better.HIGHER or Better.LOWER in METRICS.',
    )
  if task_class is None:
    return errors.ConfigError(
      f'No evaluation task with the name {task!r} is registered. The task '
      'declares whether higher or lower values of the metric are better',
      got=recorded,
      fix='Pass --task_module=MODULE to import the module that defines the '
      'task.',
    )
  return errors.ConfigError(
    f'The evaluation task {task!r} does not declare the metric {metric!r}. The '
    'declaration specifies whether higher or lower values are better',
    got=recorded,
    expected=name_suggestions.format_choices(
      [declared.name for declared in task_class.METRICS]
    ),
    where=f'{task_class.__name__}.METRICS',
    fix='Correct the name of the metric, or declare it in METRICS.',
  )


@functools.cache
def _import_tasks() -> None:
  """Imports all evaluation tasks of the package, which registers them."""
  for module in pkgutil.iter_modules(tasks.__path__):
    importlib.import_module(f'{tasks.__name__}.{module.name}')
