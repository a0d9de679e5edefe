"""Values in gin files and flags, compared with what their parameters may be.

`--gin.Trainer.ema_decay=5` and `--gin.LEARNING_RATE=1e400` are answered before
JAX is imported. The ranges are those that the fields declare in the source; a
macro's value is checked as that of every parameter that uses it. Files of this
package are not looked at where nobody changed what they say: tests build them.
"""

import dataclasses
import tokenize
from collections.abc import Iterator, Sequence
from typing import Any

from gin import config_parser

from xlflax.configuration import bindings as bindings_lib
from xlflax.configuration import (
  gin_parameters,
  shipped_configs,
  source_text,
  source_types,
)
from xlflax.foundation import errors, schema


@dataclasses.dataclass(frozen=True)
class _Macro:
  """A value that is another name's."""

  name: str


class _Built:
  """A value that Gin makes by a call."""


@dataclasses.dataclass(frozen=True)
class _Binding:
  """A value and where a user gave it; None for files of this package."""

  value: Any
  where: str | None


class _Reader(config_parser.ParserDelegate):
  """Reads references as what they are, without looking them up."""

  def configurable_reference(self, scoped_configurable_name, evaluate):
    del scoped_configurable_name, evaluate
    return _Built()

  def macro(self, macro_name):
    return _Macro(macro_name)


def check(
  bindings: Sequence[str], files: Sequence[shipped_configs.GinFile]
) -> None:
  """Raises ConfigError for a value that its parameter cannot have.

  Args:
    bindings: 'NAME=VALUE' of the command line.
    files: the gin files that are read before them.
  """
  bound: dict[str, _Binding] = {}
  for file in files:
    shipped = file.path.is_relative_to(shipped_configs.SHIPPED)
    for name, line, value in _statements(file.text, str(file.path)):
      place = None if shipped else f'{file.path}:{line}'
      bound[name] = _Binding(value, place)
  for binding in bindings:
    for name, _, value in _statements(bindings_lib.quoted(binding)):
      bound[name] = _Binding(value, f'--gin.{name}')
  names = gin_parameters.Names(files)
  for name, one in bound.items():
    if '.' in name:
      _check_one(name, one, bound, names)


def _statements(
  text: str, file: str | None = None
) -> Iterator[tuple[str, int, Any]]:
  """(name, line, value) of each binding of a file, or of a flag.

  Raises:
    ConfigError: Gin cannot read a line.
  """
  try:
    for one in config_parser.ConfigParser(text, _Reader()):
      if isinstance(one, config_parser.BindingStatement):
        scope = f'{one.scope}/' if one.scope else ''
        parts = [one.selector, one.arg_name] if one.arg_name else [one.selector]
        yield scope + '.'.join(parts), one.location.line_num, one.value
  except (SyntaxError, ValueError, tokenize.TokenError) as error:
    number = getattr(error, 'lineno', None) or 1
    raise errors.ConfigError(
      'A line of a gin file cannot be read'
      if file
      else 'A gin flag has a value that cannot be read',
      got=text.splitlines()[number - 1].strip() if file else f'--gin.{text}',
      expected=f'NAME = VALUE; {bindings_lib.VALUES}',
      where=f'{file}:{number}' if file else f'--gin.{text.partition("=")[0]}',
    ) from error


def _check_one(
  name: str,
  binding: _Binding,
  bound: dict[str, _Binding],
  names: gin_parameters.Names,
) -> None:
  """Compares a parameter's value with its type in the source."""
  places = [binding.where] if binding.where else []
  value = _resolved(binding.value, bound, places, 0)
  if not places or _is_built(value):
    return
  found = names.resolve(name)
  parameters = found and source_text.parameters_of(found[0], found[1])
  if not found or not parameters or found[2] not in parameters:
    return
  parameter = '.'.join(found[1:])
  schema.check(
    value,
    source_types.type_of(parameters[found[2]]),
    name=parameter,
    where=' and '.join(dict.fromkeys(places)),
  )


def _resolved(
  value: Any, bound: dict[str, _Binding], places: list[str], depth: int
) -> Any:
  """A value in which macros have theirs; adds where a user set them."""
  if isinstance(value, _Macro):
    found = bound.get(value.name)
    if found is None or depth > len(bound):
      return _Built()
    if found.where:
      places.append(found.where)
    return _resolved(found.value, bound, places, depth + 1)
  if isinstance(value, dict):
    return {
      key: _resolved(one, bound, places, depth) for key, one in value.items()
    }
  if isinstance(value, list | tuple):
    return type(value)(_resolved(one, bound, places, depth) for one in value)
  return value


def _is_built(value: Any) -> bool:
  """Whether a part of a value is known only once Gin builds it."""
  if isinstance(value, dict):
    return any(map(_is_built, [*value.keys(), *value.values()]))
  if isinstance(value, list | tuple):
    return any(map(_is_built, value))
  return isinstance(value, _Built | _Macro)
