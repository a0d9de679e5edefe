"""Detection of mistakes in the source code of user-defined classes.

These are fields that no code reads, requests and states of hooks that have no
effect, and metrics of hooks that do not exist.
"""

import ast
import contextlib
import dataclasses
import inspect
import logging
import pathlib
import sys
import textwrap
from collections.abc import Collection, Iterator

from xlflax.objectives.objective_base import Objective
from xlflax.training.hooks.hook_base import Hook, Request
from xlflax.training.optimization.optimizers import Optimizer
from xlflax.training.optimization.schedules import Schedule
from xlflax.utils import logs, name_suggestions, user_modules

# Classes whose fields are read only by their own code.
_BASE_CLASSES = (Objective, Optimizer, Schedule, Hook)
# A run sets this field of schedules, which may ignore it.
_SET_BY_RUNS = frozenset({'total_steps'})
# A class with one of these names may read its fields without their names.
_REFLECTION = frozenset({'__dict__', 'asdict', 'astuple', 'fields', 'vars'})


def warn_of_unread_fields(
  classes: Collection[type], modules: Collection[str]
) -> None:
  """Logs a warning for each field that has no effect.

  Args:
    classes: User-defined classes of the objects that a run uses. Objectives,
      optimizers, schedules and hooks are checked.
    modules: Names of the modules that may read the fields, including those that
      define the classes.
  """
  for cls in classes:
    if not issubclass(cls, _BASE_CLASSES):
      continue
    for name, location in find_unread_fields(cls, modules).items():
      logging.warning(
        'The code does not read the field %s.%s (%s), so its value has no '
        'effect. Use `self.%s` in a method, or remove the field.',
        cls.__name__,
        name,
        location,
        name,
        extra=logs.ONCE,
      )


def warn_of_lost_results(
  classes: Collection[type], modules: Collection[str]
) -> None:
  """Logs a warning for each request or state of a hook that has no effect.

  Args:
    classes: User-defined classes of the objects that a run uses. Only hooks are
      checked.
    modules: Names of the modules that define the classes.
  """
  class_names = {cls.__name__ for cls in classes if issubclass(cls, Hook)}
  for file, tree in _parse_modules(modules):
    for statement in tree.body:
      if isinstance(statement, ast.ClassDef) and statement.name in class_names:
        for line in find_lost_requests(statement):
          logging.warning(
            'The hook %s creates a `training.Request` in %s:%d, but does not '
            'return it, so it has no effect. Write `return training.Request('
            '...)`.',
            statement.name,
            file.name,
            line,
            extra=logs.ONCE,
          )
        for line in find_lost_states(statement):
          logging.warning(
            'The hook %s creates a state in %s:%d, but does not assign it to '
            '`run.state`, so it has no effect. Write `run.state = '
            'run.state.replace(...)`.',
            statement.name,
            file.name,
            line,
            extra=logs.ONCE,
          )


def warn_of_unknown_metrics(hook: Hook, names: Collection[str]) -> None:
  """Logs a warning if a user-defined hook reads only metrics that do not exist.

  Metrics that are read with `metrics.get(NAME)` are checked, because the result
  for an unknown name is None. A hook may read metrics of several objectives, so
  one existing metric suffices.

  Args:
    hook: Hook of the run.
    names: Names of the metrics in `output.metrics`.
  """
  cls = type(hook)
  if not user_modules.is_user_extension(cls):
    return
  try:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
  except (OSError, TypeError, SyntaxError):
    return
  read = {
    node.args[0].value
    for node in ast.walk(tree)
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Attribute)
    and node.func.attr == 'get'
    and getattr(node.func.value, 'attr', None) == 'metrics'
    and node.args
    and isinstance(node.args[0], ast.Constant)
    and isinstance(node.args[0].value, str)
  }
  if read and read.isdisjoint(names):
    logging.warning(
      'The hook %s reads the metrics %s, which no objective of the run '
      'computes. The metrics of a step are %s.',
      cls.__name__,
      ', '.join(sorted(read)),
      name_suggestions.format_names(sorted(names)),
      extra=logs.ONCE,
    )


