"""The list of slow tests names tests that there are."""

import ast
import pathlib

from tests import slow_tests

_TESTS = pathlib.Path(__file__).parent


def _functions(path: str) -> set[str]:
  tree = ast.parse((_TESTS / path).read_text(encoding='utf-8'))
  return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_pattern_names_a_test_that_there_is():
  for pattern in slow_tests.patterns():
    path, _, name = pattern.partition('::')
    function = name.partition('[')[0]
    if function.endswith('*'):
      assert any(f.startswith(function[:-1]) for f in _functions(path)), pattern
    else:
      assert function in _functions(path), pattern


def test_a_pattern_means_what_it_says():
  assert slow_tests.matches('a_test.py::test_b[c*', 'a_test.py::test_b[c-1]')
  assert not slow_tests.matches('a_test.py::test_b[c*', 'a_test.py::test_b[d]')
  assert not slow_tests.matches('a_test.py::test_b', 'a_test.py::test_b[c]')
