"""Registry of the launchers that `xlflax launch` can use.

A launcher is a job class (a subclass of `xlflax.launch.job_base.Job`) that a
module registers with a name and a help text. The modules in this package are
imported automatically. Pass other modules with `--launcher_module`.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Sequence

from xlflax import launch
from xlflax.launch import job_base
from xlflax.utils import errors, name_suggestions, user_modules, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher:
  """A method of starting a job's processes.

  Attributes:
    name: Name of the launcher, the word after `xlflax launch` on the command
      line.
    help: One-line description for `--help`.
    example: Example command lines with comments, which `--help` prints.
    job: Class of the jobs that the launcher starts.
  """

  name: str
  help: str
  example: str
  job: type[job_base.Job]


_launchers: dict[str, Launcher] = {}


def register(
  name: str, *, help: str, example: str
) -> Callable[[type[job_base.Job]], type[job_base.Job]]:
  """Returns a decorator that registers a job class as a launcher.

  Args:
    name: Name of the launcher, the word after `xlflax launch` on the command
      line.
    help: One-line description for `--help`.
    example: Example command lines with comments, which `--help` prints.
  """

  def decorate(job: type[job_base.Job]) -> type[job_base.Job]:
    registered = _launchers.get(name)
    if registered is not None and registered.job.__module__ != job.__module__:
      raise errors.ConfigError(
        f'The modules {registered.job.__module__} and {job.__module__} both '
        f'register a launcher with the name {name!r}',
        fix='Rename one of the launchers.',
      )
    _launchers[name] = Launcher(name=name, help=help, example=example, job=job)
    return validation.validate_fields(job)

  return decorate


def load_launchers(modules: Sequence[str] = ()) -> dict[str, Launcher]:
  """Returns the launchers by name, in alphabetical order.

  Args:
    modules: Names or paths of modules that register additional launchers.

  Raises:
    ConfigError: If a module cannot be found.
  """
  for module_info in pkgutil.iter_modules(launch.__path__):
    importlib.import_module(f'{launch.__name__}.{module_info.name}')
  user_modules.import_modules(modules, where='--launcher_module')
  return dict(sorted(_launchers.items()))


def find_launcher(name: str, modules: Sequence[str] = ()) -> Launcher:
  """Returns the launcher with the given name.

  Args:
    name: Name of the launcher.
    modules: Names or paths of modules that register additional launchers.

  Raises:
    ConfigError: If no launcher with this name is registered.
  """
  launchers = load_launchers(modules)
  if name not in launchers:
    raise errors.ConfigError(
      'The launcher does not exist',
      got=name,
      expected='one of ' + ', '.join(launchers),
      fix=name_suggestions.did_you_mean(name, launchers)
      or 'Pass --launcher_module=MODULE to add your own launchers.',
    )
  return launchers[name]
