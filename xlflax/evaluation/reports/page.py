"""One page of HTML with its tables and pictures inside."""

import base64
import html
import importlib.resources
import pathlib
import shlex
import string
from collections.abc import Mapping, Sequence

from xlflax.evaluation.reports import text

_MOST_COLUMNS = 4  # of numbers, where a table could have fewer


def render(
  title: str,
  explanation: str,
  tables: Sequence[text.Table],
  drawn: Mapping[str, pathlib.Path],
  notes: Sequence[str],
  *,
  command: Sequence[str] = (),
  pictures_first: bool = False,
) -> str:
  """A page that needs no other file.

  Args:
    title: of the page.
    explanation: the paragraph below it.
    tables: in their order.
    drawn: title of a picture -> its PNG file.
    notes: a list at the end.
    command: the words of the command that made it.
    pictures_first: whether the pictures come before the tables.
  """
  images = [
    f'<img src="data:image/png;base64,{_base64(path)}" '
    f'alt="Picture: {html.escape(name)}">'
    for name, path in drawn.items()
  ]
  parts = [
    [_narrow(table).html() for table in tables],
    ['<h2>Pictures</h2>', *images] if images else [],
  ]
  items = ''.join(f'<li>{html.escape(note)}</li>' for note in notes)
  line = html.escape(command_line(command))
  last = [
    f'<h2>Notes</h2><ul>{items}</ul>' if notes else '',
    f'<h2>Command</h2><pre>{line}</pre>' if command else '',
  ]
  body = '\n'.join(sum(parts[::-1] if pictures_first else parts, []))
  return wrap(title, explanation, body + ''.join(last))


def wrap(title: str, explanation: str, body: str) -> str:
  """A page around a body of HTML; title and explanation are text."""
  return _template().substitute(
    title=html.escape(title), explanation=html.escape(explanation), body=body
  )


def command_line(words: Sequence[str]) -> str:
  """A command as a shell reads it, each flag on a line of its own."""
  parts: list[str] = []
  for word in map(_quoted, words):
    if parts and not word.startswith('-'):
      parts[-1] += f' {word}'
    else:
      parts.append(word)
  return ' \\\n    '.join(parts)


def _quoted(word: str) -> str:
  """A word in as few quotes as a shell needs."""
  if shlex.quote(word) == word or "'" not in word or set(word) & set('"$`\\!'):
    return shlex.quote(word)
  name, equals, value = word.partition('=')
  if equals and shlex.quote(name) == name:
    return f'{name}="{value}"'
  return f'"{word}"'


def _narrow(table: text.Table) -> text.Table:
  """The table, turned where it is wider than it is long."""
  numbers = len(table.head) - 1
  is_wide = numbers > max(_MOST_COLUMNS, len(table.rows))
  return table.turned() if is_wide and table.holds_numbers else table


def _template() -> string.Template:
  folder = importlib.resources.files('xlflax.evaluation.reports')
  page = folder.joinpath('leaderboard.html')
  return string.Template(page.read_text(encoding='utf-8'))


def _base64(path: pathlib.Path) -> str:
  return base64.b64encode(path.read_bytes()).decode('ascii')
