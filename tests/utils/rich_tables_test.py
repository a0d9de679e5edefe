import io

import pytest
import rich.console
import rich.table

from xlflax.utils import rich_tables


def _table(columns):
  table = rich.table.Table(title='Stream', title_justify='left')
  table.add_column('task')
  for n in range(columns):
    table.add_column(f'column{n}', justify='right')
  table.add_row('en', *(f'{1_000_000 + n:,}' for n in range(columns)))
  table.add_row('mean', *('-' for _ in range(columns)), style='bold')
  return table


def _shown(table, width):
  stream = io.StringIO()
  rich_tables.print_table(table, rich.console.Console(file=stream, width=width))
  return stream.getvalue()


@pytest.mark.parametrize('width', [24, 40, 80, 200])
def test_all_columns_are_printed_at_any_width(width):
  text = _shown(_table(9), width)
  assert all(f'column{n}' in text for n in range(9))
  assert all(f'{1_000_000 + n:,}' in text for n in range(9))
  assert '…' not in text
  assert max(map(len, text.splitlines())) <= width


def test_parts_of_a_table_repeat_the_row_names():
  text = _shown(_table(9), 60)
  num_parts = text.count('task')
  assert num_parts > 1
  assert text.count('Stream (continued)') == num_parts - 1
  assert text.count('mean') == num_parts


def test_narrow_table_is_not_split():
  text = _shown(_table(3), 80)
  assert text.count('task') == 1 and 'continued' not in text


def test_wide_column_is_folded():
  table = rich.table.Table('task', 'value')
  table.add_row('a', 'x' * 100)
  assert _shown(table, 40).count('x') == 100


@pytest.mark.parametrize('width', [40, 50, 80])
def test_parts_of_a_table_repeat_all_name_columns(width):
  table = rich_tables.make_table(
    ('part', 'phase', 'note'), [f'column{n}' for n in range(6)], title='Parts'
  )
  for part in ('mlp', 'norm'):
    for phase in ('forward', 'backward'):
      table.add_row(part, phase, '', *('1.0' for _ in range(6)))
  text = _shown(table, width)
  num_parts = text.count('part ')
  assert num_parts > 1
  assert text.count('phase') == num_parts
  assert text.count('forward') == text.count('backward') == 2 * num_parts
  assert text.count('note') == 1
  assert all(text.count(f'column{n}') == 1 for n in range(6))


def test_long_row_names_are_not_repeated():
  table = rich_tables.make_table(('part', 'phase'), ('a', 'b'))
  for phase in ('x' * 30, 'y' * 30):
    table.add_row('mlp', phase, '1' * 20, '2' * 20)
  text = _shown(table, 40)
  assert text.count('1' * 20) == text.count('2' * 20) == 2
  assert max(map(len, text.splitlines())) <= 40
  assert 'None' not in text
