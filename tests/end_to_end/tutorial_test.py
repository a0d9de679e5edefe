"""The session of docs/tutorial.md, on a terminal, shows what the page does.

Numbers may differ; `…` stands for lines that the page leaves out. The wheel
lies in an environment of its own above the libraries that are here; with
XLFLAX_TOUR=empty its libraries are installed too, from the package registry,
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
_WIDTH = 1000  # of the terminal: no line is folded; tables have COLUMNS


def _install_all(made: pathlib.Path, wheel: pathlib.Path) -> None:
  """The wheel with its libraries; what the page's Python needs beside them."""
  venv.create(made, with_pip=True)
  others = [
    f'{name}=={importlib.metadata.version(name).partition("+")[0]}'
    for name in ('transformers', 'torch')
  ]
  subprocess.run(
    [str(made / 'bin/python'), '-m', 'pip', 'install', '--quiet']
    + [str(wheel), *others],
    check=True,
  )


def _install_above(made: pathlib.Path, wheel: pathlib.Path) -> None:
  """The wheel alone, above the libraries of this environment."""
  venv.create(made)
  (packages,) = made.glob('lib/python*/site-packages')
  subprocess.run(
    [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps']
    + ['--prefix', str(made), '--ignore-installed', str(wheel)],
    check=True,
  )
  script = made / 'bin/xlflax'
  body = script.read_text().split('\n', 1)[1]
  script.write_text(f'#!{made}/bin/python\n{body}')
  # The libraries, without the hooks that make a checkout importable.
  libraries = [path for path in sys.path if path.endswith('site-packages')]
  (packages / 'libraries.pth').write_text('\n'.join(libraries) + '\n')


@pytest.fixture(scope='module')
def environment(tmp_path_factory):
  """Variables under which `xlflax` and `python` are those of a new wheel."""
  root = tmp_path_factory.mktemp('installed')
  # A copy: building leaves files behind.
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
  made = root / 'venv'
  if os.environ.get('XLFLAX_TOUR') == 'empty':
    _install_all(made, wheel)
  else:
    _install_above(made, wheel)
  return os.environ | {
    'PATH': f'{made}/bin:{os.environ["PATH"]}',
    # The studies, without the checkout's xlflax.
    'PYTHONPATH': str(root / 'studies_only'),
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': xla_flags.quick(),
    'XLFLAX_COMPILATION_CACHE': str(root / 'compiled'),
    'COLUMNS': '100',
  }


def _blocks(text: str) -> list[tuple[str, str]]:
  """(language, content) of the fenced blocks of a page."""
  return re.findall(r'```(console|python)\n(.*?)```', text, re.S)


def _steps(block: str) -> list[tuple[str, list[str]]]:
  """(command, the lines that are shown below it) of a console block."""
  steps: list[tuple[str, list[str]]] = []
  for line in block.replace('\\\n', ' ').splitlines():
    if line.startswith('$ '):
      steps.append((line[2:], []))
    elif line.strip():
      steps[-1][1].append(line)
  return steps


def _plain(line: str) -> str:
  """Without time stamp, numbers, frames and white space."""
  line = re.sub(r'^\d\d:\d\d:\d\d ', '', line.strip())
  line = re.sub(r'[│┃─━┏┓┗┛┡┩└┘┌┐├┤┬┴┼╇╈┳┻]', ' ', line)
  return ' '.join(re.sub(r'-?\d[\d,.:]*(e[+-]\d+)?', '#', line).split())


def _run(command: str, folder, environment, *, interrupt_at: str | None) -> str:
  """What a terminal shows of a command; Ctrl-C follows the line given."""
  stop = interrupt_at and _plain(interrupt_at)
  lines = terminal.lines(
    ['bash', '-c', f'exec {command}' if stop else command],
    _WIDTH,
    environment=environment,
    folder=folder,
    interrupt_at=(lambda line: _plain(line) == stop) if stop else None,
  )
  return '\n'.join(lines)


def _typed(text: str, folder: pathlib.Path) -> list[tuple[str, list[str]]]:
  """All that is typed on a page, in order; a listing becomes a program."""
  typed = []
  for language, block in _blocks(text):
    if language == 'console':
      typed += _steps(block)
    else:
      (folder / 'program.py').write_text(block)
      typed.append(('python program.py', []))
  return typed


def _lacks(shown: list[str], output: str) -> set[str]:
  """The lines of the page that were not printed."""
  wanted = {x for x in map(_plain, shown) if x not in ('…', _INTERRUPT)}
  return wanted - set(map(_plain, output.splitlines()))


def test_the_tour(environment, tmp_path):
  text = (ROOT / 'docs/tutorial.md').read_text(encoding='utf-8')
  missing = {}
  for command, shown in _typed(text, tmp_path):
    place = shown.index(_INTERRUPT) if _INTERRUPT in shown else None
    stop = None if place is None else shown[place - 1]
    before = os.times()
    output = _run(command, tmp_path, environment, interrupt_at=stop)
    after = os.times()
    # With `pytest -s`: what the page is written from.
    print(f'$ {command}\n{output}', flush=True)
    print(
      f'# {after.elapsed - before.elapsed:.0f} s, '
      f'{sum(after[2:4]) - sum(before[2:4]):.0f} s cpu',
      flush=True,
    )
    missing |= {command: lines} if (lines := _lacks(shown, output)) else {}
  assert not missing
  if browser.is_there():
    assert not _problems(tmp_path)


def _problems(folder: pathlib.Path) -> list[str]:
  """What cannot be seen or read of the pages of a folder."""
  pages = sorted(folder.rglob('*.html'))
  assert len(pages) >= 4
  return [
    problem
    for page in pages
    for width in (1200, 400)
    for dark in (False, True)
    for problem in browser.problems(page, width, dark=dark)
  ]


def test_the_page_is_read_rightly():
  steps = _steps('$ a \\\n  b\nx 1\n…\n$ c\n')
  assert steps == [('a    b', ['x 1', '…']), ('c', [])]
  assert _plain('12:00:01 I step 3/10 | loss 2.5') == 'I step #/# | loss #'
