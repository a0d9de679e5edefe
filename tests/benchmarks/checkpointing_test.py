"""Tests of the checkpointing benchmark."""

import pytest

from benchmarks import checkpointing


@pytest.mark.slow
def test_checkpointing_benchmark_measures_all_phases(tmp_path):
  figures = checkpointing.measure_checkpointing(
    tmp_path, megabytes=0.01, step_seconds=1e-3, saves=1
  )
  for name in (
    'copy',
    'stall',
    'step',
    'step_while_writing',
    'write',
    'blocking',
    'restore',
    'restore plain',
    'save',
    'save plain',
    'run',
    'run plain',
  ):
    assert figures[name] > 0 and figures[f'{name}_cpu'] >= 0
  # A background save is not longer than a blocking save.
  assert figures['stall_cpu'] <= figures['blocking'] + figures['write']
  text = checkpointing.format_table({'0.01': dict.fromkeys(figures, 0.25)})
  assert text.splitlines()[-1] == '| 0.01 ' + '| 250 (250) ' * 12 + '|'
