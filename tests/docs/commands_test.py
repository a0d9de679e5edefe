"""Executes all commands and Python listings of README.md and docs/.

Each page has its own directory with small data (`small_world`). The module
`command_table` defines replacements, and commands that cannot be run.
"""

import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import seqio

from tests.docs import command_table as table
from tests.docs import small_world
from xlflax import cli
from xlflax.config import gin_config

_ROOT = pathlib.Path(__file__).parents[2]
_PAGES = ['README.md'] + sorted(
  str(path.relative_to(_ROOT)) for path in (_ROOT / 'docs').rglob('*.md')
)
# Start of a line of a block of commands.
_COMMAND = re.compile(
  r'(xlflax [a-z]|make |pip |python |git |hf |docker |studies/|echo |export |tensorboard '
  r'|for |  python|done$|[A-Z_]+=\S+ (?:python|xlflax))'
)


def _blocks(page: str) -> list[tuple[str, str]]:
  """Returns (language, text) of the fenced blocks, with smaller settings."""
  text = (_ROOT / page).read_text('utf-8')
  matches = re.findall(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S)
  for printed, smaller in table.SMALLER.get(page, {}).items():
    assert any(printed in block for _, block in matches), (page, printed)
    matches = [
      (kind, block.replace(printed, smaller)) for kind, block in matches
    ]
  return matches


def _lines(block: str) -> list[str]:
  """Returns the commands of a block, with continuation lines joined."""
  joined = re.sub(r'\\\n\s*', ' ', block).splitlines()
  lines = [line for line in joined if line.strip() and line[0] != '#']
  return lines if lines and all(map(_COMMAND.match, lines)) else []


def _skip_reason(line: str) -> str | None:
  """Returns the reason why a command is not run, or None."""
  reasons = [
    why for start, why in table.NOT_RUN.items() if line.startswith(start)
  ]
  return reasons[0] if reasons else None


def _python_skip_reason(block: str) -> str | None:
  return next(
    (why for part, why in table.NOT_RUN_PYTHON.items() if part in block), None
  )


def _steps(page: str) -> list[tuple[str, str]]:
  """Returns (type, text) of the commands and Python listings of a page."""
  steps = []
  for kind, block in _blocks(page):
    if kind == 'python' and page != 'README.md':  # tested by readme_test.py
      steps += [] if _python_skip_reason(block) else [('python', block)]
    elif kind in ('', 'bash'):
      lines = [line for line in _lines(block) if not _skip_reason(line)]
      steps += [('command', line) for line in lines]
  return steps


@pytest.fixture(scope='module')
def world(tmp_path_factory):
  return small_world.World(tmp_path_factory.mktemp('world'))


@pytest.fixture
def folder(request, world, tmp_path, monkeypatch):
  """Working directory of a page's commands, with all files that they read."""
  if request.param in table.MODULES:
    module = pytest.importorskip(table.MODULES[request.param])
    root = pathlib.Path(module.__file__).parents[1]
    monkeypatch.setenv('T5X', str(root))
    monkeypatch.setenv('GIN', str(gin_config.SHIPPED))
  for name in table.NEEDS[request.param].split():
    page_dir = tmp_path / name
    page_dir.parent.mkdir(parents=True, exist_ok=True)
    page_dir.symlink_to(world.path(name))
  monkeypatch.chdir(tmp_path)
  with _restored_registries():
    yield request.param


@contextlib.contextmanager
def _restored_registries():
  """Context that removes new SeqIO tasks and mixtures on exit."""
  registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
  before = {registry: set(registry.names()) for registry in registries}
  try:
    yield
  finally:
    for registry, names in before.items():
      for name in set(registry.names()) - names:
        registry.remove(name)


def _command(line: str) -> None:
  """Runs a command in this process, or in a shell if it needs its own process."""
  if line.startswith('xlflax ') and not re.search(
    r' \| | > |--target_topology=', line
  ):
    arguments = shlex.split(line, comments=True)
    assert cli.main(arguments[1:]) == table.EXIT_CODES.get(line, 0)
    return
  programs = pathlib.Path(sys.executable).parent
  subprocess.run(
    ['bash', '-euo', 'pipefail', '-c', line],
    env=os.environ
    | {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'PYTHONPATH': str(_ROOT),
      'XLA_FLAGS': '',
    },
    check=True,
  )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('folder', table.NEEDS, indirect=True)
def test_page_commands_run(folder, capsys):
  names: dict[str, object] = {}
  exec(table.NAMES.get(folder, ''), names)
  failed = []
  for kind, text in _steps(folder):
    try:
      if kind == 'python':
        exec(compile(text, folder, 'exec'), names)
      else:
        with _restored_registries():  # as a separate process would
          _command(text)
    except (Exception, SystemExit) as error:
      failed.append(f'{text}\n{type(error).__name__}: {error}')
      failed.append(capsys.readouterr().err[-1500:])
  assert not failed, '\n'.join(failed)


def test_all_pages_with_commands_are_tested():
  pages = {page for page in _PAGES if _steps(page)} - set(table.ELSEWHERE)
  assert pages == set(table.NEEDS)
  for test in table.ELSEWHERE.values():
    assert (_ROOT / test).is_file()


def test_all_exceptions_are_used():
  lines = [x for page in _PAGES for _, b in _blocks(page) for x in _lines(b)]
  blocks = [block for page in _PAGES for _, block in _blocks(page)]
  for start in table.NOT_RUN:
    assert any(line.startswith(start) for line in lines), start
  for part in table.NOT_RUN_PYTHON:
    assert any(part in block for block in blocks), part


def test_most_commands_are_run():
  steps = [step for page in table.NEEDS for step in _steps(page)]
  assert sum(kind == 'command' for kind, _ in steps) >= 50
  assert sum(kind == 'python' for kind, _ in steps) >= 15
