"""Tests of the table of names in other libraries."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

_PAGE = pathlib.Path('docs/terminology.md')


def _names() -> list[str]:
  """Returns the names in the last column of all rows."""
  cells = re.findall(r'^\|.*\| (`[^|]+`) \|$', _PAGE.read_text(), re.M)
  return [name for cell in cells for name in re.findall(r'`([^`]+)`', cell)]


def _fields() -> set[str]:
  """Returns `Class.field` of all classes, with the fields of base classes."""
  own_terms: dict[str, set[str]] = {}
  bases: dict[str, set[str]] = {}
  for path in pathlib.Path('xlflax').rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.ClassDef):
        own_terms.setdefault(node.name, set()).update(
          item.target.id
          for item in node.body
          if isinstance(item, ast.AnnAssign)
          and isinstance(item.target, ast.Name)
        )
        bases.setdefault(node.name, set()).update(
          ast.unparse(base).split('.')[-1] for base in node.bases
        )

  def collect(name: str) -> set[str]:
    return own_terms.get(name, set()).union(
      *(collect(base) for base in bases.get(name, ()) if base != name)
    )

  return {f'{name}.{field}' for name in own_terms for field in collect(name)}


def test_table_has_at_least_60_concepts():
  assert len(_names()) == len(set(_names())) >= 60


def test_listed_fields_exist():
  fields = {name for name in _names() if not name.startswith('xlflax ')}
  assert fields <= _fields()


@pytest.mark.parametrize(
  'command',
  sorted(
    {name.split(' --')[0] for name in _names() if name.startswith('xlflax ')}
  ),
)
def test_listed_options_exist(command):
  options = {
    name.split(' ')[-1]
    for name in _names()
    if name.split(' --')[0] == command and ' --' in name
  }
  arguments = [sys.executable, '-m', 'xlflax.cli', *command.split()[1:]]
  text = subprocess.run(
    [*arguments, '--help'], capture_output=True, text=True, check=True
  ).stdout
  assert options <= set(re.findall(r'--\w+', text))
