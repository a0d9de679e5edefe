"""Compares the paired tests with SciPy."""

import numpy as np
import pytest
from scipy import stats

from xlflax.evaluation.metrics import paired_comparison
from xlflax.utils import errors


def test_comparison_equals_scipy():
  rng = np.random.default_rng(0)
  first, second = rng.normal(size=5), rng.normal(1.0, size=5)
  comparison = paired_comparison.compare_paired(first, second)
  expected = stats.ttest_rel(second, first)
  interval = expected.confidence_interval(0.95)
  assert comparison.p_value == pytest.approx(expected.pvalue)
  assert (comparison.low, comparison.high) == pytest.approx(tuple(interval))
  assert comparison.difference == pytest.approx(second.mean() - first.mean())
  assert comparison.runs == (5, 5)


def test_pairing_removes_common_variance():
  spread = np.array([0.0, 10.0, 20.0, 30.0])
  noise = np.array([0.1, -0.1, 0.05, -0.05])
  assert (
    paired_comparison.compare_paired(spread, spread + 1 + noise).p_value < 0.001
  )
  assert stats.ttest_ind(spread, spread + 1 + noise).pvalue > 0.5


@pytest.mark.parametrize(('change', 'p_value'), [(0.0, 1.0), (0.5, 0.0)])
def test_constant_differences(change, p_value):
  comparison = paired_comparison.compare_paired(
    [1.0, 2.0], [1.0 + change, 2.0 + change]
  )
  assert (comparison.low, comparison.high, comparison.p_value) == (
    change,
    change,
    p_value,
  )


@pytest.mark.parametrize('second', [[1.0], [1.0, 2.0, 3.0]])
def test_mismatched_seeds_are_rejected(second):
  with pytest.raises(errors.ConfigError):
    paired_comparison.compare_paired([1.0, 2.0][: len(second)], second)
