"""Notes on truncated sentences."""

import pytest

from xlflax.evaluation.tasks import truncation_notes


@pytest.mark.parametrize(
  ('count', 'expected'),
  [
    (1, '1 sentence of de was truncated'),
    (2, '2 sentences of de were truncated'),
  ],
)
def test_truncated_sentences(count, expected):
  assert truncation_notes.format_truncated(count, 'de') == expected
