"""Marks for slow tests."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_slow(values: Iterable[Any], slow: Collection[Any]) -> list[Any]:
  """Returns parameters for `pytest.mark.parametrize`, some marked as slow.

  Args:
    values: Values of the test's parameter.
    slow: Parameters that only run with `--slow`.
  """
  return [
    pytest.param(value, marks=pytest.mark.slow) if value in slow else value
    for value in values
  ]
