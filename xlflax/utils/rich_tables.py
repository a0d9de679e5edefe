"""Tables that show all columns on a terminal of any width."""

from collections.abc import Iterable, Iterator
from typing import Any

import rich.console
import rich.table


def make_table(
  texts: Iterable[str], numbers: Iterable[str], **options: Any
) -> rich.table.Table:
  """Creates an empty table with the given column headers.

  Args:
    texts: Headers of the left-aligned columns.
    numbers: Headers of the right-aligned columns.
    **options: Arguments of `rich.table.Table`.
  """
  table = rich.table.Table(**options)
  for name in texts:
    table.add_column(name, overflow='fold')
  for name in numbers:
    table.add_column(name, justify='right')
  return table


def print_table(table: rich.table.Table, console: rich.console.Console) -> None:
  """Prints a table, split into several parts if it is wider than the console.

  Rich drops or shortens columns that do not fit. This function instead prints
  parts that consist of the columns that identify a row and as many other
  columns as fit. A single column that is too wide is folded.

  Args:
    table: Table to print. If it is split into parts, each part repeats the
      first column, which identifies the rows. If rows have the same entry in
      this column, the following text columns are also repeated, until all rows
      differ.
    console: The console on which the table is printed.
  """
  for column in table.columns:
    column.overflow = 'fold'
  for part in _parts(table, console):
    console.print(part)


def _parts(
  table: rich.table.Table, console: rich.console.Console
) -> Iterator[rich.table.Table]:
  """Yields tables that fit on the console."""
  if len(table.columns) <= 2 or _fits(table, console):
    yield table
    return
  num_names = _num_name_columns(table)
  if not all(
    _fits(_part(table, num_names, column, column + 1), console)
    for column in range(num_names, len(table.columns))
  ):
    num_names = 1
  start = num_names
  while start < len(table.columns):
    end = start + 1
    while end < len(table.columns) and _fits(
      _part(table, num_names, start, end + 1), console
    ):
      end += 1
    yield _part(table, num_names, start, end)
    start = end


def _num_name_columns(table: rich.table.Table) -> int:
  """Returns the number of leading text columns that identify each row.

  If the text columns do not identify the rows, the result is 1.
  """
  names: list[tuple[str, ...]] = [()] * len(table.rows)
  for num_columns, column in enumerate(table.columns[:-1], 1):
    if num_columns > 1 and column.justify == 'right':
      break
    names = [
      (*name, str(cell)) for name, cell in zip(names, column.cells, strict=True)
    ]
    if len(set(names)) == len(names):
      return num_columns
  return 1


def _fits(table: rich.table.Table, console: rich.console.Console) -> bool:
  """Returns whether a table fits on the console."""
  options = console.options.update(width=10_000)
  return console.measure(table, options=options).maximum <= console.width


def _part(
  table: rich.table.Table, num_names: int, start: int, end: int
) -> rich.table.Table:
  """Returns a table of the first columns and the columns `start` to `end`."""
  is_continued = table.title and start > num_names
  part = rich.table.Table(
    title=f'{table.title} (continued)' if is_continued else table.title,
    title_justify=table.title_justify,
    show_header=table.show_header,
  )
  columns = [*table.columns[:num_names], *table.columns[start:end]]
  for column in columns:
    part.add_column(
      column.header,
      justify=column.justify,
      overflow='fold',
      style=column.style,
      min_width=column.min_width,
      max_width=column.max_width,
    )
  for row, *cells in zip(
    table.rows, *(column.cells for column in columns), strict=True
  ):
    part.add_row(*cells, style=row.style, end_section=row.end_section)
  return part
