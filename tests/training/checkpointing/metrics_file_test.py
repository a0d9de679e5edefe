"""Tests of truncating and verifying the metrics file of a resumed run."""

import json
import shutil

import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.storage import checksums
from xlflax.training.checkpointing import (
  checkpoints,
  metrics_file,
  run_directory,
)
from xlflax.training.optimization import optimizers
from xlflax.utils import errors


@pytest.mark.parametrize(
  ('step', 'num_kept'), [(-1, 0), (0, 0), (20, 2), (99, 3)]
)
def test_metrics_after_a_step_are_dropped(tmp_path, step, num_kept):
  lines = [
    json.dumps({'step': s, 'train': {'loss': 1.0}}) + '\n' for s in (10, 20, 30)
  ]
  path = tmp_path / metrics_file.METRICS
  path.write_text(
    ''.join(lines) + '{"step": 15, "tra'
  )  # truncated line of a killed process
  metrics_file.truncate_metrics(tmp_path, step)
  assert path.read_text() == ''.join(lines[:num_kept])


def test_metrics_are_truncated_to_the_checkpoint_digest(tmp_path, caplog):
  """Changed metrics cause a warning, and matching lines are kept."""
  lines = [f'{{"step": {s}}}\n' for s in (10, 20, 30)]
  path = tmp_path / metrics_file.METRICS
  path.write_text(''.join(lines))
  digest = checksums.digest_content(''.join(lines[:2]))
  metrics_file.truncate_metrics(tmp_path, 20, written=digest)
  assert path.read_text() == ''.join(lines[:2]) and not caplog.text
  for content, expected_content in (
    (lines[0] + lines[0] + lines[2], lines[0] * 2),
    (lines[0], lines[0]),
    ('[' * 10**5 + '\n' + lines[1], lines[1]),
  ):
    path.write_text(content)
    caplog.clear()
    metrics_file.truncate_metrics(tmp_path, 20, written=digest)
    assert path.read_text() == expected_content
    assert caplog.records
  path.unlink()
  metrics_file.truncate_metrics(tmp_path, 20, written=digest)
  assert_mentions(caplog.text, 0)


def test_restart_costs_are_kept(tmp_path):
  restart_line = '{"step": 25, "restart": {"lost": 9.0}}\n'
  path, first, second = (
    tmp_path / metrics_file.METRICS,
    *(f'{{"step": {s}}}\n' for s in (10, 30)),
  )
  for digest in ('', checksums.digest_content(first)):
    path.write_text(first + restart_line + second)
    metrics_file.truncate_metrics(tmp_path, 10, written=digest)
    assert path.read_text() == first + restart_line


def test_line_without_newline_is_dropped(tmp_path):
  """Otherwise, the next line would be appended to it."""
  path = tmp_path / metrics_file.METRICS
  path.write_text('{"step": 1}\n{"step": 2}')
  metrics_file.truncate_metrics(tmp_path, 9)
  assert path.read_text() == '{"step": 1}\n'


def test_truncating_missing_metrics_creates_no_file(tmp_path):
  metrics_file.truncate_metrics(tmp_path, 9)
  assert not list(tmp_path.iterdir())


def test_metrics_of_another_run_are_rejected(tmp_path):
  """The newest checkpoint contains the digest of the metrics."""
  path, lines = tmp_path / metrics_file.METRICS, b'{"step": 1}\n'
  assert metrics_file.read_verified(tmp_path) == b''
  path.write_bytes(lines)
  assert metrics_file.read_verified(tmp_path) == lines  # no checkpoint yet
  saved = checkpoints.Checkpoints(
    tmp_path, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  saved.save(
    state.replace(step=jnp.int32(1)),
    {'metrics_file': checksums.digest_content(lines)},
  )
  saved.close()
  path.write_bytes(lines * 2)  # written after the checkpoint
  assert metrics_file.read_verified(tmp_path) == lines * 2
  for other in (b'{"step": 2}\n', b'', lines[:-1]):
    path.write_bytes(other)
    with raises_error(errors.RunDirectoryError, where='metrics.jsonl'):
      metrics_file.read_verified(tmp_path)


def test_metrics_and_checkpoint_of_another_run_are_rejected(tmp_path):
  """They match each other, but not this run's model.json."""
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  ours, theirs = tmp_path / 'ours', tmp_path / 'theirs'
  for step, run in enumerate((ours, theirs), start=1):
    run_directory.write_json(run / run_directory.MODEL, {'run': run.name})
    lines = b'{"step": %d}\n' % step
    (run / metrics_file.METRICS).write_bytes(lines)
    saved = checkpoints.Checkpoints(
      run, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
    )
    saved.save(
      state.replace(step=jnp.int32(1)),
      {'metrics_file': checksums.digest_content(lines)},
    )
    saved.close()
    assert metrics_file.read_verified(run) == lines
  for name in ('checkpoints/1', metrics_file.METRICS):
    other = ours / name
    shutil.rmtree(other) if other.is_dir() else other.unlink()
    (theirs / name).rename(other)
  with raises_error(errors.RunDirectoryError, got='theirs', where='1'):
    metrics_file.read_verified(ours)
