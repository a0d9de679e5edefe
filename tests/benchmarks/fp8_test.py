"""Tests of the FP8 benchmark."""

import json

import pytest

from benchmarks import fp8


@pytest.mark.slow
def test_losses_of_all_precisions_decrease(tmp_path, capsys):
  fp8.main([f'--work={tmp_path}', '--steps=40', '--batch=8', '--seeds=2'])
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [row['matmul_precision'] for row in rows] == list(fp8.VARIANTS)
  for row in rows:
    assert row['loss'][3] < row['loss'][0]
  assert not any(rows[0]['difference'])
  assert any(rows[1]['difference']) and any(rows[2]['difference'])
  assert rows[1]['loss'] != rows[2]['loss']
