"""The benchmark of checkpoints at a tiny size."""

import pytest

from benchmarks import checkpointing


@pytest.mark.slow
def test_measures_and_restores(tmp_path):
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
  # A save in the background is a part of one that is waited for.
  assert figures['stall_cpu'] <= figures['blocking'] + figures['write']
  text = checkpointing.format_table({'0.01': dict.fromkeys(figures, 0.25)})
  assert text.splitlines()[-1] == '| 0.01 ' + '| 250 (250) ' * 12 + '|'
