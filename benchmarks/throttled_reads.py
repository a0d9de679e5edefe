"""Speed of reading shuffled sequences from slow remote storage.

  python -m benchmarks.throttled_reads --work=DIR --tokens=100000000

Reads a cache of synthetic token IDs by byte ranges, as if it were stored in a
bucket. A local folder takes the bucket's place, and each request is delayed by
`--latency_ms` plus the time to transfer its bytes at `--megabytes_a_second`.
The sequences are shuffled block by block (locality), or all sequences are
shuffled together. With locality, a complete epoch is read. If all sequences are
shuffled, only `--full_rows` sequences are read, because each of them takes the
same time.
"""

import argparse
import json
import pathlib
import time
from unittest import mock

from benchmarks import large_corpora
from xlflax.data.cache import cache_format, ragged_arrays, remote_shards

_LENGTH = 512
_TOKEN_BYTES = 2


class ThrottledStore:
  """File system with delayed reads, which simulates remote storage.

  Attributes:
    requests: Number of requests so far.
    bytes: Number of bytes read so far.
  """

  def __init__(self, latency: float, bytes_a_second: float):
    self.requests = self.bytes = 0
    self._latency, self._rate = latency, bytes_a_second

  def cat_file(self, path: str, start: int, end: int) -> bytes:
    """Returns the bytes of a file from `start` to `end` after a delay."""
    with open(path, 'rb') as file:
      file.seek(start)
      content = file.read(end - start)
    self.requests += 1
    self.bytes += len(content)
    time.sleep(self._latency + len(content) / self._rate)
    return content


def measure_reading(
  directory: pathlib.Path,
  store: ThrottledStore,
  *,
  locality: bool,
  rows: int | None,
) -> dict:
  """Reads sequences from the store, starting at step 0, and measures the reads.

  Args:
    directory: Cache written by `large_corpora.write_synthetic_cache`.
    store: Store from which the sequences are read.
    locality: Whether to shuffle sequences block by block, as specified by
      `dataset_config.Locality`. Otherwise, all sequences are shuffled.
    rows: Number of sequences to read. If None, one epoch is read.

  Returns:
    The number of sequences and requests, the bytes read per byte of the
    sequences' tokens, and the sequences per second.
  """
  blocks = remote_shards.BlockCache()

  def open_shard(self, number: int):
    path = cache_format.shard_file(self._directory, self.entries[number].name)
    return remote_shards.RemoteShard(path)

  with (
    mock.patch.object(ragged_arrays.Shards, '_open_shard', open_shard),
    mock.patch.object(remote_shards, '_filesystem', lambda scheme: store),
    mock.patch.object(remote_shards, 'process_block_cache', lambda: blocks),
  ):
    loader = large_corpora.open_loader(directory, locality, verified=None)
    count = rows or sum(row.rows for row in loader.statistics())
    start = time.perf_counter()
    for step in range(max(1, count // _LENGTH)):
      token_ids = loader.rows(step, 0, _LENGTH)['token_ids']
    seconds = time.perf_counter() - start
  count = max(1, count // _LENGTH) * _LENGTH
  # BOS and EOS are added to the sequences, not read from the store.
  text_bytes = count * (token_ids.shape[1] - 2) * _TOKEN_BYTES
  return {
    'rows': count,
    'requests': store.requests,
    'bytes_per_byte_used': round(store.bytes / text_bytes, 3),
    'rows_a_second': round(count / seconds),
  }


def main(arguments: list[str] | None = None) -> None:
  """Measures both sequence orders and prints a line of JSON for each order."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--work',
    type=pathlib.Path,
    required=True,
    help='Directory of the cache, which is created if it does not exist.',
  )
  add(
    '--tokens', type=int, default=100_000_000, help='Minimum number of tokens.'
  )
  add(
    '--shard', type=int, default=16_000_000, help='Number of tokens per shard.'
  )
  add('--latency_ms', type=float, default=5, help='Latency of a request in ms.')
  add(
    '--megabytes_a_second', type=float, default=100, help='Bandwidth in MB/s.'
  )
  add(
    '--full_rows',
    type=int,
    default=2048,
    help='Number of sequences to read if all sequences are shuffled.',
  )
  args = parser.parse_args(arguments)
  if not (args.work / cache_format.CACHE_FILE).exists():
    large_corpora.write_synthetic_cache(args.work, args.tokens, args.shard)
  for name, rows in (('locality', None), ('full', args.full_rows)):
    store = ThrottledStore(args.latency_ms / 1e3, args.megabytes_a_second * 1e6)
    results = measure_reading(
      args.work, store, locality=name == 'locality', rows=rows
    )
    print(json.dumps({'order': name} | results), flush=True)


if __name__ == '__main__':
  main()
