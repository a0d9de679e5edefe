"""Tests of the benchmark of throttled reads."""

import json

from benchmarks import throttled_reads


def test_order_with_locality_reads_fewer_bytes(tmp_path, capsys):
  throttled_reads.main(
    [
      f'--work={tmp_path}',
      '--tokens=570000',
      '--shard=150000',
      '--latency_ms=0',
      '--full_rows=512',
    ]
  )
  with_locality, full = map(json.loads, capsys.readouterr().out.splitlines())
  # The cache is smaller than the memory limit, so all of it is read once.
  assert (
    with_locality['rows'] == 1024
    and 1 <= with_locality['bytes_per_byte_used'] < 1.5
  )
  assert full['rows'] == 512 and full['requests'] >= 4
  assert full['bytes_per_byte_used'] > with_locality['bytes_per_byte_used']


def test_throttled_store_delays_requests(tmp_path):
  (tmp_path / 'x').write_bytes(bytes(1000))
  store = throttled_reads.ThrottledStore(0.01, 1e5)
  start = throttled_reads.time.perf_counter()
  assert len(store.cat_file(str(tmp_path / 'x'), 100, 600)) == 500
  assert throttled_reads.time.perf_counter() - start > 0.0149
  assert (store.requests, store.bytes) == (1, 500)
