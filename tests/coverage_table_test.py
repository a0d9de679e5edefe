"""Every module has a test file of its own name, or is in the table."""

from tests import coverage_table


def test_every_module_has_a_test_file(regenerate_goldens):
  table = coverage_table.generate(coverage_table.read())
  if regenerate_goldens:
    coverage_table.TABLE.write_text(coverage_table.text(table))
  assert [m for m, test in table.items() if not test] == [], (
    'a row in tests/covered_elsewhere.md says which test file runs it'
  )
  assert coverage_table.text(table) == coverage_table.TABLE.read_text(), (
    'make goldens writes the table anew'
  )


def test_mirror():
  assert coverage_table.mirror('xlflax/cli.py') == 'tests/cli_test.py'
  assert coverage_table.mirror('xlflax/a/b.py') == 'tests/a/b_test.py'


def test_rows_that_no_longer_hold_are_replaced():
  table = coverage_table.read()
  module = next(m for m, t in table.items() if t != 'tests/cli_test.py')
  wrong = {module: 'tests/gone_test.py', 'xlflax/gone.py': 'tests/cli_test.py'}
  made = coverage_table.generate(table | wrong)
  assert 'xlflax/gone.py' not in made
  assert made[module] not in ('', 'tests/gone_test.py')
