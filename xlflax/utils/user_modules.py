"""Functions that import user-defined modules and optional packages.

User modules define tasks, launchers and similar extensions.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from xlflax.utils import errors


def import_modules(modules: Sequence[str], *, where: str) -> None:
  """Imports modules by name. The working directory is also searched.

  Args:
    modules: Importable names, such as 'my_tasks' for ./my_tasks.py.
    where: The flag or argument that contains the names, for messages.

  Raises:
    ConfigError: If a module is not found.
    Exception: If a module raises that exception while it is imported.
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
        'The module was not found',
        got=module,
        where=where,
        expected='an importable name, such as my_module for ./my_module.py',
      ) from error


def import_optional(name: str, needs: str, *, fix: str) -> Any:
  """Imports a module that belongs to an optional package.

  Args:
    name: The name of the module.
    needs: The start of the error message, such as 'Plots require matplotlib'.
    fix: The instruction that installs the package.

  Raises:
    ConfigError: If the package is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.ConfigError(
      f'{needs}, which is not installed', fix=fix
    ) from error
