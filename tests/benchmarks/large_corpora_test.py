"""Tests of the large cache benchmarks at small sizes."""

import numpy as np

from benchmarks import large_corpora


def test_measure_reading_of_a_synthetic_cache(tmp_path):
  large_corpora.write_synthetic_cache(tmp_path, 200_000, 50_000)
  for locality in (False, True):
    measurement = large_corpora.measure_reading(tmp_path, 2, locality)
    assert measurement['tokens'] == 5 * (50_000 // 26) * 25 >= 200_000
    assert measurement['first_open_seconds_for_each_gb'] > 0
    assert (
      measurement['open_seconds'] < 5
      and measurement['tokens_per_core_second'] > 0
    )


def test_order_with_locality_reads_fewer_bytes():
  num_reads = large_corpora.count_epoch_reads(100_000, 100, 4096, 4096)
  assert num_reads['locality']['bytes_per_byte_used'] < 1.2
  assert num_reads['full']['bytes_per_byte_used'] >= 1
  # Each row of 100 bytes reads a page of 4,096 bytes that is evicted before reuse.
  few = large_corpora.count_epoch_reads(100_000, 100, 4096, 100)
  assert few['full']['bytes_per_byte_used'] > 30


def test_count_reads_of_a_small_page_cache():
  count = large_corpora._count_reads

  assert count(np.array([0, 10, 5]), 5, 10, 10) == 2
  assert count(np.array([8]), 5, 10, 10) == 2
  assert count(np.array([0, 10, 0]), 5, 10, 1) == 3


def test_measure_many_languages_limits_open_files(tmp_path):
  large_corpora.write_sparse_cache(tmp_path, 20, 3)
  measurement = large_corpora.measure_many_languages(tmp_path)
  assert measurement['languages'] == 20 and measurement['open_files'] < 1024
