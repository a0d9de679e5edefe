"""How objects look in notebooks."""

import html
from collections.abc import Mapping
from typing import Any


def html_table(title: str, rows: Mapping[str, Any]) -> str:
  """HTML of a titled table with a row for each name and its value."""
  cells = ''.join(
    f'<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>'
    for name, value in rows.items()
  )
  return f'<b>{html.escape(title)}</b><table>{cells}</table>'
