"""Validation of configuration fields and function arguments with pydantic.

Fields and parameters declare what they accept by their annotations. Numbers are
constrained with `annotated_types`; the aliases below cover the common cases:

    @validation.validate_fields
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Adam:
      learning_rate: validation.PositiveFloat
      warmup_steps: validation.NonNegativeInt = 0
      power: Annotated[float, annotated_types.Interval(gt=0, le=2)] = 1.0

`validate_fields` validates the fields of a dataclass or Linen module when an
instance is created, `validate_call` the arguments of a function. Both convert
values to the declared type and raise `ConfigError` for invalid values.
Validators are built at the first call, so that imports stay fast.

The rules are those of pydantic, with these differences: booleans and strings
are not numbers; numbers must be finite in float32 and fit in int32; a string
field accepts `os.PathLike`; enums are accepted by value, in any letter case; a
class is accepted only by its instances, a protocol by any object that has its
attributes; an array of shape [n] is accepted as a list.
"""

import collections.abc
import contextlib
import dataclasses
import enum
import functools
import inspect
import numbers
import os
import pathlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, TypeVar, cast

import annotated_types as at
import pydantic
from pydantic_core import PydanticCustomError

from xlflax.utils import (
  equivalent_settings,
  errors,
  name_suggestions,
  user_modules,
)

_T = TypeVar('_T')
_Class = TypeVar('_Class', bound=type)
_Function = TypeVar('_Function', bound=Callable[..., Any])

INT32_MAX = 2**31 - 1

# Integers.
Int32 = Annotated[int, at.Interval(ge=-INT32_MAX - 1, le=INT32_MAX)]
NonNegativeInt = Annotated[int, at.Ge(0)]
PositiveInt = Annotated[int, at.Ge(1)]
Seed = Annotated[int, at.Interval(ge=0, le=2**32 - 1)]
# The index of a layer. A negative index counts from the last layer.
LayerIndex = Annotated[int, at.Interval(ge=-10_000, le=10_000)]
NumLayers = Annotated[int, at.Interval(ge=1, le=10_000)]
Dimension = Annotated[int, at.Interval(ge=1, le=2**20)]
NumProcesses = Annotated[int, at.Interval(ge=1, le=1024)]
NumThreads = NumProcesses
NumBytes = Annotated[int, at.Interval(ge=1, le=2**53)]
Port = Annotated[int, at.Interval(ge=1, le=65_535)]

# Real numbers, which are always finite.
FiniteFloat = pydantic.FiniteFloat
NonNegativeFloat = Annotated[float, at.Ge(0)]
PositiveFloat = Annotated[float, at.Gt(0)]
Fraction = Annotated[float, at.Interval(ge=0, le=1)]
PositiveFraction = Annotated[float, at.Interval(gt=0, le=1)]
FractionBelowOne = Annotated[float, at.Interval(ge=0, lt=1)]
OpenFraction = Annotated[float, at.Interval(gt=0, lt=1)]
# The exponent of dataset sizes in sampling rates: 0 is uniform sampling, 1 is
# sampling in proportion to the sizes.
SamplingExponent = Annotated[
  float,
  at.Interval(ge=0, le=1),
  pydantic.Field(description='a sampling exponent between 0 and 1'),
]


def check_path(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
  """Checks that a path is valid UTF-8 and has no control characters.

  Paths are recorded in JSON files and messages, which cannot contain bytes that
  are not UTF-8. A carriage return at the end of a path usually comes from a
  script with the line ends of Windows.

  Args:
    path: A path, or a command line argument that may contain one.

  Returns:
    The path.

  Raises:
    ValueError: If the path is not UTF-8 or has a control character.
  """
  text = os.fspath(path)
  if match := _NOT_IN_PATHS.search(text):
    kind = (
      'control characters' if match[0] < ' ' else 'bytes that are not UTF-8'
    )
    raise ValueError(f'a path without {kind}')
  return path


FilePath = Annotated[
  str | os.PathLike[str],
  pydantic.Field(description='a path'),
  pydantic.AfterValidator(check_path),
]

_NOT_IN_PATHS = re.compile('[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]')
_FLOAT32_MAX = (2 - 2**-23) * 2.0**127
_CONFIG = pydantic.ConfigDict(
  arbitrary_types_allowed=True, allow_inf_nan=False, hide_input_in_errors=True
)
_VALIDATED = '__xlflax_validated__'
_OPENED_BY = 'OPENED_BY'
_DATACLASS_FIELDS = '__dataclass_fields__'
_DECORATOR = '@dataclasses.dataclass(frozen=True, kw_only=True)'
_UNIONS = (typing.Union, types.UnionType)
_MAX_REPR_LENGTH = 80
_GUIDE = 'docs/extending.md'
# Parts of pydantic's messages that the fields of an error repeat.
_WORD = re.compile(r'[\w./*-]+')
# The `type` of pydantic errors that this module raises.
_ERROR_TYPE = 'type'
_PREFIX = re.compile(r'^(?:Input should be |Value error, )|, got .*')


def validate_fields(cls: _Class) -> _Class:
  """Decorates a dataclass so that new instances' fields are validated.

  The fields of the instance have the converted values. A Linen module keeps the
  values that it was given.

  Args:
    cls: Class to decorate. If it is not a dataclass, it is returned unchanged.

  Returns:
    The same class, with an `__init__` that raises `ConfigError` for invalid
    values.
  """
  if not dataclasses.is_dataclass(cls) or is_validated(cls):
    return cls
  init: Any = cls.__init__  # type: ignore[misc]
  is_module = _is_linen_module(cls)
  validate_arguments = _argument_validator(
    init, cls.__name__, functools.partial(field_types, cls), noun='field'
  )

  @functools.wraps(init)
  def validated_init(self, *args, **kwargs):
    check_declared_fields(type(self))
    converted, named = validate_arguments(self, *args, **kwargs)
    if is_module:
      init(self, *args, **kwargs)
    else:
      init(*converted, **named)

  # Gin reads the signature of the function itself.
  validated_init.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]
  cls.__init__ = validated_init  # type: ignore[method-assign]
  setattr(cls, _VALIDATED, True)
  return cls


