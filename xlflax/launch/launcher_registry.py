"""The launchers: what may follow `xlflax launch`, and how each is added.

A launcher is one module: a class of jobs (`xlflax.launch.job_base.Job`) under
`register`, which gives it its name and help. The modules of this package are
found by themselves, others are named by `--launcher_module`.
"""

import dataclasses
import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence

from xlflax import launch
from xlflax.launch import job_base
from xlflax.utils import errors, user_modules, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher:
  """One way to start the processes of a job.

  Attributes:
    name: what follows `xlflax launch`.
    help: one line about it.
    example: command lines under a comment, for `--help`.
    job: the class of its jobs.
  """

  name: str
  help: str
  example: str
  job: type[job_base.Job]


_launchers: dict[str, Launcher] = {}


def register(
  name: str, *, help: str, example: str
) -> Callable[[type[job_base.Job]], type[job_base.Job]]:
  """Returns a decorator that makes a class of jobs a launcher.

  Args:
    name: what follows `xlflax launch`.
    help: one line about it.
    example: command lines under a comment, for `--help`.
  """

  def decorate(job: type[job_base.Job]) -> type[job_base.Job]:
    known = _launchers.get(name)
    if known is not None and known.job.__module__ != job.__module__:
      raise errors.ConfigError(
        'Two launchers have one name',
        got=f'{name!r} of {known.job.__module__} and of {job.__module__}',
        fix='rename one of them',
      )
    _launchers[name] = Launcher(name=name, help=help, example=example, job=job)
    return validation.validate_fields(job)

  return decorate


def load(modules: Sequence[str] = ()) -> dict[str, Launcher]:
  """Returns the launchers by name, in alphabetical order.

  Args:
    modules: importable modules that register further launchers.

  Raises:
    ConfigError: there is no such module.
  """
  for found in pkgutil.iter_modules(launch.__path__):
    importlib.import_module(f'{launch.__name__}.{found.name}')
  user_modules.import_modules(modules, where='--launcher_module')
  return dict(sorted(_launchers.items()))


def find(name: str, modules: Sequence[str] = ()) -> Launcher:
  """Returns the launcher of a name.

  Raises:
    ConfigError: there is none; the error lists those there are.
  """
  launchers = load(modules)
  if name not in launchers:
    near = difflib.get_close_matches(name, launchers, n=1)
    raise errors.ConfigError(
      'There is no launcher of this name',
      got=name,
      expected='one of ' + ', '.join(launchers),
      fix=f'did you mean {near[0]}?'
      if near
      else '--launcher_module=MODULE adds launchers of your own',
    )
  return launchers[name]
