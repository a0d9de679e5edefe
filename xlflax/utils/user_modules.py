"""Imports the modules that a user names: their tasks, launchers and so on; and
packages that not every installation has."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from xlflax.utils import errors


def import_modules(modules: Sequence[str], *, where: str) -> None:
  """Imports modules; the working directory is searched too.

  Args:
    modules: importable names, such as 'my_tasks' for ./my_tasks.py.
    where: the flag or argument that names them, for the error.

  Raises:
    ConfigError: a module is not found. What a module itself fails to import
      raises its own error.
  """
  if modules and '' not in sys.path and os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
  for module in modules:
    try:
      importlib.import_module(module)
    except ModuleNotFoundError as error:
      if error.name is None or not f'{module}.'.startswith(f'{error.name}.'):
        raise  # The module exists; something that it imports does not.
      raise errors.ConfigError(
        'A module is not found',
        got=module,
        where=where,
        expected='an importable name, such as my_module for ./my_module.py',
      ) from error


def import_optional(name: str, needs: str, *, fix: str) -> Any:
  """Imports a module of an optional package.

  Args:
    name: of the module.
    needs: what needs which package.
    fix: how it is installed.

  Raises:
    ConfigError: it is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.ConfigError(
      f'{needs}, which is not installed', fix=fix
    ) from error