class ValidatedFields:
  """Base class of user-extensible dataclasses, which validates their fields.

  The fields of all subclasses are validated, also without `validate_fields` or
  `class_registry.register`. A subclass is not validated if it is not a
  dataclass, or if its annotations contain names that exist only for type
  checkers. A subclass that declares fields without the decorator
  `dataclasses.dataclass` cannot be instantiated, unless it has its own
  `__init__`. The methods of a user-defined subclass must accept the arguments
  of the methods that they override.
  """

  def __new__(cls, *args: Any, **kwargs: Any):
    # Classes such as hooks need not be dataclasses if they have no arguments.
    if args or kwargs or dataclasses.is_dataclass(cls):
      check_declared_fields(cls)
    if cls.__init__ is object.__init__:
      for name in kwargs:
        if error := unannotated_attribute(cls, name):
          raise error
    _check_signatures(cast(Any, cls))
    if inspect.isabstract(cls):
      raise _missing_methods(cls)
    if dataclasses.is_dataclass(cls) and not is_validated(cls):
      with contextlib.suppress(NameError):
        typing.get_type_hints(cls)
        validate_fields(cls)
    return super().__new__(cls)


def validate_call(function: _Function) -> _Function:
  """Validates the arguments of a function against its annotations.

  Items of an iterator are validated when they are read.

  Args:
    function: Function or method to decorate.

  Returns:
    A function that raises `ConfigError` for invalid arguments, and otherwise
    calls `function` with the converted arguments.
  """
  validate_arguments = _argument_validator(
    function,
    function.__qualname__,
    lambda: typing.get_type_hints(function, include_extras=True),
    noun='argument',
  )

  @functools.wraps(function)
  def validated(*args, **kwargs):
    args, kwargs = validate_arguments(*args, **kwargs)
    return function(*args, **kwargs)

  setattr(validated, _VALIDATED, True)
  return cast(_Function, validated)


@typing.overload
def validate(
  value: Any, hint: type[_T], *, name: str, where: str | None = None
) -> _T: ...


@typing.overload
def validate(
  value: Any, hint: Any, *, name: str, where: str | None = None
) -> Any: ...


def validate(
  value: Any, hint: Any, *, name: str, where: str | None = None
) -> Any:
  """Validates a value against a type annotation.

  Args:
    value: The value to validate.
    hint: The type annotation that the value must match.
    name: Name of the value, for the error message.
    where: Location of the value. If None, `name` is used.

  Returns:
    The value, converted to the type.

  Raises:
    ConfigError: If the value is invalid.
  """
  try:
    return _adapter(hint).validate_python(value)
  except pydantic.ValidationError as error:
    details = [(detail['loc'], detail['msg']) for detail in error.errors()]
    raise _invalid_value(details, value, hint, name, where) from None


def is_validated(target: Any) -> bool:
  """Returns whether a class or function validates its fields or arguments."""
  if isinstance(target, type):
    return _VALIDATED in vars(target)
  return hasattr(target, _VALIDATED)


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
  """Returns the type annotations of a dataclass's fields by name.

  The fields that Flax adds to Linen modules are not included.

  Args:
    cls: The dataclass to inspect.
  """
  if _is_linen_module(cls):
    hints = dict(cls.__init__.__annotations__)  # type: ignore[misc]
    return {key: hints[key] for key in hints.keys() - {'parent', 'name'}}
  hints = typing.get_type_hints(cls, include_extras=True)
  return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def numeric_types(hint: Any) -> Iterator[Any]:
  """Yields the numeric types in a type annotation, with their constraints.

  Keys of mappings and types in the signature of a callable are not included.

  Args:
    hint: An annotation such as `PositiveInt | None`.
  """
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if hint in (int, float) or (origin is Annotated and args[0] in (int, float)):
    yield hint
  elif origin is Annotated:
    yield from numeric_types(args[0])
  elif _is_subclass(origin, collections.abc.Mapping):
    yield from numeric_types(args[1])
  elif origin is not collections.abc.Callable:
    for arg in args:
      yield from numeric_types(arg)


