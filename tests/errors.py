"""Assertions on the class, the fields and the values of errors."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def raises_error(
  error_class: type[BaseException] | tuple[type[BaseException], ...],
  *,
  got: Any = ...,
  expected: Any = ...,
  where: Any = ...,
  fix: Any = ...,
  status: Any = ...,
  mentions: Any = (),
) -> Iterator[pytest.ExceptionInfo]:
  """Context in which an error with these fields is raised.

  Fields that are left out are not compared.

  Args:
    error_class: Class of the error.
    got: Offending value, compared as text.
    expected: Expected value, compared as text.
    where: Location. A relative path also matches the end of a longer path.
    fix: Hint, compared as text.
    status: Exit status.
    mentions: Value, or tuple of values, that the message must contain: names,
      numbers, flags and files, but not phrases.

  Yields:
    Information about the exception, as `pytest.raises` does.
  """
  with pytest.raises(error_class) as caught:
    yield caught
  error = caught.value
  for name, value in {'got': got, 'expected': expected, 'fix': fix}.items():
    if value is not ...:
      actual = str(getattr(error, name))
      assert actual in (str(value), repr(value)), f'{name} is {actual!r}'
  if where is not ...:
    actual = str(error.where)
    assert actual == str(where) or actual.endswith(f'/{where}'), (
      f'where is {actual!r}'
    )
  if status is not ...:
    assert error.status == status, f'status is {error.status}'
  values = mentions if isinstance(mentions, tuple | list) else (mentions,)
  assert_mentions(error, *values)


def assert_mentions(text: object, *values: object) -> None:
  """Asserts that values occur in a text as complete tokens.

  Args:
    text: Error, log record or captured output.
    *values: Names, numbers, flags and files, but not phrases.
  """
  for value in values:
    pattern = rf'(?<!\w)(?<!\d[.,]){re.escape(str(value))}(?!\w)(?![.,]\d)'
    assert re.search(pattern, str(text)), f'{value!r} is not in {text}'