def find_lost_requests(hook: ast.ClassDef) -> list[int]:
  """Returns the lines of requests that are created, but not used.

  Args:
    hook: Syntax tree of the class of a hook.
  """
  lines: list[int] = []
  for method in hook.body:
    if not isinstance(method, ast.FunctionDef):
      continue
    read = {
      node.id
      for node in ast.walk(method)
      if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for node in ast.walk(method):
      if isinstance(node, ast.Expr) and _is_request(node.value):
        lines.append(node.lineno)
      elif isinstance(node, ast.Assign) and _is_request(node.value):
        names = [x.id for x in node.targets if isinstance(x, ast.Name)]
        if len(names) == len(node.targets) and not read.intersection(names):
          lines.append(node.lineno)
  return lines


def find_lost_states(hook: ast.ClassDef) -> list[int]:
  """Returns the lines that replace parts of `run.state` without an effect.

  Args:
    hook: Syntax tree of the class of a hook.
  """
  return [
    node.lineno
    for node in ast.walk(hook)
    if isinstance(node, ast.Expr)
    and isinstance(node.value, ast.Call)
    and isinstance(node.value.func, ast.Attribute)
    and node.value.func.attr == 'replace'
    and getattr(node.value.func.value, 'attr', None) == 'state'
  ]


def _is_request(node: ast.expr) -> bool:
  """Returns whether an expression creates a `training.Request`."""
  if not isinstance(node, ast.Call):
    return False
  function = node.func
  name = getattr(function, 'attr', None) or getattr(function, 'id', None)
  return name == Request.__name__


def find_unread_fields(cls: type, modules: Collection[str]) -> dict[str, str]:
  """Returns the fields of a class that the code of modules does not read.

  A field is read if its name occurs as an attribute or as text. Occurrences in
  other classes that declare a field with the same name are not counted. Fields
  that a class of xlflax declares are not returned, because xlflax reads them.

  Args:
    cls: User-defined dataclass.
    modules: Names of the modules whose source code is searched.

  Returns:
    Map from the name of each field to its file and line, such as 'own.py:12'.
    Empty if the source code is not available.
  """
  if not dataclasses.is_dataclass(cls):
    return {}
  inherited = {
    name
    for base in cls.__mro__
    if not user_modules.is_user_extension(base)
    for name in inspect.get_annotations(base)
  }
  names = {f.name for f in dataclasses.fields(cls) if f.init} - inherited
  class_names = {base.__name__ for base in cls.__mro__}
  locations: dict[str, str] = {}
  read = set(_SET_BY_RUNS)
  for file, tree in _parse_modules(modules):
    for statement in tree.body:
      declared = _declared_fields(statement)
      is_own = getattr(statement, 'name', None) in class_names
      if is_own:
        locations |= {
          name: f'{file.name}:{line}' for name, line in declared.items()
        }
      read |= _find_names(statement) - (set() if is_own else declared.keys())
  if read & _REFLECTION:
    return {}
  return {
    name: line for name, line in locations.items() if name in names - read
  }


def _parse_modules(
  modules: Collection[str],
) -> Iterator[tuple[pathlib.Path, ast.Module]]:
  """Yields the file and the syntax tree of each module that has a file."""
  for name in sorted(modules):
    file = pathlib.Path(getattr(sys.modules.get(name), '__file__', None) or '')
    with contextlib.suppress(OSError, SyntaxError, ValueError):
      yield file, ast.parse(file.read_bytes())


def _declared_fields(statement: ast.stmt) -> dict[str, int]:
  """Returns the line of each annotated name in the body of a class."""
  if not isinstance(statement, ast.ClassDef):
    return {}
  return {
    node.target.id: node.lineno
    for node in statement.body
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
  }


def _find_names(statement: ast.stmt) -> set[str]:
  """Returns the attributes, functions and texts in a statement."""
  names: set[str] = set()
  for node in ast.walk(statement):
    if isinstance(node, ast.Attribute):
      names.add(node.attr)
    elif isinstance(node, ast.Name) and node.id in _REFLECTION:
      names.add(node.id)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      names.add(node.value)
  return names