def check_declared_fields(cls: type) -> None:
  """Checks that the fields declared in a class are dataclass fields.

  Args:
    cls: The class to check. Only subclasses of a dataclass or of
      `ValidatedFields` without their own `__init__` are checked.

  Raises:
    ConfigError: If the class or one of its bases declares a field without the
      decorator `dataclasses.dataclass`, or sets a field without a type
      annotation.
  """
  _check_declared_fields(cast(Any, cls))


def _is_linen_module(cls: type) -> bool:
  """Returns whether a class is a Flax module, without importing Flax."""
  return any(base.__module__.startswith('flax.') for base in cls.__mro__)


def _is_subclass(hint: Any, base: type) -> bool:
  """Returns whether an annotation is a class that is derived from `base`."""
  return isinstance(hint, type) and issubclass(hint, base)


# Conversion of annotations to types that pydantic validates as described in
# the module's docstring.


def _adapter(hint: Any) -> pydantic.TypeAdapter:
  """Returns the pydantic adapter of a type annotation."""
  try:
    return _cached_adapter(hint)
  except TypeError:  # The metadata of the annotation is not hashable.
    return pydantic.TypeAdapter(_to_pydantic(hint), config=_CONFIG)


@functools.cache
def _cached_adapter(hint: Any) -> pydantic.TypeAdapter:
  return pydantic.TypeAdapter(_to_pydantic(hint), config=_CONFIG)


def _argument_validator(
  function: Callable[..., Any],
  name: str,
  hints: Callable[[], dict[str, Any]],
  *,
  noun: str,
) -> Callable[..., tuple[tuple, dict[str, Any]]]:
  """Returns a function that validates and returns its arguments.

  Args:
    function: The function whose signature is used.
    name: The name of the function or class, for messages.
    hints: Function that returns the type annotations by parameter name. It is
      called when the annotations are first needed.
    noun: 'field' or 'argument', for messages.
  """
  signature = inspect.signature(function)
  get_hints = functools.cache(hints)

  @functools.cache
  def validator() -> Callable[..., tuple[tuple, dict[str, Any]]]:
    def collect(*args, **kwargs):
      return args, kwargs

    types_ = {key: _to_pydantic(hint) for key, hint in get_hints().items()}
    parameters = [
      parameter.replace(annotation=types_.get(key, Any))
      for key, parameter in signature.parameters.items()
    ]
    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collect.__annotations__ = {p.name: p.annotation for p in parameters}
    return pydantic.validate_call(config=_CONFIG)(collect)

  def validate_arguments(*args, **kwargs):
    try:
      return validator()(*args, **kwargs)
    except pydantic.ValidationError as error:
      raise _invalid_call(
        error, signature, get_hints(), name, noun, (args, kwargs)
      ) from None

  return validate_arguments


