"""Every task family that is known, by the names that it declares.

The families of `xlflax.evaluation.tasks` are imported when a name is first
looked up. A family in another module is known once that module is imported.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

from xlflax.evaluation import eval_task, tasks
from xlflax.evaluation.metrics.metric import Better, Metric
from xlflax.utils import errors


def task_names() -> tuple[str, ...]:
  """The names that `xlflax evaluate --tasks` accepts."""
  _import_tasks()
  return tuple(sorted(eval_task.known_tasks()))


def find_task_class(name: str) -> type[eval_task.EvalTask]:
  """The task class of a name.

  Raises:
    ConfigError: no family has this name.
  """
  if name not in task_names():
    raise errors.ConfigError(
      'There is no such evaluation task',
      got=name,
      expected='some of ' + ', '.join(task_names()),
      where='--tasks',
      fix='name the module of a task of your own with --task_module',
    )
  return eval_task.known_tasks()[name]


def text_options(name: str) -> Mapping[str, inspect.Parameter]:
  """Returns the options of text that a task reads: its source's parameters.

  Args:
    name: Name of the task; see `task_names`.

  Raises:
    ConfigError: If there is no such task.
  """
  create_source = find_task_class(name).source_factory(name)
  if create_source is None:
    return {}
  return inspect.signature(create_source).parameters


def task_arguments(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the arguments with which a task reads the text of some options.

  Args:
    name: Name of the task; see `task_names`.
    options: Options of the text, such as `corpus`. Those that the task does
      not read are ignored.

  Raises:
    ConfigError: If there is no such task, or if an option that it requires is
      missing.
  """
  task_class, parameters = find_task_class(name), text_options(name)
  for parameter in parameters.values():
    if parameter.default is parameter.empty and parameter.name not in options:
      value = 'NAME' if parameter.name == 'mixture' else 'DIR'
      raise errors.ConfigError(
        f'The evaluation task {name} requires text',
        expected=f'--{parameter.name}={value}',
      )
  name_argument = (
    {} if getattr(task_class, 'name', '') == name else {'name': name}
  )
  read = {key: options[key] for key in options if key in parameters}
  return name_argument | task_class.arguments(name, read)


def find_metric(name: str) -> Metric:
  """The metric of a name such as 'accuracy'.

  A name that no known family declares is that of a fraction, and higher is
  better: tables of scores may come from other programs.
  """
  _import_tasks()
  return eval_task.known_metrics().get(name, Metric(name))


def better_of(recorded: str) -> Better:
  """Which way is better of a metric that training or a grid recorded.

  Args:
    recorded: '<task>/<metric>/<part>', such as 'word_alignment/best_aer/mean'.

  Raises:
    ConfigError: no family declares the metric, or neither way is better.
  """
  _, _, suffix = recorded.partition('/')
  name = suffix.split('/')[0]
  _import_tasks()
  metric = eval_task.known_metrics().get(name)
  if metric is None or metric.better is Better.NEITHER:
    raise errors.ConfigError(
      'Nothing says whether more or less of a metric is better',
      got=recorded,
      expected='<task>/<metric>/<part>, with a metric that a task declares as '
      'better when higher or lower',
      fix='import the module of the task with --task_module, or declare the '
      'metric in its METRICS',
    )
  return metric.better


@functools.cache
def _import_tasks() -> None:
  """Imports the families of this package, which registers them."""
  for module in pkgutil.iter_modules(tasks.__path__):
    importlib.import_module(f'{tasks.__name__}.{module.name}')
