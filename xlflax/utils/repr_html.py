"""HTML representations of objects, for display in notebooks."""

import html
from collections.abc import Mapping
from typing import Any


def html_table(title: str, rows: Mapping[str, Any]) -> str:
  """Formats names and values as an HTML table with a title.

  Args:
    title: The title of the table.
    rows: Mapping from names to values. Each name and its value form one row of
      the table.
  """
  cells = ''.join(
    f'<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>'
    for name, value in rows.items()
  )
  return f'<b>{html.escape(title)}</b><table>{cells}</table>'
