"""What is wrong with a gin configuration, and how it is told."""

import contextlib
import difflib
import inspect
import math
import pathlib
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gin

from xlflax.config import binding_locations, config_files
from xlflax.utils import errors, name_suggestions

# (scope, selector) -> parameter -> value, as Gin stores bindings. A macro X is
# the parameter 'value' of ('X', 'gin.macro').
Bound = dict[tuple[str, str], dict[str, Any]]
MACRO = 'gin.macro'
_GIN = pathlib.Path(gin.__file__).parent


@contextlib.contextmanager
def converting_read_errors() -> Iterator[None]:
  """Turns every exception while files and bindings are read to ConfigError."""
  try:
    yield
  except errors.XlflaxError:
    raise
  except Exception as error:
    raise _translated(error) from error


@contextlib.contextmanager
def converting_build_errors(
  bindings: Sequence[binding_locations.Binding] = (),
) -> Iterator[None]:
  """Turns Gin's own exceptions to ConfigErrors; those of others pass.

  Args:
    bindings: The bindings of the configuration, to locate values in errors.
  """
  try:
    yield
  except errors.XlflaxError as error:
    raise _plain(error, bindings) from error.__cause__
  except (ValueError, RuntimeError, TypeError, ArithmeticError) as error:
    if _raised_by_gin(error):
      raise _translated(error) from error
    if _raised_by_a_check(error):
      raise errors.ConfigError(
        'A setting has a value that it cannot have',
        got=str(error).splitlines()[0][:200],
        expected='numbers, strings and lists as the documentation says',
        where=_place_of(error),
      ) from error
    raise


def _raised_by_a_check(error: BaseException) -> bool:
  """Whether a dataclass looked at its fields when it happened."""
  return any(
    frame.name == '__post_init__'
    for frame in traceback.extract_tb(error.__traceback__)
  )


def _place_of(error: BaseException) -> str | None:
  """What Gin adds to the message of what fails in a configurable."""
  match = re.search(r'In call to configurable .*', str(error))
  return match[0][:200] if match else None


def check_macros(
  bound: Bound, flags: Collection[str], shipped: pathlib.Path
) -> None:
  """Raises ConfigError for macros that nothing uses, or that are not set.

  A file's macro may be unused, as what used it may be bound otherwise, unless
  its name resembles a used one.

  Args:
    bound: the configuration.
    flags: names that were set on the command line, which must be used.
    shipped: folder of the gin files that come with the package; their macros
      may be unused.
  """
  defined = {scope for scope, selector in bound if selector == MACRO}
  used = {_macro_name(ref) for ref in _macro_references(bound)}
  for name in sorted(defined - used):
    close = difflib.get_close_matches(name, sorted(used), n=3, cutoff=0.5)
    similar = difflib.get_close_matches(name, used, cutoff=0.8)
    if name not in flags and (not similar or _is_macro_of(shipped, name)):
      continue
    raise errors.ConfigError(
      'A gin macro is set, but nothing uses it',
      got=name,
      expected='one of ' + ', '.join(close or sorted(used)),
      fix='correct its name',
    )
  missing = sorted(used - defined)
  if missing:
    raise errors.ConfigError(
      'The configuration uses macros that are not set',
      got=', '.join(missing),
      fix=' '.join(f'--gin.{name}=VALUE' for name in missing),
    )


def check_required(bound: Bound) -> None:
  """Raises ConfigError for values that are `%gin.REQUIRED`."""
  _raise_for_required(
    key + (name,)
    for key, parameters in bound.items()
    for name, value in parameters.items()
    if _is_required(value)
  )


def check_required_by(bound: Bound, value: Any) -> None:
  """As `check_required`, for what building `value` reads.

  Args:
    bound: the configuration.
    value: as Gin stores it; may contain references.
  """
  _raise_for_required(_required_by(bound, value, (), set()))


def _required_by(bound: Bound, value, scope: tuple[str, ...], seen: set):
  """Keys that are REQUIRED among what a value refers to, in a scope."""
  for reference in _references_in(value):
    inner = tuple(reference.scopes) or scope
    selector = reference.configurable.selector
    if (inner, selector) in seen:
      continue
    seen.add((inner, selector))
    parameters: dict[str, tuple[str, Any]] = {}
    for end in range(len(inner) + 1):  # as Gin does: inner scopes win
      name = '/'.join(inner[:end])
      scope_bindings = bound.get((name, selector), {})
      parameters |= {key: (name, item) for key, item in scope_bindings.items()}
    for key, (name, item) in parameters.items():
      if _is_required(item):
        yield name, selector, key
      yield from _required_by(bound, item, inner, seen)


def _raise_for_required(keys: Iterable[tuple[str, str, str]]) -> None:
  missing = [
    scope
    if selector == MACRO
    else f'{scope}/{selector}.{parameter}'.removeprefix('/')
    for scope, selector, parameter in keys
  ]
  if missing:
    raise config_files.missing_value_error(list(dict.fromkeys(missing)))


