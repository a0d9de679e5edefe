"""Conversion rules of T5X checkpoints that do not require T5X."""

import numpy as np
import pytest

from xlflax.interop.t5x import t5_rules


@pytest.mark.parametrize('num_rows', [3, 4, 6])
def test_padded_rows_are_zero(num_rows):
  table = np.arange(10.0).reshape(5, 2)
  padded = t5_rules.with_padded_rows(table, vocab_size=3, num_rows=num_rows)
  assert padded.shape == (num_rows, 2)
  np.testing.assert_array_equal(padded[:3], table[:3])
  assert not np.any(padded[3:])


def test_is_vocabulary_table():
  assert t5_rules.is_vocabulary_table('model/encoder/token')
  assert t5_rules.is_vocabulary_table('model/output')
  assert not t5_rules.is_vocabulary_table('model/encoder/final_norm/scale')
