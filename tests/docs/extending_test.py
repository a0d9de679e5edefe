"""Runs every listing of docs/extending.md as a user of the installed command.

A Python block whose first line is a comment with a path is a file; every
other Python or Bash block of the section uses the files before it. The blocks
run in a directory that contains only the text that the page prepares.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.slow import mark_slow

_ROOT = pathlib.Path(__file__).parents[2]
_DOCUMENT = _ROOT / 'docs' / 'extending.md'
_FILE = re.compile(r'# ([\w./-]+\.\w+)\n')


class _Block(NamedTuple):
  language: str
  text: str

  @property
  def file(self) -> str | None:
    match = _FILE.match(self.text)
    return match[1] if match else None


def _sections() -> dict[str, str]:
  """Returns the text of each second-level section by heading."""
  _, *parts = re.split(r'^## (.+)\n', _DOCUMENT.read_text('utf-8'), flags=re.M)
  return dict(zip(parts[::2], parts[1::2], strict=True))


def _blocks(section: str) -> list[_Block]:
  return [
    _Block(*match)
    for match in re.findall(
      r'^```(python|bash|gin)\n(.*?)^```$', section, re.M | re.S
    )
  ]


def _run(block: _Block, folder: pathlib.Path) -> None:
  if block.language == 'python':
    arguments = [sys.executable, '-c', block.text]
  else:
    arguments = ['bash', '-euo', 'pipefail', '-c', block.text]
  programs = pathlib.Path(sys.executable).parent
  result = subprocess.run(
    arguments,
    cwd=folder,
    env=os.environ
    | {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'PYTHONPATH': '',
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': '',  # one device
    },
    text=True,
    capture_output=True,
    check=False,
  )
  assert not result.returncode, (
    f'{block.text}\n{result.stdout[-2000:]}{result.stderr[-4000:]}'
  )


_SLOW = (
  'Add an objective',
  'Add a schedule',
  'Add a hook',
  'Add a SeqIO task',
  'Add a probing task',
  'Add a task family',
)


_EXAMPLES = [name for name in _sections() if name.startswith('Add ')]


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  """Directory with the corpus and the vocabulary of the page."""
  folder = tmp_path_factory.mktemp('text')
  (block,) = _blocks(_sections()['Prepare the text of the examples'])
  _run(block, folder)
  return folder


@pytest.mark.parametrize('heading', mark_slow(_EXAMPLES, _SLOW))
def test_section_listings_run(heading, text, tmp_path):
  shutil.copytree(text, tmp_path, dirs_exist_ok=True)
  blocks = _blocks(_sections()[heading])
  used = False
  for block in blocks:
    if block.file:
      path = tmp_path / block.file
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(block.text, encoding='utf-8')
    else:
      _run(block, tmp_path)
      used = True
  assert used, 'nothing uses the files of the section'


@pytest.mark.parametrize('heading', _EXAMPLES)
def test_sections_list_the_files_they_add(heading):
  section = _sections()[heading]
  (sentence,) = re.findall(r'^The example adds (.*?)\.$', section, re.M | re.S)
  added = [block.file for block in _blocks(section) if block.file]
  assert re.findall(r'`([^`]+)`', sentence) == added
