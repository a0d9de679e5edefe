"""A run in a bucket is the run on disk, by one process and by two."""

import pathlib
import tempfile

import numpy as np
import pytest

from tests import fake_bucket
from tests.end_to_end.conftest import TINY, free_port, losses
from xlflax.training import params, run

_FLAGS = ('--gin.checkpoints.CheckpointOptions.every_steps=4',
          '--gin.checkpoints.CheckpointOptions.keep_last=2')
_STEPS = '--gin.TRAIN_STEPS=8'


@pytest.fixture
def bucket():
  """(the bucket, variables for processes that use it)."""
  pytest.importorskip('gcsfs')
  with fake_bucket.serve() as (found, address):
    yield found, fake_bucket.variables(address)


def _copied(found: fake_bucket.Bucket, name: str) -> pathlib.Path:
  """The objects of a run as files."""
  folder = pathlib.Path(tempfile.mkdtemp())
  for key, (_, content) in found.objects.items():
    if key.startswith(f'{name}/'):
      (folder / key).parent.mkdir(parents=True, exist_ok=True)
      (folder / key).write_bytes(content)
  return folder / name


@pytest.mark.slow
def test_stopped_and_continued_in_a_bucket(workspace, bucket, tmp_path):
  """One process to step 6, then two processes, whose batches are the same."""
  found, variables = bucket
  common = ('train', *TINY, *_FLAGS, _STEPS, *workspace.inputs,
            workspace.cache)
  workspace.run(*common, f'--model_dir={tmp_path / "run"}')
  workspace.run(*common, '--model_dir=gs://bucket/run', '--stop_at_step=6',
                **variables)
  port = free_port()
  processes = [workspace.start(
      *common, '--model_dir=gs://bucket/run', '--num_processes=2',
      f'--process_id={i}', f'--coordinator=127.0.0.1:{port}', **variables)
               for i in range(2)]
  outputs = [process.communicate(timeout=300)[0] for process in processes]
  assert [p.returncode for p in processes] == [0, 0], outputs
  assert 'Continuing from the checkpoint of step 6' in outputs[0]
  copy = _copied(found, 'run')
  expected, got = (params.names(run.open_run(d).restore_params(8))
                   for d in (tmp_path / 'run', copy))
  for name, value in expected.items():
    np.testing.assert_allclose(got[name], value, atol=1e-4, err_msg=name)
  assert losses(copy).keys() == losses(tmp_path / 'run').keys()
