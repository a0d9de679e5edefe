"""Tests of the benchmark of row orders."""

import json

import pytest

from benchmarks import row_orders


def test_compute_curve_averages_quarters():
  losses = tuple((10 * k, float(k)) for k in range(8))
  assert row_orders.compute_curve(losses) == [0.5, 2.5, 4.5, 6.5]


def test_compare_curves_pairs_seeds():
  full = [[4.0, 3.0], [5.0, 2.0]]
  comparison = row_orders.compare_curves([[4.5, 3.5], [5.5, 1.5]], full)
  assert comparison == {
    'loss': [5.0, 2.5],
    'difference': [0.5, 0.0],
    'standard_error': [0.0, 0.5],
    'absolute_after_first': 0.5,
  }
  same = row_orders.compare_curves(full, full)
  assert same['difference'] == same['standard_error'] == [0, 0]
  single_seed = row_orders.compare_curves(full[:1], full[:1])
  assert single_seed['standard_error'] == [None, None]


@pytest.mark.slow
def test_row_orders_of_a_tiny_run(tmp_path, capsys):
  row_orders.main(
    [f'--work={tmp_path}', '--steps=40', '--batch=8', '--seeds=2']
  )
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [row['order'] for row in rows] == ['full', 'locality', 'text']
  assert rows[0]['difference'] == [0] * 4
  for row in rows[1:]:
    assert any(row['difference'])
    assert row['loss'][3] < row['loss'][0]
