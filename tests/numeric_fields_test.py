"""Every numeric field of every configuration class rejects invalid values."""

import collections.abc
import importlib
import math
import pkgutil
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

import xlflax
from xlflax.utils import errors, validation

_PACKAGES = (
  'analysis',
  'data',
  'evaluation',
  'finetuning',
  'launch',
  'models',
  'objectives',
  'suites',
  'training',
)


def _config_classes() -> Iterator[type]:
  """Yields the classes of the package that validate their fields."""
  names = ['xlflax.trainer']
  for package in _PACKAGES:
    path = importlib.import_module(f'xlflax.{package}').__path__
    prefix = f'xlflax.{package}.'
    names += [module.name for module in pkgutil.walk_packages(path, prefix)]
  for name in names:
    try:
      module = importlib.import_module(name)
    except ModuleNotFoundError as error:  # An optional dependency.
      assert not str(error.name).startswith('xlflax')
      continue
    for value in vars(module).values():
      is_class = isinstance(value, type) and value.__module__ == name
      if is_class and validation.is_validated(value):
        yield value


_CLASSES = {
  f'{cls.__module__.removeprefix(xlflax.__name__ + ".")}.{cls.__name__}': cls
  for cls in _config_classes()
}


def _bounds(hint: Any, *names: str) -> list[float] | None:
  """Returns a bound of each number in a type, or None without bounds."""
  bounds = []
  for number in validation.numeric_types(hint):
    values = [
      value
      for constraint in typing.get_args(number)[1:]
      for name in names
      if (value := getattr(constraint, name, None)) is not None
    ]
    if not values:
      return None
    bounds.append(values[0])
  return bounds


def _invalid_values(hint: Any) -> Iterator[Any]:
  """Yields values that no number in a type annotation accepts."""
  yield from (math.nan, math.inf, -math.inf, 10**39, -(10**39), b'1', [[]])
  yield from (True,) if bool not in _leaves(hint) else ()
  yield from ('many',) if str not in _leaves(hint) else ()
  if lows := _bounds(hint, 'ge', 'gt'):
    yield min(lows) - 1
  if highs := _bounds(hint, 'le', 'lt'):
    yield max(highs) + 1
  if len(list(validation.numeric_types(hint))) == 1:
    yield from _bounds(hint, 'gt') or ()
    yield from _bounds(hint, 'lt') or ()


def _leaves(hint: Any) -> set[Any]:
  """Returns the types in a type annotation."""
  args = typing.get_args(hint)
  if typing.get_origin(hint) is collections.abc.Callable:
    return set()
  if typing.get_origin(hint) is Annotated:
    args = args[:1]
  return {hint}.union(*map(_leaves, args))


def _with_number(hint: Any, value: Any) -> Any:
  """Returns a value of a type in which a number is replaced."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if not args or origin is Annotated:
    return value
  if not isinstance(origin, type) or origin.__name__ == 'UnionType':
    numeric = [arg for arg in args if any(validation.numeric_types(arg))]
    return _with_number(numeric[0], value)
  if issubclass(origin, collections.abc.Mapping):
    return {'a' if args[0] is str else 1: _with_number(args[1], value)}
  if issubclass(origin, tuple) and args[-1] is not ...:
    return tuple(
      _with_number(arg, value) if any(validation.numeric_types(arg)) else 'a'
      for arg in args
    )
  return [_with_number(args[0], value)]


@pytest.mark.parametrize('name', _CLASSES)
def test_numeric_fields_reject_invalid_values(name):
  cls = _CLASSES[name]
  for field, hint in validation.field_types(cls).items():
    numbers = list(validation.numeric_types(hint))
    # A number without a constraint is in none of the types of `validation`.
    assert not {int, float} & set(numbers), field
    if not numbers:
      continue
    for value in _invalid_values(hint):
      with pytest.raises(errors.ConfigError) as error:
        cls(**{field: _with_number(hint, value)})
      assert f'{cls.__name__}.{field}' in error.value.where, (field, value)


def test_all_configuration_classes_are_found():
  assert len(_CLASSES) > 100
