"""Fixtures for tests that run processes and Slurm jobs."""

import pytest

from tests.end_to_end.conftest import losses, workspace  # noqa: F401
from tests.launch import slurm_cluster, slurm_jobs


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
  # The path of munge's socket is limited to 107 characters.
  folder = tmp_path_factory.mktemp('slurm')
  with slurm_cluster.TinyCluster(folder) as tiny:
    yield tiny


@pytest.fixture(scope='module')
def uninterrupted(workspace):  # noqa: F811
  """Losses of two processes that were never stopped."""
  directory = workspace.root / 'uninterrupted_two'
  workspace.run(
    'launch',
    'local',
    '--nproc_per_node=2',
    '--cpu_devices=1',
    '--',
    *slurm_jobs.train(workspace, directory),
  )
  return losses(directory)
