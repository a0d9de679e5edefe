"""Marks the tests that `slow_tests.txt` lists as slow."""

import pathlib
import re

import pytest

_LIST = pathlib.Path(__file__).with_suffix('.txt')


def patterns() -> list[str]:
  """The list's patterns, without its comments."""
  lines = _LIST.read_text(encoding='utf-8').splitlines()
  return [line for line in lines if line and not line.startswith('#')]


def matches(pattern: str, name: str) -> bool:
  """Whether a test's name below `tests/` fits; * stands for anything."""
  return bool(re.fullmatch(_expression(pattern), name))


def _expression(pattern: str) -> str:
  return re.escape(pattern).replace(r'\*', '.*')


def mark(items: list[pytest.Item]) -> None:
  """Adds the marker `slow` to the tests that are listed."""
  listed = re.compile('|'.join(map(_expression, patterns())))
  for item in items:
    if listed.fullmatch(item.nodeid.removeprefix('tests/')):
      item.add_marker(pytest.mark.slow)
