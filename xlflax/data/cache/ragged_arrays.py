"""One side of a task over all of its shards, as if it were one file."""

import collections
import errno
import pathlib
import resource
import threading
import weakref
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data.cache import cache_format, remote_shards
from xlflax.data.cache import shards as cache_shards
from xlflax.storage import paths
from xlflax.utils import errors

# Shards of which offsets are read before the pages of all are let go of. One
# place may map 2 MB: the system maps the whole folio in which it lies.
_MAPPED_SHARDS = 64
_DESCRIPTORS = 2  # of an open shard: its own and that of its map
_MAX_DESCRIPTORS = 32768  # Linux allows 65530 maps per process
_MIN_OPEN_SHARDS = 4
# (reader, shard number) of the open shards of this process, the oldest first.
_open_shards: collections.deque[tuple[weakref.ref['Shards'], int]] = (
  collections.deque()
)
_lock = threading.RLock()


def max_open_shards() -> int:
  """Returns how many shards a process keeps open: half of its `ulimit -n`."""
  soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
  descriptors = _MAX_DESCRIPTORS
  if soft != resource.RLIM_INFINITY:
    descriptors = min(descriptors, soft // 2)
  return max(_MIN_OPEN_SHARDS, descriptors // _DESCRIPTORS)


def _close_oldest(remaining: int) -> None:
  """Closes the shards that were opened first until `remaining` are left."""
  with _lock:
    while len(_open_shards) > remaining:
      reader, number = _open_shards.popleft()
      shards = reader()
      if shards is not None:
        shards.close(number)


class Shards:
  """The shards of a task, opened when they are first read.

  Attributes:
    entries: what is known of each.
    begins: examples before each, int64 [shards].
    ends: with its own, int64 [shards].
    ahead: whether rows are read whose neighbours are read soon.
  """

  ahead = False

  def __init__(self, directory: pathlib.Path, meta: cache_format.TaskMeta):
    self._directory = directory
    self.entries = meta.shards
    self._open: dict[int, cache_shards.Shard] = {}
    self._touched = 0
    counts = [entry.examples for entry in meta.shards]
    self.ends = np.cumsum(counts)
    self.begins = self.ends - counts

  def starts_document(self) -> np.ndarray:
    """Whether each example begins a document, bool [examples]."""
    parts = []
    for number, entry in enumerate(self.entries):
      starts = self.open(number).array(cache_shards.STARTS)
      if entry.starts and starts.size:
        starts = np.concatenate([[True], starts[1:]])
      parts.append(starts)
    return np.concatenate([np.zeros(0, bool), *parts])

  def open(self, number: int) -> cache_shards.Shard:
    """A shard; the ones opened last by any task stay open."""
    shard = self._open.get(number)
    if shard is None:
      shard = self._open[number] = self._make(number)
    return shard

  def close(self, number: int) -> None:
    """Closes a shard; `open` opens it again."""
    self._open.pop(number, None)

  def touch(self) -> None:
    """Notes that offsets are read; now and then lets go of their pages.

    What is mapped would count as memory of the process until it ends.
    """
    self._touched += 1
    if self._touched > _MAPPED_SHARDS:
      self._touched = 0
      for shard in list(self._open.values()):
        shard.release_pages()

  def _make(self, number: int) -> cache_shards.Shard:
    path = cache_format.shard_file(self._directory, self.entries[number].name)
    if paths.is_bucket(path):
      return remote_shards.RemoteShard(path)
    _close_oldest(max_open_shards() - 1)
    try:
      shard = cache_shards.Shard(path, ahead=self.ahead)
    except OSError as error:
      if error.errno not in (errno.EMFILE, errno.ENFILE) or not _open_shards:
        raise
      _close_oldest(0)
      shard = cache_shards.Shard(path, ahead=self.ahead)
    with _lock:
      _open_shards.append((weakref.ref(self), number))
    return shard


class ShardedTexts:
  """See `sequence_index.Texts`. Nothing is read before it is asked for."""

  def __init__(self, shards: Shards, side: str, place: int):
    """Makes a view of the side `place` (0 or 1), which shards call `side`."""
    self._shards, self._side = shards, side
    sizes = np.array(
      [entry.tokens[place] + entry.examples for entry in shards.entries],
      np.int64,
    )
    self._counts = [
      (entry.examples, size)
      for entry, size in zip(shards.entries, sizes.tolist(), strict=True)
    ]
    self._ends = np.cumsum(sizes)
    self._begins = self._ends - sizes
    self.num_tokens = int(self._ends[-1]) if sizes.size else 0

  def slices(self, starts: np.ndarray, stops: np.ndarray) -> list[np.ndarray]:
    """See `sequence_index.Texts.slices`."""
    first = np.searchsorted(self._ends, starts, 'right')
    first = np.minimum(first, self._ends.size - 1)
    base = self._begins[first]
    is_inside = stops <= self._ends[first]
    out = []
    for shard, start, stop, inside in zip(
      first.tolist(),
      (starts - base).tolist(),
      (stops - base).tolist(),
      is_inside.tolist(),
      strict=True,
    ):
      if inside:
        out.append(self._tokens(shard)[start:stop])
      else:
        out.append(self._across(shard, start, stop))
    return out

  def bounds(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """See `sequence_index.Texts.bounds`."""
    starts = np.empty(index.shape, np.int64)
    stops = np.empty(index.shape, np.int64)
    shard = np.searchsorted(self._shards.ends, index, 'right')
    for number in np.unique(shard).tolist():
      here = shard == number
      local = index[here] - self._shards.begins[number]
      offsets, base = self._read(number)[1], self._begins[number]
      starts[here] = offsets[local] + base
      stops[here] = offsets[local + 1] + base - 1
    return starts, stops

  def lengths(self) -> Iterator[np.ndarray]:
    """See `sequence_index.Texts.lengths`."""
    for number in range(len(self._shards.entries)):
      yield np.diff(self._read(number)[1].astype(np.int64)) - 1

  def _tokens(self, shard: int) -> np.ndarray:
    return self._shards.open(shard).array(self._side)

  def _across(self, shard: int, start: int, stop: int) -> np.ndarray:
    """Tokens start .. stop - 1, counted from a shard, of several shards."""
    parts: list[np.ndarray] = []
    while stop > 0 and shard < self._ends.size:
      tokens = self._tokens(shard)
      parts.append(tokens[max(start, 0) : stop])
      start, stop = start - tokens.size, stop - tokens.size
      shard += 1
    return np.concatenate(parts)

  def _read(self, number: int) -> Sequence[np.ndarray]:
    self._shards.touch()
    arrays = self._shards.open(number).texts(self._side)
    counts = arrays[1].size - 1, arrays[0].size
    expected_counts = self._counts[number]
    if counts != expected_counts:
      raise errors.CacheError(
        'A shard of the token cache is not the one that its task tells of',
        got=f'{counts[0]} examples and {counts[1]} tokens',
        expected=f'{expected_counts[0]} and {expected_counts[1]}',
        where=self._shards.entries[number].name,
        fix='Delete the cache and write it again',
      )
    return arrays
