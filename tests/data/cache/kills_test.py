"""Tests that randomly killed cache workers write the same files."""

import multiprocessing
import random

import pytest

from tests.data.cache import writing
from xlflax.data.cache import cache_writer


def _plan(directory, corpus, vocabulary):
  return writing.plan(
    directory, corpus, vocabulary, mixtures=writing.BOTH, shard_size=256
  )


@pytest.fixture(scope='module')
def complete_cache(tmp_path_factory, toy_corpus, toy_vocabulary):
  directory = tmp_path_factory.mktemp('written')
  cache_writer.write_cache(_plan(directory, toy_corpus, toy_vocabulary))
  return writing.files(directory)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(20))
def test_killed_workers_write_the_same_files(
  complete_cache, tmp_path, toy_corpus, toy_vocabulary, seed
):
  """Workers are forked to start quickly and killed within 0.1 seconds."""
  plan, rng = _plan(tmp_path, toy_corpus, toy_vocabulary), random.Random(seed)
  context = multiprocessing.get_context('fork')
  running, kills = {0, 1, 2}, 0
  while running:
    workers = {
      partition_index: context.Process(
        target=cache_writer.write_partition, args=(plan, (partition_index, 3))
      )
      for partition_index in sorted(running)
    }
    for worker in workers.values():
      worker.start()
    for partition_index, worker in workers.items():
      if kills < 12:
        worker.join(rng.random() / 10)
        worker.kill()
        kills += 1
      worker.join()
      if worker.exitcode == 0:
        running.remove(partition_index)
  assert kills >= 3
  cache_writer.finalize_cache(plan)
  assert writing.files(tmp_path) == complete_cache
