"""Every flag of every command has an effect, or is refused."""

import ast
import importlib
import importlib.util
import inspect
import pathlib
import re
import shlex

import pytest

from xlflax import cli
from xlflax.foundation import errors

ROOT = pathlib.Path(__file__).parent.parent.parent
# Read by the command line itself, or a launcher's own.
_OF_ALL = {'help', 'gin_binding_help', 'gin_file', 'gin_search_paths'}
_SKIPPED = {'launch'}  # its flags are its launchers'
# Commands with tables of flags.
_WITH_TABLES = [
  name
  for name in cli.COMMANDS
  if cli.load_command(name).__name__.startswith('xlflax.commands.')
]


def _flags(name: str) -> set[str]:
  return {
    action.dest
    for parser in cli.parser_of(name).parsers()
    for action in parser._actions
    if action.option_strings
  } - _OF_ALL


def _sources_of(name: str) -> dict[str, str]:
  """The command's module and those of commands that it imports -> code."""
  found: dict[str, str] = {}
  todo = {f'xlflax.commands.{name}'}
  while todo:
    module = importlib.import_module(todo.pop())
    found[module.__name__] = inspect.getsource(module)
    for node in ast.walk(ast.parse(found[module.__name__])):
      if isinstance(node, ast.ImportFrom) and _is_of_commands(node.module):
        names = (f'{node.module}.{alias.name}' for alias in node.names)
        todo |= {name for name in names if _exists(name)} - found.keys()
    for kind in getattr(module, 'KINDS', {}):
      todo |= {f'{module.__name__}.{kind.replace("-", "_")}'} - found.keys()
  return found


def _is_of_commands(module: str | None) -> bool:
  return f'{module}.'.startswith('xlflax.commands.')


def _exists(module: str) -> bool:
  return importlib.util.find_spec(module) is not None


def _read(name: str) -> set[str]:
  """Names that the command's code reads of its flags, not those it declares."""
  found: set[str] = set()
  for text in _sources_of(name).values():
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        found.add(node.attr)
      # Lists of names for getattr, and texts that are split into such.
      if isinstance(node, ast.Attribute) and node.attr == 'split':
        if isinstance(node.value, ast.Constant):
          found |= set(str(node.value.value).split())
      if isinstance(node, (ast.Tuple, ast.List)):
        found |= {
          item.value for item in node.elts if isinstance(item, ast.Constant)
        }
  return found


@pytest.mark.parametrize('name', sorted(set(_WITH_TABLES) - _SKIPPED))
def test_every_flag_is_read(name):
  assert _flags(name) - _read(name) <= {'action'}


def test_every_rule_speaks_of_flags_of_its_command():
  for name in _WITH_TABLES:
    module = importlib.import_module(f'xlflax.commands.{name}')
    known = {
      action.dest
      for parser in cli.parser_of(name).parsers()
      for action in parser._actions
    }
    for rule in getattr(module, 'RULES', ()):
      others = {one.partition('=')[0] for one in rule.other.split()}
      assert {*rule.flags.split(), *others} <= known, (name, rule)


def _command_lines(text: str) -> list[str]:
  """`xlflax ...` in indented or fenced text, continued lines joined."""
  joined = re.sub(r'\\\n\s*', ' ', text)
  joined = re.sub(r'="\{\n\s*', '="{', joined)
  return [
    line.strip().removeprefix('$ ').split('  #')[0].rstrip()
    for line in joined.splitlines()
    if re.match(r'\s*(\$ )?xlflax [a-z]', line)
  ]


def _sources() -> dict[str, str]:
  """Where command lines for people stand -> the text."""
  found = {f'xlflax {name} --help': cli.examples(name) for name in cli.COMMANDS}
  pages = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
  for page in pages:
    blocks = re.findall(r'```(?:\w*)\n(.*?)```', page.read_text(), re.S)
    found[str(page.relative_to(ROOT))] = '\n'.join(blocks)
  return found


def _readable(line: str) -> str | None:
  """The line as a shell would read it up to a pipe; None with omissions."""
  line = re.split(r' (?:\||>|2>|&&|&$|;)', line)[0]
  return None if re.search(r'\.\.\.|…|\$|<\w+>', line) else line


@pytest.mark.parametrize('place', sorted(_sources()))
def test_command_lines_for_people_are_right(place):
  """Flags exist, have values that can be read, and have an effect."""
  for line in map(_readable, _command_lines(_sources()[place])):
    if line is None:
      continue
    words = shlex.split(line, comments=True)
    name, arguments = words[1], words[2:]
    if name == 'COMMAND' or '--help' in arguments:
      continue
    if name == 'launch' and arguments[0].startswith('--launcher_module'):
      continue  # The module is a listing of the page (tests/docs runs it).
    assert name in cli.COMMANDS, line
    try:
      cli.parse(name, arguments)
    except errors.ConfigError as error:
      raise AssertionError(f'{place}: {line}: {error}') from error
