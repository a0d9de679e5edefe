"""Tests of equal losses on one device, eight devices and several processes."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.end_to_end.conftest import TINY, TINY_MLM, free_port, losses

_MESH = (
  '--gin.partitioning.Partitioner.data=2',
  '--gin.partitioning.Partitioner.fsdp=2',
  '--gin.partitioning.Partitioner.tensor=2',
)
_STEPS = 20
_WORKER = pathlib.Path(__file__).with_name('batches_worker.py')


@pytest.fixture(scope='module')
def single(workspace):
  """Losses of 20 steps on one device."""
  directory = workspace.root / 'single'
  workspace.train(directory, workspace.cache, steps=_STEPS)
  return losses(directory)


def _assert_close(ours, theirs, tolerance):
  assert ours.keys() == theirs.keys()
  for step, metrics in ours.items():
    for name, value in metrics.items():
      if 'loss' in name:
        assert value == pytest.approx(theirs[step][name], abs=tolerance), (
          step,
          name,
        )


@pytest.mark.slow
def test_eight_devices_equal_one(workspace, single, tmp_path):
  workspace.train(
    tmp_path / 'run', workspace.cache, *_MESH, steps=_STEPS, devices=8
  )
  _assert_close(losses(tmp_path / 'run'), single, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
  'mesh, options', [(_MESH[1:], TINY_MLM), (_MESH, TINY)]
)
def test_two_processes_equal_one_device(workspace, tmp_path, mesh, options):
  """Parameters and layers are sharded, with half of the devices per process."""
  run = dict(steps=_STEPS, options=options)
  workspace.train(tmp_path / 'single', workspace.cache, **run)
  outputs = workspace.train_together(
    tmp_path / 'run', workspace.cache, *mesh, devices=2 ** len(mesh) // 2, **run
  )
  single = losses(tmp_path / 'single')
  _assert_close(losses(tmp_path / 'run'), single, 1e-4)
  assert 'Finished at step 20' in outputs[0]


@pytest.mark.slow
def test_run_resumes_on_two_processes(workspace, single, tmp_path):
  workspace.train(
    tmp_path / 'run', workspace.cache, '--stop_after_steps=10', steps=_STEPS
  )
  workspace.train_together(tmp_path / 'run', workspace.cache, steps=_STEPS)
  _assert_close(losses(tmp_path / 'run'), single, 1e-5)


@pytest.mark.slow
def test_two_processes_see_the_same_batches(workspace, tmp_path):
  port = free_port()
  arguments = [str(workspace.root), str(tmp_path)]
  subprocess.run(
    [sys.executable, _WORKER, *arguments, '1', '0', str(port)],
    check=True,
    env=workspace.environment(),
  )
  together = [
    subprocess.Popen(
      [sys.executable, _WORKER, *arguments, '2', str(i), str(port)],
      env=workspace.environment(),
    )
    for i in range(2)
  ]
  assert [process.wait(timeout=200) for process in together] == [0, 0]
  single_process_batches = dict(np.load(tmp_path / '1-0.npz'))
  halves = [dict(np.load(tmp_path / f'2-{i}.npz')) for i in range(2)]
  assert len(single_process_batches) >= 10
  for name, expected in single_process_batches.items():
    joined = np.concatenate([half[name] for half in halves])
    np.testing.assert_array_equal(joined, expected, err_msg=name)
