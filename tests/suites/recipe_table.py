"""Generator of docs/suite_recipes.md, which compares recipes with the defaults.

`make goldens` writes the page, and `tests/suites/recipes_test.py` compares it.
"""

import dataclasses
import enum
import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

from xlflax.config import gin_config
from xlflax.suites import suite_config
from xlflax.utils import errors

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'suite_recipes.md'
_RECIPES = {
  'xtreme': ('xtreme', 'xtreme_r'),
  'xtreme-r': ('xtreme_r',),
  'glue': ('glue',),
}
_BASED = {'xtreme-r': 'xtreme'}  # A recipe and the recipe that it extends.
_HEADER = """# Suite recipes

A recipe is a set of fine-tuning settings for the tasks of a suite. For example, `xlflax evaluate --suite=xtreme --recipe=xtreme` runs the suite with the settings in the benchmark's
published scripts, so that the scores are comparable with published scores. Without `--recipe`, or with `--recipe=default`, the suite uses the default settings of xlflax. To use your own
settings, pass `--recipe=FILE` with a gin file that sets the recipe's name (`Suite.recipe`) and its settings (`SuiteTask.recipe`). You can start from a copy of `gin_configs/suites/recipes/glue.gin`.

The result of each task contains a note with the recipe's settings. Results that were obtained with different recipes cannot be written to the same `--output` directory.

Each of the following tables compares a recipe with the xlflax defaults. "The same" means that the recipe and the defaults have the same value. If `select` is None, the suite uses the last checkpoint instead of selecting a checkpoint on a development set. The settings in
which xlflax deviates from a recipe are listed below the recipe's table and in a note in each result.
"""


def build_page() -> str:
  """Generates the page from the gin files."""
  parts = [_HEADER]
  for recipe, suites in _RECIPES.items():
    built_suites = [build_suite(name, recipe) for name in suites]
    tasks = {task.name: task for item in built_suites for task in item.tasks}
    base = _BASED.get(recipe, '')
    based = (
      ' Its table lists only the tasks whose settings differ from those in the '
      f'recipe `{base}`.'
      if base
      else ''
    )
    names = ' and '.join(f'`{name}`' for name in suites)
    noun = 'suites' if len(suites) > 1 else 'suite'
    parts.append(
      f'\n## {recipe}\n\nThe recipe `{recipe}` is for the {noun} {names}.'
      f'{based}\n'
    )
    for name in suites if base else ():
      for task in build_suite(name, base).tasks:
        if tasks[task.name] == task:
          del tasks[task.name]
    parts.append(
      '\n| task | setting | recipe | xlflax default | source of the recipe |'
      '\n| --- | --- | --- | --- | --- |\n'
    )
    parts += ['| ' + ' | '.join(row) + ' |\n' for row in _rows(tasks, suites)]
    deviations = [
      f'- {name}: {item}.\n'
      for name, task in tasks.items()
      for item in task.deviations
    ]
    if deviations:
      parts += ['\nDeviations from the recipe:\n\n', *deviations]
  return ''.join(parts)


def build_suite(name: str, recipe: str) -> suite_config.Suite:
  """Returns a suite with the settings of a recipe."""
  files = [f'suites/{name}.gin', f'suites/recipes/{recipe}.gin']
  return gin_config.load_gin_files(files).build(suite_config.Suite)


def load_configuration(task: suite_config.SuiteTask, *bindings: str):
  """Loads the gin file of a task with additional bindings."""
  macros = {'DATA': 'folder'}
  if task.trials:
    macros |= {'MODEL_DIR': 'run', 'INIT_FROM': 'runs/a'}
  return gin_config.load_gin_files(
    [task.gin_file], (*task.bindings, *bindings), macros=macros
  )


def read_setting(config: gin_config.Configuration, name: str) -> Any:
  """Returns the value of a setting, or its default if no file binds it."""
  if '.' not in name:
    try:
      return config.macro(name)
    except errors.CorpusError:  # The macro requires data that does not exist.
      return 'on the dev set'
  try:
    return config.parameter(name)
  except errors.ConfigError:
    module, cls, field = name.split('.')
    task_module = importlib.import_module(f'xlflax.evaluation.tasks.{module}')
    (dataclass_field,) = (
      f
      for f in dataclasses.fields(getattr(task_module, cls))
      if f.name == field
    )
    return dataclass_field.default


def _rows(tasks, suites) -> Iterator[list[str]]:
  plain = {
    task.name: task
    for name in suites
    for task in gin_config.load_gin_files([f'suites/{name}.gin'])
    .build(suite_config.Suite)
    .tasks
  }
  for task in tasks.values():
    ours, theirs = (
      load_configuration(task),
      load_configuration(task, *task.recipe),
    )
    for binding, source in task.recipe.items():
      name = binding.partition('=')[0].strip()
      cells = [
        _format_value(read_setting(config, name)) for config in (theirs, ours)
      ]
      if cells[0] == cells[1]:
        cells[1] = 'the same'
      yield [task.name, f'`{name}`', *cells, source]
    if plain[task.name].select != task.select:
      cells = [str(task.select), str(plain[task.name].select)]
      yield [task.name, '`select`', *cells, 'the last checkpoint is used']


def _format_value(setting: Any) -> str:
  if isinstance(setting, enum.Enum):
    return str(setting.value)
  if dataclasses.is_dataclass(setting):
    return type(setting).__name__
  return str(setting)
