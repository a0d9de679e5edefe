"""Both orders of rows from a store in which each request waits.

  python -m benchmarks.throttled_reads --work=DIR --tokens=100000000

Reads a cache of synthetic ids by ranges of bytes, as from a bucket; in place of
the bucket stands a folder of which each request takes `--latency_ms` and the
time of its bytes at `--megabytes_a_second`. With locality all of an epoch is
read, and of all rows shuffled only `--full_rows`, where every row is the same.
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
  """What `remote` needs of a file system, with waits."""

  def __init__(self, latency: float, bytes_a_second: float):
    self.requests = self.bytes = 0
    self._latency, self._rate = latency, bytes_a_second

  def cat_file(self, path: str, start: int, end: int) -> bytes:
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
  """Reads rows from step 0 on.

  Args:
    directory: of a cache of `large_corpora.write_synthetic`.
    store: what is read from.
    locality: the order.
    rows: as many; None: an epoch.

  Returns:
    Rows, requests, bytes read per byte of the rows' tokens, rows a second.
  """
  blocks = remote_shards.BlockCache()

  def make(self, number: int):
    path = cache_format.shard_file(self._directory, self.entries[number].name)
    return remote_shards.RemoteShard(path)

  with (
    mock.patch.object(ragged_arrays.Shards, '_open_shard', make),
    mock.patch.object(remote_shards, '_filesystem', lambda scheme: store),
    mock.patch.object(remote_shards, 'process_block_cache', lambda: blocks),
  ):
    loader = large_corpora.open_loader(directory, locality, verified=None)
    count = rows or sum(row.rows for row in loader.statistics())
    start = time.perf_counter()
    for step in range(max(1, count // _LENGTH)):
      used = loader.rows(step, 0, _LENGTH)['token_ids']
    seconds = time.perf_counter() - start
  count = max(1, count // _LENGTH) * _LENGTH
  # bos and eos of a row are not read
  text = count * (used.shape[1] - 2) * _TOKEN_BYTES
  return {
    'rows': count,
    'requests': store.requests,
    'bytes_per_byte_used': round(store.bytes / text, 3),
    'rows_a_second': round(count / seconds),
  }


def main(arguments: list[str] | None = None) -> None:
  """Prints a line of JSON for each order."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--work', type=pathlib.Path, required=True)
  parser.add_argument('--tokens', type=int, default=100_000_000)
  parser.add_argument('--shard', type=int, default=16_000_000)
  parser.add_argument('--latency_ms', type=float, default=5)
  parser.add_argument('--megabytes_a_second', type=float, default=100)
  parser.add_argument('--full_rows', type=int, default=2048)
  args = parser.parse_args(arguments)
  if not (args.work / cache_format.CACHE_FILE).exists():
    large_corpora.write_synthetic_cache(args.work, args.tokens, args.shard)
  for name, rows in (('locality', None), ('full', args.full_rows)):
    store = ThrottledStore(args.latency_ms / 1e3, args.megabytes_a_second * 1e6)
    found = measure_reading(
      args.work, store, locality=name == 'locality', rows=rows
    )
    print(json.dumps({'order': name} | found), flush=True)


if __name__ == '__main__':
  main()
