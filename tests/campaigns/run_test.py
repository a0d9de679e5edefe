"""Tests of the table of campaign results."""

from tests.campaigns import counts, run


def test_write_table_replaces_the_table_between_markers(tmp_path):
  page = tmp_path / 'page.md'
  page.write_text('before\n<!-- campaign -->\nold\n<!-- end -->\nafter\n')
  totals = counts.Counts()
  totals.add('noticed')
  totals.add('silent', 'flip of a')
  for _ in range(2):
    run.write_table(page, {'mutations': totals})
  assert page.read_text() == (
    'before\n<!-- campaign -->\n\n'
    '| campaign | cases | outcomes | violations |\n'
    '| --- | --- | --- | --- |\n'
    '| mutations | 2 | 1 noticed, 1 silent | 1 |\n'
    '\n<!-- end -->\nafter\n'
  )
