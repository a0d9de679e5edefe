"""HTML representations of objects in notebooks."""

import html
from collections.abc import Mapping
from typing import Any


def html_table(title: str, rows: Mapping[str, Any]) -> str:
  """Returns the HTML of a titled table of names and values.

  Args:
    title: The title of the table.
    rows: The values by name.
  """
  cells = ''.join(
    f'<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>'
    for name, value in rows.items()
  )
  return f'<b>{html.escape(title)}</b><table>{cells}</table>'