def _to_pydantic(hint: Any) -> Any:
  """Returns the type annotation with which pydantic validates a type."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if isinstance(hint, TypeVar):
    return Any
  if hint in (int, float):
    return _to_pydantic_number(hint, ())
  if origin is Annotated:
    if any(isinstance(x, pydantic.SkipValidation) for x in args[1:]):
      return Any
    if args[0] in (int, float):
      return _to_pydantic_number(args[0], args[1:])
    return Annotated[_to_pydantic(args[0]), *args[1:]]
  if hint is bool:
    return Annotated[pydantic.StrictBool, pydantic.BeforeValidator(_unbox)]
  if hint is str:
    return (
      pydantic.StrictStr | Annotated[Any, pydantic.PlainValidator(_path_to_str)]
    )
  if origin in _UNIONS:
    return _to_pydantic_union(args)
  if origin is collections.abc.Iterable:
    item: Any = _to_pydantic(args[0])
    return Annotated[
      Annotated[list[item], pydantic.Strict()]
      | Annotated[tuple[item, ...], pydantic.Strict()]
      | Annotated[Any, pydantic.PlainValidator(_LazyValidator(args[0]))],
      pydantic.BeforeValidator(_to_sequence),
    ]
  if origin is tuple or hint is tuple:
    items: Any = tuple(x if x is ... else _to_pydantic(x) for x in args)
    kind: Any = tuple[items] if items else tuple
    return Annotated[kind, pydantic.BeforeValidator(_to_sequence)]
  if args and _is_subclass(origin, collections.abc.Mapping):
    return origin[tuple(map(_to_pydantic, args))]
  if args and (origin is list or origin is collections.abc.Sequence):
    kind = origin[_to_pydantic(args[0])]
    return Annotated[kind, pydantic.BeforeValidator(_to_sequence)]
  if origin is collections.abc.Callable or origin is typing.Literal:
    return hint
  if isinstance(origin or hint, type):
    return _to_pydantic_class(origin or hint)
  return hint


def _to_pydantic_number(kind: Any, constraints: tuple[Any, ...]) -> Any:
  """Returns the annotation for a number in int32 or float32."""
  if kind is float:
    to_number = functools.partial(_to_number, noun='a number')
    limits: list[Any] = [pydantic.AfterValidator(_check_float32)]
  else:
    to_number = functools.partial(_to_number, noun='an integer')
    limits = []
    if not any(getattr(x, 'ge', None) is not None for x in constraints):
      limits.append(at.Ge(-INT32_MAX - 1))
    if not any(getattr(x, 'le', None) is not None for x in constraints):
      limits.append(at.Le(INT32_MAX))
  return Annotated[
    kind, *constraints, *limits, pydantic.BeforeValidator(to_number)
  ]


def _to_pydantic_union(args: tuple[Any, ...]) -> Any:
  """Returns the union of types. It has no `str` if one type is an enum."""
  has_enum = any(_is_subclass(arg, enum.Enum) for arg in args)
  return typing.Union[  # noqa: UP007
    tuple(_to_pydantic(x) for x in args if not (has_enum and x is str))
  ]


def _to_pydantic_class(cls: type) -> Any:
  """Returns the annotation for instances of a class without type arguments."""
  if cls in (object, Any):
    return Any
  if cls in (type(None), bytes, dict, list, Mapping, Sequence, Callable):
    return cls
  if issubclass(cls, enum.Enum):
    return Annotated[cls, pydantic.BeforeValidator(_lower)]
  if issubclass(cls, pathlib.PurePath):
    return Annotated[Any, pydantic.PlainValidator(_check_path)]
  elif (cls.__module__, cls.__name__) == ('numpy', 'ndarray'):
    check = _to_array
  else:
    check = functools.partial(_check_instance, cls=cls)
  return Annotated[Any, pydantic.PlainValidator(check)]


def _to_number(value: Any, *, noun: str) -> int | float:
  """Converts a number to a Python number, and rejects other values."""
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise PydanticCustomError(
      _ERROR_TYPE, 'Input should be {noun}', {'noun': noun}
    )
  if isinstance(value, numbers.Integral):
    return int(value)
  return float(value)


def _check_float32(value: float) -> float:
  """Raises an error for numbers that are not finite in float32."""
  if abs(value) > _FLOAT32_MAX:
    raise PydanticCustomError(_ERROR_TYPE, 'Input should be finite in float32')
  return value


def _unbox(value: Any) -> Any:
  """Converts a NumPy boolean to a boolean."""
  is_numpy = type(value).__module__ == 'numpy' and value.ndim == 0
  return value.item() if is_numpy else value


def _lower(value: Any) -> Any:
  """Converts a string to lower case."""
  return value.lower() if type(value) is str else value


def _check_path(value: Any) -> Any:
  """Raises an error for values that are not paths."""
  if not isinstance(value, str | os.PathLike):
    raise PydanticCustomError(_ERROR_TYPE, 'Input should be a path')
  return value


def _path_to_str(value: Any) -> str:
  """Converts a path to a string."""
  if not isinstance(value, os.PathLike):
    raise PydanticCustomError(_ERROR_TYPE, 'Input should be a valid string')
  return os.fspath(value)


def _to_sequence(value: Any) -> Any:
  """Converts an array of shape [n] to a list; rejects values without order."""
  if getattr(value, 'ndim', None) == 1 and hasattr(value, 'tolist'):
    return value.tolist()
  # The views of a mapping are sets that have an order.
  is_unordered = isinstance(value, Set) and not isinstance(
    value, collections.abc.MappingView
  )
  if is_unordered or isinstance(value, str | bytes | Mapping):
    raise PydanticCustomError(_ERROR_TYPE, 'Input should be a list')
  return value


def _to_array(value: Any) -> Any:
  """Converts numbers to a NumPy array."""
  import numpy as np  # Checking a configuration does not need NumPy.

  try:
    array = np.asarray(value)
  except (TypeError, ValueError):
    array = np.asarray('')
  if array.dtype.kind in 'biufc' or 'float' in array.dtype.name:  # bfloat16
    return array
  raise PydanticCustomError(_ERROR_TYPE, 'Input should be an array of numbers')


def _check_instance(value: Any, *, cls: Any) -> Any:
  """Raises an error unless a value is an instance of a class or protocol."""
  if getattr(cls, '_is_protocol', False):
    is_instance = not isinstance(value, type | str | bytes) and all(
      hasattr(value, name) for name in _protocol_members(cls)
    )
  else:
    is_instance = isinstance(value, cls)
  if not is_instance:
    raise PydanticCustomError(
      _ERROR_TYPE,
      'Input should be an instance of {name}',
      {'name': getattr(cls, '__name__', str(cls))},
    )
  # A dataclass without a decorator of this module is not checked before.
  if user_modules.is_user_extension(type(value)):
    check_declared_fields(type(value))
  return value


@functools.cache
def _protocol_members(protocol: type) -> frozenset[str]:
  """Returns the public attributes that a protocol declares."""
  return frozenset(
    name
    for base in protocol.__mro__
    if getattr(base, '_is_protocol', False)
    for name in (*vars(base), *vars(base).get('__annotations__', {}))
    if name != _OPENED_BY and (not name.startswith('_') or name == '__call__')
  )


@dataclasses.dataclass(frozen=True)
class _LazyValidator:
  """Validates the items of an iterator when they are read."""

  item: Any

  def __call__(self, value: Any) -> Any:
    if isinstance(value, list | tuple | str | bytes | Mapping) or not (
      isinstance(value, Iterable)
    ):
      raise PydanticCustomError(_ERROR_TYPE, 'Input should be a list')
    return self._validate_items(value)

  def _validate_items(self, values: Iterable[Any]) -> Iterator[Any]:
    for index, value in enumerate(values):
      yield validate(value, self.item, name=f'item {index}')


# Conversion of pydantic's errors.


def _invalid_call(
  error: pydantic.ValidationError,
  signature: inspect.Signature,
  hints: dict[str, Any],
  name: str,
  noun: str,
  arguments: tuple[tuple, dict[str, Any]],
) -> errors.ConfigError:
  """Returns the error for invalid arguments of a function or class."""
  args, kwargs = arguments
  names = [key for key in signature.parameters if key != 'self']
  for detail in error.errors():
    kind, key = detail['type'], detail['loc'][0]
    if kind == 'unexpected_keyword_argument':
      owner = type(args[0]) if args and noun == 'field' else None
      if unannotated := unannotated_attribute(owner, str(key)):
        return unannotated
      return errors.ConfigError(
        f'The {noun} `{key}` of {name} does not exist',
        got=key,
        expected=name_suggestions.format_choices(names),
        where=name,
        fix=(suggest_dataclass(type(args[0]), str(key)) if args else None)
        or _suggest_name(str(key), names),
      )
    if kind == 'unexpected_positional_argument':
      return errors.ConfigError(
        f'{name} was called with too many positional arguments',
        got=detail['input'],
        where=name,
        fix=f'Pass the following arguments by keyword: {", ".join(names)}.',
      )
  missing = [
    str(detail['loc'][0])
    for detail in error.errors()
    if detail['type'].startswith('missing_')
  ]
  invalid = [x for x in error.errors() if x['loc'][0] not in missing]
  if not invalid:
    hint: Any = hints.get(missing[0])
    choices = list(hint) if _is_subclass(hint, enum.Enum) else []
    fix = f'Pass {name}({missing[0]}=...)'
    # Gin passes all fields by keyword.
    if not args[1:]:
      choices = [choice.value for choice in choices]
      fix += (
        f', or bind it in a gin file or with --gin.{name}.{missing[0]}=VALUE'
      )
    return errors.ConfigError(
      f'{name} requires a value for {", ".join(f"`{key}`" for key in missing)}',
      expected=name_suggestions.format_choices(list(map(str, choices)))
      if choices
      else None,
      where=name,
      fix=f'{fix}.',
    )
  key = invalid[0]['loc'][0]
  details = [(x['loc'][1:], x['msg']) for x in invalid if x['loc'][0] == key]
  if isinstance(key, int):  # A positional argument.
    value = args[key]
    key = list(signature.parameters)[min(key, len(signature.parameters) - 1)]
  else:
    value = kwargs[key]
  key = str(key)
  # Several objects of a class often differ by their names.
  own_name = kwargs.get('name') if noun == 'field' else None
  return _invalid_value(
    details,
    value,
    hints.get(key, Any),
    f'{name}.{key}',
    suffix=f' of {own_name!r}' if isinstance(own_name, str) else '',
  )


def _suggest_name(name: str, names: Sequence[str]) -> str | None:
  """Returns a hint with the arguments that an unknown argument may mean."""
  equivalents = equivalent_settings.suggest_parameters(name, names)
  if equivalents:
    return f'Did you mean {" or ".join(equivalents)}?'
  return name_suggestions.did_you_mean(name, names)


def _invalid_value(
  details: list[tuple[tuple[int | str, ...], str]],
  value: Any,
  hint: Any,
  name: str,
  where: str | None = None,
  suffix: str = '',
) -> errors.ConfigError:
  """Returns the error for an invalid value.

  Args:
    details: Pairs of a location within the value and a message, one for each
      error that pydantic reported.
    value: The value to validate.
    hint: The type annotation of the value.
    name: The name of the field, argument or option.
    where: Location of the value. If None, `name` is used.
    suffix: Text that is appended to the location in the error.
  """
  resolved = [(*_resolve(loc, value), message) for loc, message in details]
  path, invalid, _ = max(resolved, key=lambda item: len(item[0]))
  expected = dict.fromkeys(
    _PREFIX.sub('', message) for other, _, message in resolved if other == path
  )
  return errors.ConfigError(
    f'The value of `{name}` is invalid',
    got=_shorten(invalid),
    expected=_description(hint) or ' or '.join(expected),
    where=(where or name) + path + suffix,
    fix=suggest_correction(invalid, hint),
  )


def _description(hint: Any) -> str | None:
  """Returns the description of an annotated type, if it has one."""
  for metadata in getattr(hint, '__metadata__', ()):
    if isinstance(metadata, pydantic.fields.FieldInfo):
      return metadata.description
  return None


def _resolve(location: tuple[int | str, ...], value: Any) -> tuple[str, Any]:
  """Returns the path and the value at a location of a pydantic error.

  Pydantic's locations also contain the members of unions, which are skipped.
  """
  path = ''
  for step in location:
    try:
      value = value[step]
    except (LookupError, TypeError):
      continue
    path += f'[{step!r}]'
  return path, value


def _shorten(value: Any) -> str:
  """Returns the representation of a value on one line."""
  text = ' '.join(repr(value).split())
  if len(text) <= _MAX_REPR_LENGTH:
    return text
  return f'{text[: _MAX_REPR_LENGTH - 1]}…'


def suggest_correction(value: Any, hint: Any) -> str | None:
  """Returns a hint on how to correct a common mistake, or None.

  A class or protocol whose instances are opened from a path can describe this
  in its attribute `OPENED_BY`, such as 'xlflax.load_run({})'.
  """
  members = list(_members(hint))
  if _is_number(value) and value > 1 and _contains(hint, SamplingExponent):
    return (
      f'If {value:g} is the temperature of the sampling, as in T5, set its '
      f'reciprocal {1 / value:.3g}. An exponent above 1 would sample large '
      'languages even more often than in proportion to their text.'
    )
  if isinstance(value, type):
    module = value.__module__.rpartition('.')[2]
    return (
      f'Create an instance: {value.__name__}(...) in Python, or '
      f'@{module}.{value.__name__}() with parentheses in gin.'
    )
  if isinstance(value, str | os.PathLike):
    for member in members:
      if opened_by := getattr(member, _OPENED_BY, None):
        return f'Open it first: {opened_by.format(repr(os.fspath(value)))}.'
  if isinstance(value, str):
    choices = [
      str(choice.value)
      for member in members
      if _is_subclass(member, enum.Enum)
      for choice in member
    ]
    if did_you_mean := name_suggestions.did_you_mean(value, choices):
      return did_you_mean
    if any(list(numeric_types(hint))) and _is_numeric_text(value):
      return f'Remove the quotes: {value}.'
  for member in members:
    items = _split_words(value) if isinstance(value, str) else [value]
    if _accepts(member, items) and not isinstance(value, list | tuple):
      pronoun = 'it' if len(items) == 1 else 'them'
      return f'Put {pronoun} into a list: [{", ".join(map(_shorten, items))}].'
  if base_class := _suggest_base_class(value, hint):
    return base_class
  if type(value).__module__ == 'builtins':
    return None
  for member in members:
    if opened_by := getattr(member, _OPENED_BY, None):
      return f'Pass an object such as {opened_by.format(repr("PATH"))}.'
  return None


def _split_words(text: str) -> list[str]:
  """Returns words that are separated by commas, or the text itself."""
  words = [word.strip() for word in text.split(',')]
  return words if all(map(_WORD.fullmatch, words)) else [text]


def _suggest_base_class(value: Any, hint: Any) -> str | None:
  """Returns a hint for an instance of a user's class without the base class."""
  if not user_modules.is_user_class(type(value)):
    return None
  bases = [
    cls
    for cls in _classes_in(hint)
    if issubclass(cls, ValidatedFields) or _is_linen_module(cls)
  ]
  if not bases:
    return None
  names = ' or '.join(dict.fromkeys(map(_public_name, bases)))
  return f'Derive the class {type(value).__name__} from {names} ({_GUIDE}).'


