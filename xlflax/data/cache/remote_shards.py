"""Shards of a cache in a bucket, read by ranges of bytes.

A range is read in blocks, of which the last ones used stay in memory: so the
memory does not depend on the size of the cache, and rows in an order with
locality (`dataset_config.Locality`) read each block once.
"""

import collections
import functools
import json
import os
import pathlib
import threading
from typing import Any

import numpy as np

from xlflax.data.cache import shards as cache_shards
from xlflax.storage import paths

BLOCK = 1 << 17
_KEPT_BLOCKS = 2048


class BlockCache:
  """Blocks of objects in buckets, the last ones used in memory.

  Attributes:
    requests: ranges that were read.
  """

  def __init__(self, kept: int = _KEPT_BLOCKS, block: int = BLOCK):
    self.requests = 0
    self._kept, self._block = kept, block
    self._blocks: collections.OrderedDict[Any, bytes] = (
      collections.OrderedDict()
    )
    self._lock = threading.Lock()

  def read(self, path: str, start: int, stop: int) -> bytes:
    """Bytes start .. stop - 1 of an object."""
    first, last = start // self._block, max(stop - 1, start) // self._block
    joined = b''.join(self._get(path, k) for k in range(first, last + 1))
    begin = start - first * self._block
    return joined[begin : begin + stop - start]

  def _get(self, path: str, number: int) -> bytes:
    key = path, number
    with self._lock:
      if key in self._blocks:
        self._blocks.move_to_end(key)
        return self._blocks[key]
    start = number * self._block
    content = _filesystem(path.partition('://')[0]).cat_file(
      path, start=start, end=start + self._block
    )
    with self._lock:
      self.requests += 1
      self._blocks[key] = content
      while len(self._blocks) > self._kept:
        self._blocks.popitem(last=False)
    return content


@functools.cache
def process_block_cache() -> BlockCache:
  """That of this process."""
  return BlockCache()


@functools.cache
def _filesystem(scheme: str):
  return paths.get_filesystem(f'{scheme}://')


class RemoteShard(cache_shards.Shard):
  """See `shards.Shard`; offsets are read as a whole, tokens by ranges.

  Raises:
    CacheError: the object is missing or is no shard.
  """

  def _open(self, path: pathlib.Path, ahead: bool) -> None:
    self._read = functools.partial(process_block_cache().read, os.fspath(path))
    length = int.from_bytes(self._read(0, 8), 'little')
    self._size = paths.file_size(path)
    if 8 + length > self._size:
      raise ValueError('its header ends behind the end of the file')
    self._arrays = json.loads(self._read(8, 8 + length))
    self._begin = 8 + length

  def release_pages(self) -> None:
    """Does nothing: blocks are limited anyway."""

  def _map(self, start: int, size: int, dtype: np.dtype) -> np.ndarray:
    content = self._read(start, start + size * dtype.itemsize)
    return np.frombuffer(content, dtype)
