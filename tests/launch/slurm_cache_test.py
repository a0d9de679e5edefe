"""A token cache written by a job array on a two-node Slurm cluster."""

import argparse

import pytest

from benchmarks import cache_engines
from tests.launch import slurm_cluster

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    slurm_cluster.missing() is not None,
    reason=f'no Slurm: {slurm_cluster.missing()}',
  ),
]


def test_cache_of_an_array_equals_that_of_one_process(tmp_path):
  flags = cache_engines.prepare_inputs(
    argparse.Namespace(
      work=tmp_path,
      data=None,
      megabytes=0.3,
      size=500,
      sentences=2000,
      shard_size=10_000,
    )
  )
  rows = list(cache_engines.compare_engines(tmp_path, flags, ('one', 'slurm')))
  assert [row['equal'] for row in rows] == [True, True]
  assert len(list((tmp_path / 'cache-slurm').rglob('*.safetensors'))) > 20