def _classes_in(hint: Any) -> Iterator[type]:
  """Yields the classes in a type annotation, including those of items."""
  if isinstance(hint, type) and not typing.get_args(hint):
    yield hint
  for arg in typing.get_args(hint):
    yield from _classes_in(arg)


def _public_name(cls: type) -> str:
  """Returns the shortest importable name of a class.

  For example, the result for the base class of all optimizers is
  'xlflax.training.Optimizer'.
  """
  parts = cls.__module__.split('.')
  for end in range(1, len(parts)):
    package = '.'.join(parts[:end])
    if getattr(sys.modules.get(package), cls.__name__, None) is cls:
      return f'{package}.{cls.__name__}'
  return f'{cls.__module__}.{cls.__qualname__}'


@functools.cache
def _check_declared_fields(cls: type) -> None:
  """Checks that the fields declared in a class are dataclass fields.

  Args:
    cls: Subclass of a dataclass or of `ValidatedFields`. A class with its own
      `__init__` is not checked.

  Raises:
    ConfigError: If the class or one of its bases declares a field without the
      decorator `dataclasses.dataclass`, or sets a field without a type
      annotation.
  """
  bases = [
    base
    for base in cls.__mro__
    if dataclasses.is_dataclass(base)
    or (issubclass(base, ValidatedFields) and base is not ValidatedFields)
  ]
  if any(_defines_init(base) for base in bases):
    return
  for base in bases:
    annotated = inspect.get_annotations(base)
    class_variables = {
      name
      for parent in base.__mro__
      for name, hint in inspect.get_annotations(parent).items()
      if 'ClassVar' in str(hint)
    }
    if _DATACLASS_FIELDS not in vars(base):
      for name in annotated:
        if name not in class_variables and not name.startswith('_'):
          raise _undeclared_field(base, name)
    if not dataclasses.is_dataclass(base):
      continue
    for field in dataclasses.fields(base):
      value = vars(base).get(field.name)
      # Properties and other descriptors may override a field.
      if field.name in annotated or hasattr(type(value), '__get__'):
        continue
      if field.name in vars(base) and field.init:
        raise _unannotated_field(base, field.name, value)


