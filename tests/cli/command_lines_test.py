"""Tests of command lines in the documentation and in help texts."""

import pathlib
import re
import shlex

import pytest

from xlflax import cli
from xlflax.utils import errors

ROOT = pathlib.Path(__file__).parent.parent.parent


def _command_lines(text: str) -> list[str]:
  """Yields `xlflax ...` in indented or fenced text, with joined lines."""
  joined = re.sub(r'\\\n\s*', ' ', text)
  joined = re.sub(r'="\{\n\s*', '="{', joined)
  return [
    line.strip().removeprefix('$ ').split('  #')[0].rstrip()
    for line in joined.splitlines()
    if re.match(r'\s*(\$ )?xlflax [a-z]', line)
  ]


def _sources() -> dict[str, str]:
  """Returns the texts that contain command lines, by location."""
  sources = {
    f'xlflax {name} --help': cli.examples(name) for name in cli.COMMANDS
  }
  pages = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
  for page in pages:
    blocks = re.findall(r'```(?:\w*)\n(.*?)```', page.read_text(), re.S)
    sources[str(page.relative_to(ROOT))] = '\n'.join(blocks)
  return sources


def _readable(line: str) -> str | None:
  """Returns the line up to a pipe, or None if it contains omissions."""
  line = re.split(r' (?:\||>|2>|&&|&$|;)', line)[0]
  return None if re.search(r'\.\.\.|…|\$|<\w+>', line) else line


@pytest.mark.parametrize('location', sorted(_sources()))
def test_documented_command_lines_are_valid(location):
  """Flags exist, have valid values, and have an effect."""
  for line in map(_readable, _command_lines(_sources()[location])):
    if line is None:
      continue
    command = shlex.split(line, comments=True)
    name, arguments = command[1], command[2:]
    if name == 'COMMAND' or '--help' in arguments:
      continue
    if name == 'launch' and arguments[0].startswith('--launcher_module'):
      continue  # The module is listed on the page (tests/docs runs it).
    assert name in cli.COMMANDS, line
    try:
      cli.parse(name, arguments)
    except errors.ConfigError as error:
      raise AssertionError(f'{location}: {line}: {error}') from error
