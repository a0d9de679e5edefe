"""Numbers with nouns."""

import pytest

from xlflax.utils import plurals


@pytest.mark.parametrize(
  ('count', 'expected'),
  [(0, '0 steps'), (1, '1 step'), (2, '2 steps'), (1000, '1,000 steps')],
)
def test_counts(count, expected):
  assert plurals.format_count(count, 'step') == expected
