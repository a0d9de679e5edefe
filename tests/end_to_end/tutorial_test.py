"""Tests that the commands of docs/tutorial.md print the output of the page.

Numbers may differ, but not their number of decimals. Output that is not on the
page is an error, except at lines `…` or `^C`. The wheel is installed in its own
environment on top of the installed libraries. With
XLFLAX_TOUR=empty, its libraries are installed too, from the package registry,
as `pip install xlflax` does on a new machine (gigabytes).
"""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import venv

import pytest

from tests import browser, terminal, xla_flags

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = pathlib.Path(__file__).parent.parent.parent
_INTERRUPT = '^C'
_OMISSION = '…'
_WIDTH = 1000  # terminal width at which no line wraps; tables have COLUMNS


def _install_all(environment_dir: pathlib.Path, wheel: pathlib.Path) -> None:
  """Installs the wheel with its libraries and the packages of the page."""
  venv.create(environment_dir, with_pip=True)
  requirements = [
    f'{name}=={importlib.metadata.version(name).partition("+")[0]}'
    for name in ('transformers', 'torch')
  ]
  subprocess.run(
    [str(environment_dir / 'bin/python'), '-m', 'pip', 'install', '--quiet']
    + [str(wheel), *requirements],
    check=True,
  )


def _install_without_dependencies(
  environment_dir: pathlib.Path, wheel: pathlib.Path
) -> None:
  """Installs only the wheel, on top of the libraries of this environment."""
  venv.create(environment_dir)
  (packages,) = environment_dir.glob('lib/python*/site-packages')
  subprocess.run(
    [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps']
    + ['--prefix', str(environment_dir), '--ignore-installed', str(wheel)],
    check=True,
  )
  script = environment_dir / 'bin/xlflax'
  body = script.read_text().split('\n', 1)[1]
  script.write_text(f'#!{environment_dir}/bin/python\n{body}')
  # Excludes the hooks of an editable installation.
  libraries = [path for path in sys.path if path.endswith('site-packages')]
  (packages / 'libraries.pth').write_text('\n'.join(libraries) + '\n')


@pytest.fixture(scope='module')
def environment(tmp_path_factory):
  """Environment variables that select `xlflax` and `python` of a new wheel."""
  root = tmp_path_factory.mktemp('installed')
  # Uses a copy, because building writes files.
  build = [sys.executable, '-m', 'pip', 'wheel', '--no-deps']
  build += ['--no-build-isolation', '--quiet', '--wheel-dir', str(root)]
  source = root / 'source'
  subprocess.run(
    ['git', 'clone', '--quiet', '--no-hardlinks', str(ROOT), str(source)],
    check=True,
  )
  subprocess.run([*build, str(source)], check=True)
  (wheel,) = root.glob('*.whl')
  (root / 'studies_only').mkdir()
  (root / 'studies_only' / 'studies').symlink_to(source / 'studies')
  environment_dir = root / 'venv'
  if os.environ.get('XLFLAX_TOUR') == 'empty':
    _install_all(environment_dir, wheel)
  else:
    _install_without_dependencies(environment_dir, wheel)
  return os.environ | {
    'PATH': f'{environment_dir}/bin:{os.environ["PATH"]}',
    # Copies the studies without the checkout's xlflax.
    'PYTHONPATH': str(root / 'studies_only'),
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': xla_flags.quick_compilation_flags(),
    'XLFLAX_COMPILATION_CACHE': str(root / 'compiled'),
    'COLUMNS': '100',
  }


def _blocks(text: str) -> list[tuple[str, str]]:
  """Returns (language, content) of the fenced blocks of a page."""
  return re.findall(r'```(console|python)\n(.*?)```', text, re.S)


def _steps(block: str) -> list[tuple[str, list[str]]]:
  """Returns (command, shown lines) of a console block."""
  steps: list[tuple[str, list[str]]] = []
  for line in block.replace('\\\n', ' ').splitlines():
    if line.startswith('$ '):
      steps.append((line[2:], []))
    elif line.strip():
      steps[-1][1].append(line)
  return steps


def _normalize_line(line: str) -> str:
  """Removes time stamp, frames and white space, and replaces digits.

  A number is replaced by #, and its decimals by one # each.
  """
  line = re.sub(r'^\d\d:\d\d:\d\d ', '', line.strip())
  line = re.sub(r'[│┃─━┏┓┗┛┡┩└┘┌┐├┤┬┴┼╇╈┳┻]', ' ', line)

  def replace_number(match: re.Match[str]) -> str:
    return '#' + re.sub(r'\d', '#', match[1] or '')

  number = r'-?\d+(?:[,:]\d+)*(\.\d+)?(?:e[+-]\d+)?'
  return ' '.join(re.sub(number, replace_number, line).split())


def _run(command: str, folder, environment, *, interrupt_at: str | None) -> str:
  """Returns the terminal output of a command, with Ctrl-C after a given line."""
  stop = interrupt_at and _normalize_line(interrupt_at)
  lines = terminal.run_in_terminal(
    ['bash', '-c', f'exec {command}' if stop else command],
    _WIDTH,
    environment=environment,
    folder=folder,
    interrupt_at=(lambda line: _normalize_line(line) == stop) if stop else None,
  )
  return '\n'.join(lines)


def _typed_commands(
  text: str, folder: pathlib.Path
) -> list[tuple[str, list[str]]]:
  """Returns all commands of a page in order, with listings as programs."""
  typed = []
  for language, block in _blocks(text):
    if language == 'console':
      typed += _steps(block)
    else:
      (folder / 'program.py').write_text(block)
      typed.append(('python program.py', [_OMISSION]))
  return typed


def _find_difference(expected_output: list[str], output: str) -> str | None:
  """Returns the first line of a page that differs from a command's output.

  Args:
    expected_output: The lines of the page. Any number of lines of the output may
      correspond to `…` and `^C`.
    output: The output of the command.

  Returns:
    The line, 'end' if the output has further lines, or None if the output is
    the one that the page shows.
  """
  lines = filter(None, map(_normalize_line, output.splitlines()))
  text = ''.join(f'{line}\n' for line in lines)
  pattern = ''
  for line in filter(None, map(str.strip, expected_output)):
    if line in (_OMISSION, _INTERRUPT):
      pattern += r'(?:.*\n)*'
    elif normalized := _normalize_line(line):
      pattern += re.escape(f'{normalized}\n')
    if not re.match(pattern, text):
      return line
  return None if re.fullmatch(pattern, text) else 'end'


def test_tutorial_output_equals_the_page(environment, tmp_path):
  text = (ROOT / 'docs/tutorial.md').read_text(encoding='utf-8')
  differences = {}
  for command, expected_output in _typed_commands(text, tmp_path):
    interrupt_index = (
      expected_output.index(_INTERRUPT)
      if _INTERRUPT in expected_output
      else None
    )
    stop = (
      None if interrupt_index is None else expected_output[interrupt_index - 1]
    )
    before = os.times()
    output = _run(command, tmp_path, environment, interrupt_at=stop)
    after = os.times()
    # With `pytest -s`, prints the output for updating the page.
    print(f'$ {command}\n{output}', flush=True)
    print(
      f'# {after.elapsed - before.elapsed:.0f} s, '
      f'{sum(after[2:4]) - sum(before[2:4]):.0f} s cpu',
      flush=True,
    )
    if difference := _find_difference(expected_output, output):
      differences[command] = difference
  assert not differences
  if browser.is_installed():
    assert not _page_problems(tmp_path)


def _page_problems(folder: pathlib.Path) -> list[str]:
  """Returns display problems of the pages in a directory."""
  pages = sorted(folder.rglob('*.html'))
  assert len(pages) >= 4
  return [
    problem
    for page in pages
    for width in (1200, 400)
    for dark in (False, True)
    for problem in browser.find_problems(page, width, dark=dark)
  ]


def test_page_parsing():
  steps = _steps('$ a \\\n  b\nx 1\n…\n$ c\n')
  assert steps == [('a    b', ['x 1', '…']), ('c', [])]
  assert (
    _normalize_line('12:00:01 I step 3/10 | loss 2.57')
    == 'I step #/# | loss #.##'
  )
  assert _normalize_line('│ en │ 1,234.5 │') == 'en #.#'
  assert _normalize_line('ETA 00:01:02, rate 1.1e-2.') == 'ETA #, rate #.#.'


@pytest.mark.parametrize(
  'page',
  [
    'a 7\nb 2.0\n\nc',
    'a 1\n…\nc',
    '…\nc',
    'a 1\n…',
    '…\nb 3.5\n…',
    '…',
    'a 1\nb 2.0\n…\nc',
    'a 1\n^C\nc',
  ],
)
def test_matching_output_has_no_difference(page):
  assert _find_difference(page.splitlines(), 'a 1\n\nb 2.5\nc\n') is None


@pytest.mark.parametrize(
  'page',
  [
    '',
    'a 1',
    'a 1\nc',
    'a 1\nb 2.500\nc',
    'b 2.5\nc',
    'a 1\nb 2.5',
    'c\n…\na 1',
    '…\na 1\nc\n…',
    'a 1\nb 2.5\n…\nb 2.5\nc',
    'a 1\nb 2.5\nc\nd',
  ],
)
def test_other_output_has_a_difference(page):
  assert _find_difference(page.splitlines(), 'a 1\nb 2.5\nc\n')


def test_empty_output_matches_an_empty_page():
  assert _find_difference([], '\n') is None
  assert _find_difference(['a'], '') is not None
