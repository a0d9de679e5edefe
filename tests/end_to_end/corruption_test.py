"""Tests that silent data corruption is detected and not saved."""

import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from tests.end_to_end.conftest import TINY_MLM, free_port, losses
from tests.errors import assert_mentions
from xlflax.training import param_tree
from xlflax.training.checkpointing import checkpoint_reader

_ROOT = pathlib.Path(__file__).parents[2]
_FLAGS = (
  *TINY_MLM,
  '--gin.EncoderConfig.num_layers=1',
  '--gin.TRAIN_STEPS=32',
  '--gin.checkpoints.CheckpointOptions.save_interval_steps=8',
)
_REPLAY = '--gin.trainer.Trainer.sdc_check_every=12'
_HOST = socket.gethostname()


def _run_job(workspace, run, *faults, devices=1, extra_arguments=(_REPLAY,)):
  """Runs a job with one process per fault; returns statuses and outputs."""
  port, count = free_port(), len(faults)
  arguments = [
    'train',
    *_FLAGS,
    *workspace.inputs,
    workspace.cache,
    *extra_arguments,
  ]
  arguments.append(f'--model_dir={run}')
  if count > 1:
    arguments += [
      f'--coordinator_address=127.0.0.1:{port}',
      f'--num_processes={count}',
    ]
  started = [
    subprocess.Popen(
      [
        sys.executable,
        '-m',
        'tests.end_to_end.corrupt_worker',
        fault,
        *arguments,
      ]
      + ([f'--process_id={i}'] if count > 1 else []),
      env=workspace.environment(devices),
      cwd=_ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for i, fault in enumerate(faults)
  ]
  outputs = [process.communicate(timeout=300)[0] for process in started]
  return [process.returncode for process in started], outputs


def _saved(run) -> list[int]:
  return sorted(int(path.name) for path in (run / 'checkpoints').iterdir())


def _assert_equal(ours, theirs):
  """Asserts equal metrics and bitwise equal parameters and optimizer."""
  assert losses(ours) == losses(theirs)
  for item in ('params', 'train'):
    expected = _arrays(theirs, item)
    arrays = _arrays(ours, item)
    assert arrays.keys() == expected.keys()
    for name, value in arrays.items():
      assert value.tobytes() == expected[name].tobytes(), name


def _arrays(run, item: str):
  """Returns the arrays of an item of the last checkpoint."""
  import orbax.checkpoint as ocp

  path = checkpoint_reader.checkpoint_path(run, 32)
  handler = ocp.StandardCheckpointHandler()
  metadata = handler.metadata(path / item)
  device_sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  tree = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=device_sharding
    ),
    getattr(metadata, 'tree', metadata),
  )
  restored = checkpoint_reader.restore_subtree(path, item, tree)
  return {
    n: np.asarray(x) for n, x in param_tree.flatten_params(restored).items()
  }


@pytest.mark.slow
def test_wrong_step_of_one_process_is_detected(workspace, tmp_path):
  """Process 1 computes step 24 wrongly, so step 24 is reported and not saved."""
  run = tmp_path / 'run'
  statuses, outputs = _run_job(workspace, run, 'none', 'wrong_result')
  assert statuses == [74, 74], outputs
  for process, output in enumerate(outputs):
    (warning,) = [
      line for line in output.splitlines() if 'wrong values' in line
    ]
    assert f'process {process} of 2: A device computed' in warning
    assert 'two computations of one step differ.' in warning
    assert (
      f'Got: params/model/head_norm/scale on process 1 on {_HOST} (device '
    ) in warning
    assert 'process 0 on' not in warning
    assert_mentions(warning, 'step 24', 'step 12')
    assert 'the checkpoint of step 16' in warning
    assert 'Traceback' not in output
  assert _saved(run) == [8, 16]


@pytest.mark.slow
def test_corrupted_job_resumes_with_correct_results(workspace, tmp_path):
  """The resumed run is bitwise equal to a run without replay."""
  run = tmp_path / 'run'
  statuses, outputs = _run_job(workspace, run, 'none', 'wrong_result')
  assert statuses == [74, 74], outputs
  statuses, outputs = _run_job(workspace, run, 'none', 'none')
  assert statuses == [0, 0], outputs
  assert 'Resuming from the checkpoint of step 16' in outputs[0]
  statuses, output = _run_job(
    workspace, tmp_path / 'whole', 'none', 'none', extra_arguments=()
  )
  assert statuses == [0, 0], output
  _assert_equal(run, tmp_path / 'whole')


@pytest.mark.slow
def test_wrong_replica_on_one_device_is_detected(workspace, tmp_path):
  """The replay of step 24 detects it, before step 24 would be saved."""
  run = tmp_path / 'run'
  statuses, (output,) = _run_job(workspace, run, 'wrong_replica', devices=8)
  assert statuses == [74], output
  assert (
    'xlflax train: A device computed or stored wrong values at step 24: the '
    'replicas of an array on different devices differ. '
  ) in output
  assert f'params/model/head_norm/scale on process 0 on {_HOST} (device 7' in (
    output
  )
  assert_mentions(output, 'step 24', 'step 12')
  assert _saved(run) == [8, 16]
  statuses, (output,) = _run_job(workspace, run, 'none', devices=8)
  assert statuses == [0], output
  statuses, (output,) = _run_job(
    workspace, tmp_path / 'whole', 'none', devices=8, extra_arguments=()
  )
  assert statuses == [0], output
  _assert_equal(run, tmp_path / 'whole')


@pytest.mark.slow
@pytest.mark.parametrize('sdc_check_every', [100, 13])
def test_wrong_replica_is_not_saved(workspace, tmp_path, sdc_check_every):
  """This holds even if no step is replayed before the checkpoint."""
  flag = f'--gin.trainer.Trainer.sdc_check_every={sdc_check_every}'
  statuses, (output,) = _run_job(
    workspace,
    tmp_path / 'run',
    'wrong_replica',
    devices=8,
    extra_arguments=(flag,),
  )
  assert statuses == [74], output
  assert_mentions(output, 'step 24')
  assert _saved(tmp_path / 'run') == [8, 16]
