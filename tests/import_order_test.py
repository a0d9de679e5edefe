"""The layers in ARCHITECTURE.md: no upward imports and no import cycles."""

import ast
import functools
import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).parents[1]


def read_rows(text: str) -> list[list[str]]:
  """Returns the paths in the first column of the layer table, row by row."""
  table = re.search(
    r'^\| layer \|.*\n\| -.*\n((?:\|.*\n)+)', text, re.MULTILINE
  )
  assert table, 'ARCHITECTURE.md has no table whose first column is "layer"'
  return [
    re.findall(r'`([^`]+)`', line.split('|')[1])
    for line in table[1].splitlines()
  ]


def level(path: str, rows: list[list[str]]) -> int:
  """Returns the row number of the file or longest folder that holds a path."""
  matches = [
    (len(layer), number)
    for number, row in enumerate(rows)
    for layer in row
    if path == layer or (layer.endswith('/') and path.startswith(layer))
  ]
  assert matches, f'{path} is in no layer of ARCHITECTURE.md'
  return max(matches)[1]


def public_names(package: str, source: str) -> dict[str, str]:
  """Returns `package.Name` -> module for the lazy names of a package."""
  return {
    f'{package}.{alias.asname or alias.name}': str(node.module)
    for block in ast.parse(source).body
    if _is_lazy_api(block)
    for node in block.body
    if isinstance(node, ast.ImportFrom) and node.module != package
    for alias in node.names
  }


def _is_lazy_api(node: ast.stmt) -> bool:
  """Returns whether a statement lists the names that a package offers."""
  return isinstance(node, ast.With) and any(
    'lazy_api_imports' in ast.unparse(item) for item in node.items
  )


def _is_type_checking(node: ast.stmt) -> bool:
  return isinstance(node, ast.If) and ast.unparse(node.test) == 'TYPE_CHECKING'


def imported_modules(source: str, homes: dict[str, str]) -> set[str]:
  """Returns the modules that a module imports, at its top or in a function.

  Imports under TYPE_CHECKING do not run, and the public names of a package are
  imported by its users, so both are left out.

  Args:
    source: Source code of the module.
    homes: Mapping from the import path of a name to the module that defines the
      name.
  """
  tree = ast.parse(source)
  tree.body = [
    node
    for node in tree.body
    if not _is_lazy_api(node) and not _is_type_checking(node)
  ]
  modules = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      modules |= {homes.get(alias.name) for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, f'a relative import: {ast.unparse(node)}'
      for alias in node.names:
        home = homes.get(f'{node.module}.{alias.name}')
        modules.add(home or homes.get(str(node.module)))
  return {home for home in modules if home}


def upward_imports(
  imports: dict[str, set[str]], levels: dict[str, int]
) -> set[tuple[str, str]]:
  """Returns the imports of modules in a higher row."""
  return {
    (module, target)
    for module, targets in imports.items()
    for target in targets
    if levels[target] < levels[module]
  }


def modules_in_cycles(imports: dict[str, set[str]]) -> set[str]:
  """Returns the modules that are in a cycle or between two cycles."""
  inner = _remove_leaves(imports)
  importers: dict[str, set[str]] = {module: set() for module in inner}
  for module, targets in inner.items():
    for target in targets:
      importers[target].add(module)
  return set(_remove_leaves(importers))


def _remove_leaves(graph: dict[str, set[str]]) -> dict[str, set[str]]:
  """Removes nodes without edges repeatedly; returns the remaining nodes."""
  while free := {node for node, targets in graph.items() if not targets}:
    graph = {n: targets - free for n, targets in graph.items() if n not in free}
  return graph


@functools.cache
def _files() -> dict[str, pathlib.Path]:
  """Returns the file of each module, including `tasks/`."""
  files = {}
  for folder, package in (('xlflax', 'xlflax'), ('tasks', 'xlflax.tasks')):
    for path in (_ROOT / folder).rglob('*.py'):
      components = path.relative_to(_ROOT / folder).with_suffix('').parts
      name = '.'.join((package, *components)).removesuffix('.__init__')
      files[name] = path
  return files


@functools.cache
def _imports() -> dict[str, set[str]]:
  sources = {
    module: path.read_text(encoding='utf-8')
    for module, path in _files().items()
  }
  packages = {m for m, path in _files().items() if path.stem == '__init__'}
  homes = {module: module for module in sources}
  for package in packages:
    homes = public_names(package, sources[package]) | homes
  return {
    module: imported_modules(source, homes) - {module}
    for module, source in sources.items()
  }


@functools.cache
def _rows() -> list[list[str]]:
  return read_rows((_ROOT / 'ARCHITECTURE.md').read_text(encoding='utf-8'))


def _levels() -> dict[str, int]:
  return {
    module: level(str(path.relative_to(_ROOT)).removeprefix('xlflax/'), _rows())
    for module, path in _files().items()
  }


def test_layer_table_lists_existing_paths():
  layers = [layer for row in _rows() for layer in row]
  assert layers and len(layers) == len(set(layers))
  for layer in layers:
    path = _ROOT / 'xlflax' / layer
    if not path.exists():
      path = _ROOT / layer
    assert path.is_dir() if layer.endswith('/') else path.is_file(), layer


def test_modules_do_not_import_higher_layers():
  assert _files()
  assert upward_imports(_imports(), _levels()) == set()


def test_modules_have_no_import_cycles():
  assert modules_in_cycles(_imports()) == set()


TABLE = """
| layer | holds |
| --- | --- |
| `top.py`, `high/` | a |
| `high/deep/` | b |
| `low.py` | c |
"""


@pytest.mark.parametrize(
  ('path', 'expected'),
  [('top.py', 0), ('high/a.py', 0), ('high/deep/a.py', 1), ('low.py', 2)],
)
def test_level_of_a_path(path, expected):
  assert level(path, read_rows(TABLE)) == expected


def test_modules_without_a_layer_are_rejected():
  with pytest.raises(AssertionError, match=r'other\.py is in no layer'):
    level('other.py', read_rows(TABLE))


HOMES = {name: name for name in ('p', 'p.a', 'p.b', 'p.c', 'p.d')}


def test_imports_in_functions_are_included():
  source = (
    'import os\nimport p.a\nfrom p import b\n'
    'def f():\n  from p.c import name\n  from p import version\n'
  )
  assert imported_modules(source, HOMES) == {'p.a', 'p.b', 'p.c', 'p'}


def test_public_names_resolve_to_their_modules():
  package = (
    'from p import a\nif TYPE_CHECKING:\n  from p import b\n'
    'with epy.lazy_api_imports(globals()):\n  from p import c\n'
    '  from p.d import Name\n'
  )
  names = public_names('p', package)
  assert names == {'p.Name': 'p.d'}
  assert imported_modules(package, HOMES) == {'p.a'}
  assert imported_modules('from p import Name', HOMES | names) == {'p.d'}


def test_upward_imports_and_cycles_are_detected():
  imports = {'a': {'b'}, 'b': {'c'}, 'c': {'b'}, 'd': {'c'}, 'e': set()}
  levels = {'a': 0, 'b': 1, 'c': 2, 'd': 3, 'e': 4}
  assert upward_imports(imports, levels) == {('c', 'b'), ('d', 'c')}
  assert modules_in_cycles(imports) == {'b', 'c'}
