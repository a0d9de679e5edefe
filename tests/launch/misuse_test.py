"""Incorrectly started jobs fail with one error on every process."""

import socket
import time

import pytest

from tests import fake_bucket
from tests.end_to_end.conftest import free_port

_TINY = (
  '--gin_file=pretrain/mlm.gin',
  '--gin_file=models/tiny.gin',
  '--gin.LENGTH=16',
  '--gin.BATCH_SIZE=8',
  '--gin.TRAIN_STEPS=4',
  '--gin.WARMUP_STEPS=1',
  '--gin.EncoderConfig.max_position_embeddings=32',
)
_LIMIT = 90  # seconds, for a busy machine


@pytest.fixture
def run_together(workspace, tmp_path):
  """Fixture that runs two processes and returns their outputs."""

  def run(
    *different, port=None, statuses=(2, 2), join_timeout=40, **environment
  ):
    port = port or free_port()
    start = time.monotonic()
    processes = [
      workspace.start(
        'train',
        *_TINY,
        *(() if any('--cache=' in f for f in flags) else [workspace.cache]),
        *workspace.inputs,
        f'--model_dir={tmp_path / "run"}',
        f'--coordinator_address=127.0.0.1:{port}',
        f'--initialization_timeout={join_timeout}',
        *flags,
        **environment,
      )
      for flags in different
    ]
    outputs = [p.communicate(timeout=_LIMIT)[0] for p in processes]
    assert tuple(p.returncode for p in processes) == statuses, outputs
    assert time.monotonic() - start < _LIMIT
    assert not any('Traceback' in output for output in outputs), outputs
    return outputs

  return run


def _flags(i, *extra, count=2):
  return (f'--process_id={i}', f'--num_processes={count}', *extra)


@pytest.mark.slow  # see also joining_test
def test_different_process_counts_are_reported(run_together):
  for output in run_together(_flags(0), _flags(1, count=3)):
    assert 'Got: 2 in process 0' in output and '3 in process 1' in output


@pytest.mark.slow  # see also joining_test
def test_missing_process_is_reported(run_together):
  for output in run_together(
    _flags(0, count=3), _flags(1, count=3), join_timeout=15, statuses=(74, 74)
  ):
    assert '2 of the 3 processes joined' in output and 'missing: 2.' in output


@pytest.mark.slow
def test_different_configurations_are_reported(run_together):
  for output in run_together(_flags(0), _flags(1, '--gin.LEARNING_RATE=0.5')):
    assert 'The processes have different configurations' in output
    assert '+LEARNING_RATE = 0.5' in output


@pytest.mark.slow  # see also joining_test
def test_occupied_port_is_reported(run_together):
  with socket.create_server(('', 0)) as server:
    outputs = run_together(
      _flags(0),
      _flags(1),
      port=server.getsockname()[1],
      join_timeout=10,
      statuses=(74, 74),
    )
  assert 'could not open the port' in outputs[0]
  assert 'Process 0 of the job did not accept this process' in outputs[1]


@pytest.mark.slow
def test_indivisible_batch_size_is_reported(run_together):
  for output in run_together(
    _flags(0, '--gin.BATCH_SIZE=7'), _flags(1, '--gin.BATCH_SIZE=7')
  ):
    assert 'a multiple of 2 (data 2' in output and 'Got: 7' in output


@pytest.mark.slow
def test_user_error_of_one_process_ends_both(run_together, tmp_path):
  """One host lacks the cache; the other would wait in a collective."""
  outputs = run_together(
    _flags(0), _flags(1, f'--cache={tmp_path / "none"}'), statuses=(2, 2)
  )
  assert 'process 1 of 2: ' in outputs[1]
  assert 'process 1 of 2 on ' in outputs[0]


@pytest.mark.slow  # see also paths_test
def test_unreachable_bucket_is_reported(run_together):
  """Both processes report the error before compilation."""
  pytest.importorskip('gcsfs')
  nowhere = fake_bucket.client_environment(f'http://127.0.0.1:{free_port()}')
  flags = ('--model_dir=gs://bucket/run',)
  outputs = run_together(
    _flags(0, *flags), _flags(1, *flags), statuses=(74, 74), **nowhere
  )
  for output in outputs:
    assert 'Got: ValueError: ABORTED' in output
    assert 'Where: gs://bucket/run.' in output
    assert 'Attention backend' not in output
