"""Errors about tasks, usable by modules that do not import JAX."""

import shlex
from collections.abc import Iterable

from xlflax.utils import errors

# Options of `xlflax tasks show` that register the tasks of a family.
_OPTION_BY_FAMILY = {
  'corpus': '--corpus=DIR',
  'xtreme': '--xtreme=DIR',
  'ud': '--treebanks=DIR',
}
# Modules of `--task_module`, as the user passed them, by registered task.
_module_by_task: dict[str, str] = {}


def record_task_module(module: str, tasks: Iterable[str]) -> None:
  """Records the module that registers tasks, for the commands in messages.

  Args:
    module: Name or path of the module, as passed with `--task_module`.
    tasks: Names of the tasks and mixtures that the module registers.
  """
  _module_by_task.update(dict.fromkeys(tasks, module))


def show_command(task: str) -> str:
  """Returns the command that prints the examples of a task.

  Args:
    task: Name of a registered task. Options that register the task are added to
      the command.
  """
  option = _OPTION_BY_FAMILY.get(task.partition('.')[0])
  if task in _module_by_task:
    option = f'--task_module={shlex.quote(_module_by_task[task])}'
  return ' '.join(filter(None, ('xlflax tasks show', task, option)))


def suggest_show(task: str) -> str:
  """Returns a hint to print a task's examples after each preprocessor."""
  return (
    f'Run `{show_command(task)}` to print examples after each preprocessor.'
  )


def no_text_error(task: str, split: str) -> errors.CorpusError:
  """Returns the error for a task that provides no examples with text."""
  return errors.CorpusError(
    f'The task {task} provides no examples with text in the split {split!r}',
    where=f'task {task}',
    fix='Check whether its files contain text, and whether its preprocessors '
    f'drop all examples. {suggest_show(task)}',
  )
