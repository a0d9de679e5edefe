"""The figures of large caches, at small sizes."""

import numpy as np

from benchmarks import large_corpora


def test_reading_a_synthetic_cache(tmp_path):
  large_corpora.write_synthetic_cache(tmp_path, 200_000, 50_000)
  for locality in (False, True):
    measurement = large_corpora.measure_reading(tmp_path, 2, locality)
    assert measurement['tokens'] == 5 * (50_000 // 26) * 25 >= 200_000
    assert measurement['first_open_seconds_for_each_gb'] > 0
    assert (
      measurement['open_seconds'] < 5
      and measurement['tokens_per_core_second'] > 0
    )


def test_an_order_with_locality_reads_less():
  num_reads = large_corpora.count_epoch_reads(100_000, 100, 4096, 4096)
  assert num_reads['locality']['bytes_per_byte_used'] < 1.2
  assert num_reads['full']['bytes_per_byte_used'] >= 1
  # 100 bytes of a page of 4,096, where the same page comes again too late
  few = large_corpora.count_epoch_reads(100_000, 100, 4096, 100)
  assert few['full']['bytes_per_byte_used'] > 30


def test_reads_are_counted():
  count = large_corpora._count_reads

  assert count(np.array([0, 10, 5]), 5, 10, 10) == 2
  assert count(np.array([8]), 5, 10, 10) == 2
  assert count(np.array([0, 10, 0]), 5, 10, 1) == 3


def test_many_sparse_shards_open(tmp_path):
  large_corpora.write_sparse_cache(tmp_path, 20, 3)
  measurement = large_corpora.measure_many_languages(tmp_path)
  assert measurement['languages'] == 20 and measurement['open_files'] < 1024
