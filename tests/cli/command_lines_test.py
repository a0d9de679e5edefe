"""Command lines in the documentation and in help are valid."""

import pathlib
import re
import shlex

import pytest

from xlflax import cli
from xlflax.utils import errors

ROOT = pathlib.Path(__file__).parent.parent.parent


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