def _defines_init(cls: type) -> bool:
  """Returns whether a class body defines `__init__`.

  The result is False for an `__init__` that `dataclasses` generates.
  """
  init = inspect.unwrap(vars(cls).get('__init__', object.__init__))
  # Generated functions have no source file.
  return inspect.isfunction(init) and init.__code__.co_filename != '<string>'


@functools.cache
def _check_signatures(cls: type) -> None:
  """Checks that the methods of a user-defined class accept their arguments.

  Args:
    cls: User-defined class that inherits from a base class of xlflax. Only
      public methods and `__call__` that override methods of the base class are
      checked.

  Raises:
    ConfigError: If a method requires more arguments than the method that it
      overrides, or accepts fewer.
  """
  if not user_modules.is_user_extension(cls):
    return
  for name in dir(cls):
    if name.startswith('_') and name != '__call__':
      continue
    definitions = [
      vars(base)[name] for base in cls.__mro__ if name in vars(base)
    ]
    overridden = [
      definition
      for definition in definitions
      if inspect.isfunction(definition)
      and user_modules.is_xlflax(definition.__module__)
    ]
    method = definitions[0] if definitions else None
    if not overridden or not inspect.isfunction(method):
      continue
    parameters = [
      parameter
      for parameter in inspect.signature(overridden[0]).parameters.values()
      if parameter.default is parameter.empty
      and parameter.kind
      not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    try:
      inspect.signature(method).bind(
        *range(len(parameters) - len(keywords)), **dict.fromkeys(keywords)
      )
    except TypeError as error:
      raise _invalid_signature(cls, name, method, parameters) from error


def _invalid_signature(
  cls: type, name: str, method: Any, parameters: Sequence[inspect.Parameter]
) -> errors.ConfigError:
  """Returns the error for a method with other arguments than in its base.

  Args:
    cls: The class that defines the method.
    name: The name of the method.
    method: The function that defines the method.
    parameters: Required parameters of the method that is overridden.
  """
  signature = inspect.Signature(
    [p.replace(annotation=p.empty) for p in parameters]
  )
  return errors.ConfigError(
    f'The method `{cls.__name__}.{name}` has the wrong arguments',
    got=f'{name}({", ".join(inspect.signature(method).parameters)})',
    expected=f'{name}{signature}',
    where=user_modules.find_definition(method),
    fix=f'Define the method as `def {name}{signature}:` ({_GUIDE}).',
  )


def _unannotated_field(
  cls: type, name: str, value: Any, where: str | None = None
) -> errors.ConfigError:
  """Returns the error for a class that sets a field without an annotation.

  Args:
    cls: The class whose body sets the attribute.
    name: The name of the attribute.
    value: The value of the attribute.
    where: Location of the argument or binding that passes the field, or None.
  """
  line, source = user_modules.find_attribute(cls, name)
  if source is None or len(source) > _MAX_REPR_LENGTH or '\n' in source:
    source = _shorten(value)
  decorator = (
    ''
    if _DATACLASS_FIELDS in vars(cls)
    else f' The class also needs the decorator `{_DECORATOR}`.'
  )
  return errors.ConfigError(
    f'The attribute `{name}` of {cls.__name__} has no type annotation and is '
    'therefore not a field of the dataclass',
    got=f'{name} = {source}',
    where=', '.join(filter(None, (where, line or cls.__name__))),
    fix=f'Write `{name}: {_declaration(value, source)}` ({_GUIDE}).{decorator}',
  )


def _declaration(value: Any, source: str) -> str:
  """Returns the type and the default value of a field, as in 'float = 0.1'."""
  kind = type(value)
  if value is None:
    return 'float | None = None'
  if kind.__hash__ is None:  # Dataclasses reject mutable default values.
    return (
      f'{kind.__name__} = dataclasses.field(default_factory=lambda: {source})'
    )
  return f'{kind.__name__} = {source}'


def unannotated_attribute(
  cls: Any, name: str, where: str | None = None
) -> errors.ConfigError | None:
  """Returns the error for an attribute that lacks the annotation of a field.

  Args:
    cls: Class that has no field or parameter with the name.
    name: Name that was passed as a field.
    where: Location of the argument or binding. If None, only the location of
      the attribute is reported.

  Returns:
    The error. None if the attribute is not a plain value that a user-defined
    class assigns, if it has an annotation, such as `ClassVar`, or if the class
    defines its own `__init__`.
  """
  mro = getattr(cls, '__mro__', ())
  bases = [base for base in mro if name in vars(base)]
  if (
    name.startswith('__')
    or not bases
    or not user_modules.is_user_class(bases[0])
    or not (dataclasses.is_dataclass(cls) or issubclass(cls, ValidatedFields))
    or any(_defines_init(base) for base in mro)
    or any(name in inspect.get_annotations(base) for base in mro)
    or not _is_plain_value(vars(bases[0])[name])
  ):
    return None
  return _unannotated_field(bases[0], name, vars(bases[0])[name], where)


def _is_plain_value(value: Any) -> bool:
  """Returns whether a class attribute is not a method, property or class."""
  return not hasattr(type(value), '__get__') and not isinstance(value, type)


def _missing_methods(cls: Any) -> errors.ConfigError:
  """Returns the error for a class that lacks methods of its base class."""
  names = sorted(cls.__abstractmethods__)
  bases = [base for base in cls.__mro__[1:] if names[0] in vars(base)]
  definition = ' and '.join(f'`{name}`' for name in names)
  return errors.ConfigError(
    f'The class {cls.__name__} must define {definition}',
    where=cls.__name__,
    fix=f'Define {definition} as in the base class '
    f'{_public_name(bases[0])} ({_GUIDE}).'
    if bases
    else 'Use a subclass that defines them.',
  )


def _undeclared_field(cls: type, name: str) -> errors.ConfigError:
  """Returns the error for a class without the `dataclass` decorator."""
  return errors.ConfigError(
    'A class that declares fields must be a dataclass',
    got=name,
    where=cls.__name__,
    fix=suggest_dataclass(cls, name),
  )


def suggest_dataclass(cls: Any, name: str) -> str | None:
  """Returns a hint if the class that declares a field is not a dataclass.

  Args:
    cls: Class that may lack the decorator.
    name: Name that was passed as a field.

  Returns:
    The hint, or None if no class without the decorator annotates the name.
  """
  for base in getattr(cls, '__mro__', ()):
    is_decorated = _DATACLASS_FIELDS in vars(base)
    if name in inspect.get_annotations(base) and not is_decorated:
      return (
        f'The class {base.__name__} declares `{name}`, but the class is not a '
        f'dataclass. Add the decorator `{_DECORATOR}` ({_GUIDE}).'
      )
  return None


def _members(hint: Any) -> Iterator[Any]:
  """Yields the members of a union, without their metadata."""
  if typing.get_origin(hint) in _UNIONS:
    for arg in typing.get_args(hint):
      yield from _members(arg)
  elif typing.get_origin(hint) is Annotated:
    yield from _members(typing.get_args(hint)[0])
  else:
    yield hint


def _contains(hint: Any, member: Any) -> bool:
  """Returns whether a type annotation is `member` or a union with it."""
  if typing.get_origin(hint) in _UNIONS:
    return any(_contains(arg, member) for arg in typing.get_args(hint))
  return hint == member


def _accepts(hint: Any, value: Any) -> bool:
  """Returns whether a value is valid for a type annotation."""
  try:
    _adapter(hint).validate_python(value)
  except pydantic.ValidationError:
    return False
  return True


def _is_number(value: Any) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _is_numeric_text(text: str) -> bool:
  """Returns whether a string contains a number."""
  try:
    float(text)
  except ValueError:
    return False
  return True