def is_plain(value: Any) -> bool:
  """Whether a gin file can hold the value as Gin stores it."""
  if isinstance(value, dict):
    return all(map(is_plain, [*value.keys(), *value.values()]))
  if isinstance(value, (list, tuple)):
    return all(map(is_plain, value))
  if isinstance(value, float):
    return math.isfinite(value)
  return value is None or isinstance(
    value, (bool, int, str, bytes, gin.config.ConfigurableReference)
  )


def _is_required(value) -> bool:
  return (
    isinstance(value, gin.config.ConfigurableReference)
    and value.scoped_selector == 'gin.REQUIRED/gin.constant'
  )


def _is_macro_of(folder: pathlib.Path, name: str) -> bool:
  return any(
    re.search(rf'^{re.escape(name)} *=', path.read_text(), re.M)
    for path in folder.rglob('*.gin')
  )


def _macro_name(reference) -> str:
  return reference.scoped_selector.rpartition('/')[0] or reference.scopes[-1]


def _macro_references(bound: Mapping):
  for parameters in bound.values():
    for value in parameters.values():
      for reference in _references_in(value):
        if reference.selector.endswith('macro'):
          yield reference


def _references_in(value):
  if isinstance(value, gin.config.ConfigurableReference):
    yield value
  elif isinstance(value, dict):
    for key, item in value.items():
      yield from _references_in(key)
      yield from _references_in(item)
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from _references_in(item)


def _raised_by_gin(error: Exception) -> bool:
  """Whether gin itself, not a function that it called, found the mistake.

  Wrong arguments of a function count: gin calls it.
  """
  frames = traceback.extract_tb(error.__traceback__)
  return pathlib.Path(frames[-1].filename).parent == _GIN


def _plain(
  error: errors.XlflaxError, bindings: Sequence[binding_locations.Binding]
) -> errors.XlflaxError:
  """Returns the error with the location of the value that it is about.

  Gin appends the stack of its calls to the message. The first call is the
  construction of the object that raised the error.
  """
  scope = re.search(
    r"In call to configurable '\S+' \(.*?\)(?: in scope '(.*?)')?", str(error)
  )
  where = str(error.where or '')
  location = binding_locations.find_binding_location(
    bindings, where, (scope and scope[1]) or ''
  )
  if location and location not in where:
    where = f'{where}, {location}'
  # Gin raises a proxy class that poses as the error's own: its base is meant.
  kind = next(
    c for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c
  )
  return kind(
    error.what,
    got=error.got,
    expected=error.expected,
    where=where or None,
    fix=error.fix,
  )


def _translated(error: Exception) -> errors.ConfigError:
  """Returns the error for an exception that Gin raised."""
  text = ' '.join(re.sub(r' \(<[^>]*>\)', '', str(error)).split())
  where = _location(str(error))
  match = re.search(r"'([^']+)' doesn't have a parameter named '(\w+)'", text)
  if match:
    names = _parameters(match[1])
    return errors.ConfigError(
      f'{match[1]} has no parameter `{match[2]}`',
      got=match[2],
      expected=name_suggestions.some_of(names),
      where=where,
      fix=name_suggestions.did_you_mean(match[2], names),
    )
  match = re.search(
    r"No configurable matching (?:reference )?'@?([\w./]+)(?:\(\))?'", text
  )
  if match:
    return errors.ConfigError(
      'Unknown class or function in a gin configuration',
      got=match[1],
      where=where,
      fix=name_suggestions.did_you_mean(match[1], _configurables(match[1])),
    )
  return errors.ConfigError(
    'The gin configuration is wrong',
    got=text,
    where=where,
    fix=next((fix for part, fix in _FIXES if part in text), _FIXES[-1][1]),
  )


def _location(text: str) -> str | None:
  """Returns the file and line, or the flag, that Gin adds to a message."""
  match = re.search(r'In file "(.+?)",? line (\d+)', text)
  if match:
    return f'{match[1]}:{match[2]}'
  match = re.search(r'In bindings string line \d+\s+(\S+?)\s*=', text)
  return f'--gin.{match[1]}' if match else None


def _parameters(name: str) -> list[str]:
  """The parameters of what gin knows by a name."""
  configurable = gin.config._REGISTRY.get_match(name.rpartition('/')[2])
  if configurable is None:
    return []
  return list(inspect.signature(configurable.wrapped).parameters)


def _configurables(name: str) -> set[str]:
  """What gin knows, and what the module that the name begins with holds."""
  names = {
    '.'.join(selector.split('.')[-2:])
    for selector, _ in gin.config._REGISTRY.items()
  }
  start = name.rpartition('/')[2].partition('.')[0]
  for statement in gin.config._IMPORTS:
    last = (statement.alias or statement.module).rpartition('.')[2]
    if last == start and statement.module in sys.modules:
      module = sys.modules[statement.module]
      names |= {
        f'{start}.{key}' for key in vars(module) if not key.startswith('_')
      }
  return names


# Part of gin's message -> what to do; the last one for all others.
_FIXES = (
  ('Failed to parse token', 'put text in quotes, as in --gin.NAME="\'text\'"'),
  ('missing', 'give them values in a gin file or by --gin flags'),
  (
    '',
    'check the spelling of the name against the docstring of what it '
    'configures',
  ),
)
