"""One page of HTML with its tables and pictures inside."""

import base64
import html
import importlib.resources
import pathlib
import string
from collections.abc import Mapping, Sequence

from xlflax.evaluation.reports import text


def render(
  title: str,
  explanation: str,
  tables: Sequence[text.Table],
  drawn: Mapping[str, pathlib.Path],
  notes: Sequence[str],
  *,
  pictures_first: bool = False,
) -> str:
  """A page that needs no other file.

  Args:
    title: of the page.
    explanation: the paragraph below it.
    tables: in their order.
    drawn: title of a picture -> its PNG file.
    notes: a list at the end.
    pictures_first: whether the pictures come before the tables.
  """
  images = [
    f'<img src="data:image/png;base64,{_base64(path)}" '
    f'alt="Picture: {html.escape(name)}">'
    for name, path in drawn.items()
  ]
  parts = [
    [table.html() for table in tables],
    ['<h2>Pictures</h2>', *images] if images else [],
  ]
  items = ''.join(f'<li>{html.escape(note)}</li>' for note in notes)
  return _template().substitute(
    title=html.escape(title),
    explanation=html.escape(explanation),
    body='\n'.join(sum(parts[::-1] if pictures_first else parts, [])),
    notes=f'<h2>Notes</h2><ul>{items}</ul>' if notes else '',
  )


def _template() -> string.Template:
  folder = importlib.resources.files('xlflax.evaluation.reports')
  page = folder.joinpath('leaderboard.html')
  return string.Template(page.read_text(encoding='utf-8'))


def _base64(path: pathlib.Path) -> str:
  return base64.b64encode(path.read_bytes()).decode('ascii')
