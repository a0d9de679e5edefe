"""Reader for shards in a bucket, which downloads only the required bytes.

Bytes are read in blocks, and the most recently used blocks are kept in memory.
Memory use therefore does not depend on the size of the cache. If sequences are
read in an order with locality (`dataset_config.Locality`), each block is read
only once.
"""

import collections
import functools
import json
import os
import pathlib
import threading
from typing import Any

import numpy as np

from xlflax.data.cache import shards
from xlflax.storage import paths

BLOCK = 1 << 17
_MAX_BLOCKS = 2048


class BlockCache:
  """Least-recently-used (LRU) memory cache for blocks of objects in buckets.

  Attributes:
    requests: Number of byte ranges that have been read from buckets.
  """

  def __init__(self, max_blocks: int = _MAX_BLOCKS, block_size: int = BLOCK):
    """Creates an empty cache.

    Args:
      max_blocks: Maximum number of blocks kept in memory.
      block_size: Size of a block in bytes.
    """
    self.requests = 0
    self._max_blocks = max_blocks
    self._block_size = block_size
    self._blocks: collections.OrderedDict[Any, bytes] = (
      collections.OrderedDict()
    )
    self._lock = threading.Lock()

  def read(self, path: str, start: int, stop: int) -> bytes:
    """Reads the bytes of an object in the half-open range [start, stop)."""
    first = start // self._block_size
    last = max(stop - 1, start) // self._block_size
    content = b''.join(
      self._read_block(path, number) for number in range(first, last + 1)
    )
    offset = start - first * self._block_size
    return content[offset : offset + stop - start]

  def _read_block(self, path: str, number: int) -> bytes:
    """Returns a block from memory, or reads it from the bucket."""
    key = path, number
    with self._lock:
      if key in self._blocks:
        self._blocks.move_to_end(key)
        return self._blocks[key]
    start = number * self._block_size
    content = _filesystem(path.partition('://')[0]).cat_file(
      path, start=start, end=start + self._block_size
    )
    with self._lock:
      self.requests += 1
      self._blocks[key] = content
      while len(self._blocks) > self._max_blocks:
        self._blocks.popitem(last=False)
    return content


@functools.cache
def process_block_cache() -> BlockCache:
  """Returns the process-wide block cache."""
  return BlockCache()


@functools.cache
def _filesystem(scheme: str):
  return paths.get_filesystem(f'{scheme}://')


class RemoteShard(shards.Shard):
  """Shard stored in a bucket; see `shards.Shard`.

  Offsets are read completely, but tokens are read only in the required byte
  ranges.

  Raises:
    CacheError: If the object does not exist or is not a shard.
  """

  def _open(self, path: pathlib.Path, ahead: bool) -> None:
    """Reads the header of the object."""
    self._read = functools.partial(process_block_cache().read, os.fspath(path))
    length = int.from_bytes(self._read(0, 8), 'little')
    self._size = paths.file_size(path)
    if 8 + length > self._size:
      raise ValueError('The header of the shard is longer than the file.')
    self._arrays = json.loads(self._read(8, 8 + length))
    self._begin = 8 + length

  def release_pages(self) -> None:
    """Does nothing, because a remote shard has no memory-mapped pages."""

  def _map(self, start: int, size: int, dtype: np.dtype) -> np.ndarray:
    content = self._read(start, start + size * dtype.itemsize)
    return np.frombuffer(content, dtype)
