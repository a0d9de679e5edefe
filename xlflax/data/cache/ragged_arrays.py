"""View of all shards of a cached task as one array of texts per language."""

import collections
import errno
import pathlib
import resource
import threading
import weakref
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data.cache import cache_format, remote_shards, shards
from xlflax.storage import paths
from xlflax.utils import errors

# Number of offset reads after which the mapped pages of all shards are
# released. A read can map 2 MB, because the system maps the complete folio
# around an address.
_READS_PER_RELEASE = 64
# An open shard uses two file descriptors, for its file and its memory map.
_DESCRIPTORS_PER_SHARD = 2
_MAX_DESCRIPTORS = 32768  # Linux allows 65530 memory maps per process.
_MIN_OPEN_SHARDS = 4
# (reader, shard number) of the open shards of this process, oldest first.
_open_shards: collections.deque[tuple[weakref.ref['Shards'], int]] = (
  collections.deque()
)
_lock = threading.RLock()


def max_open_shards() -> int:
  """Returns the maximum number of shards that a process may keep open.

  The file descriptors of open shards are limited to half of `ulimit -n`.
  """
  soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
  descriptors = _MAX_DESCRIPTORS
  if soft != resource.RLIM_INFINITY:
    descriptors = min(descriptors, soft // 2)
  return max(_MIN_OPEN_SHARDS, descriptors // _DESCRIPTORS_PER_SHARD)


def _close_oldest(remaining: int) -> None:
  """Closes the oldest open shards until `remaining` shards are open."""
  with _lock:
    while len(_open_shards) > remaining:
      reference, number = _open_shards.popleft()
      reader = reference()
      if reader is not None:
        reader.close(number)


class Shards:
  """Shards of a task, each opened on first access.

  Attributes:
    entries: Metadata of each shard.
    begins: Index of the first example in each shard, int64 [shards].
    ends: Index after the last example in each shard, int64 [shards].
    ahead: Whether to prefetch the file block that contains the start of each
      sequence. This helps if neighboring sequences are read next.
  """

  ahead = False

  def __init__(self, directory: pathlib.Path, meta: cache_format.TaskMeta):
    """Creates a reader without opening a shard.

    Args:
      directory: Directory of the task.
      meta: Metadata of the task.
    """
    self._directory = directory
    self.entries = meta.shards
    self._open: dict[int, shards.Shard] = {}
    self._num_reads = 0
    counts = [entry.examples for entry in meta.shards]
    self.ends = np.cumsum(counts)
    self.begins = self.ends - counts

  def starts_document(self) -> np.ndarray:
    """Returns a mask of the examples that start a document, bool [examples]."""
    starts_by_shard = []
    for number, entry in enumerate(self.entries):
      starts = self.open(number).array(shards.STARTS)
      if entry.starts and starts.size:
        starts = np.concatenate([[True], starts[1:]])
      starts_by_shard.append(starts)
    return np.concatenate([np.zeros(0, bool), *starts_by_shard])

  def open(self, number: int) -> shards.Shard:
    """Returns a shard and opens it if necessary.

    The most recently opened shards of all tasks stay open.
    """
    shard = self._open.get(number)
    if shard is None:
      shard = self._open[number] = self._open_shard(number)
    return shard

  def close(self, number: int) -> None:
    """Closes a shard. The shard can be opened again with `open`."""
    self._open.pop(number, None)

  def count_offset_read(self) -> None:
    """Counts a read of offsets, and releases mapped memory after many reads.

    Otherwise, mapped pages would count as memory of the process until it ends.
    """
    self._num_reads += 1
    if self._num_reads > _READS_PER_RELEASE:
      self._num_reads = 0
      for shard in list(self._open.values()):
        shard.release_pages()

  def _open_shard(self, number: int) -> shards.Shard:
    """Opens a shard, and closes the oldest shards if too many are open."""
    path = cache_format.shard_file(self._directory, self.entries[number].name)
    if paths.is_bucket(path):
      return remote_shards.RemoteShard(path)
    _close_oldest(max_open_shards() - 1)
    try:
      shard = shards.Shard(path, ahead=self.ahead)
    except OSError as error:
      if error.errno not in (errno.EMFILE, errno.ENFILE) or not _open_shards:
        raise
      _close_oldest(0)
      shard = shards.Shard(path, ahead=self.ahead)
    with _lock:
      _open_shards.append((weakref.ref(self), number))
    return shard


class ShardedTexts:
  """Texts of a task in one language, read lazily; see `sequence_index.Texts`.

  A shard is not read before its texts are accessed.
  """

  def __init__(self, task_shards: Shards, side: str, index: int):
    """Creates a view of the texts in one language.

    Args:
      task_shards: Shards of the task.
      side: Name of the array in the shards that contains the texts' tokens.
      index: Index of the texts' language in the task: 0 or 1.
    """
    self._shards = task_shards
    self._side = side
    sizes = np.array(
      [entry.tokens[index] + entry.examples for entry in task_shards.entries],
      np.int64,
    )
    self._counts = [
      (entry.examples, size)
      for entry, size in zip(task_shards.entries, sizes.tolist(), strict=True)
    ]
    self._ends = np.cumsum(sizes)
    self._begins = self._ends - sizes
    self.num_tokens = int(self._ends[-1]) if sizes.size else 0

  def slices(self, starts: np.ndarray, stops: np.ndarray) -> list[np.ndarray]:
    """Returns slices of the token array; see `sequence_index.Texts.slices`."""
    first = np.searchsorted(self._ends, starts, 'right')
    first = np.minimum(first, self._ends.size - 1)
    base = self._begins[first]
    is_inside = stops <= self._ends[first]
    texts = []
    for shard, start, stop, is_in_one_shard in zip(
      first.tolist(),
      (starts - base).tolist(),
      (stops - base).tolist(),
      is_inside.tolist(),
      strict=True,
    ):
      if is_in_one_shard:
        texts.append(self._tokens(shard)[start:stop])
      else:
        texts.append(self._read_across_shards(shard, start, stop))
    return texts

  def bounds(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns starts and ends of texts; see `sequence_index.Texts.bounds`."""
    starts = np.empty(index.shape, np.int64)
    stops = np.empty(index.shape, np.int64)
    shard_numbers = np.searchsorted(self._shards.ends, index, 'right')
    for number in np.unique(shard_numbers).tolist():
      is_in_shard = shard_numbers == number
      local_index = index[is_in_shard] - self._shards.begins[number]
      offsets, base = self._read(number)[1], self._begins[number]
      starts[is_in_shard] = offsets[local_index] + base
      stops[is_in_shard] = offsets[local_index + 1] + base - 1
    return starts, stops

  def lengths(self) -> Iterator[np.ndarray]:
    """Yields the lengths of texts; see `sequence_index.Texts.lengths`."""
    for number in range(len(self._shards.entries)):
      yield np.diff(self._read(number)[1].astype(np.int64)) - 1

  def _tokens(self, shard: int) -> np.ndarray:
    return self._shards.open(shard).array(self._side)

  def _read_across_shards(
    self, shard: int, start: int, stop: int
  ) -> np.ndarray:
    """Reads a range of tokens that may extend over several shards.

    Args:
      shard: Index of the first shard to read, counted from 0.
      start: Index of the first token, relative to the first shard.
      stop: Index after the last token, relative to the first shard.
    """
    segments: list[np.ndarray] = []
    while stop > 0 and shard < self._ends.size:
      tokens = self._tokens(shard)
      segments.append(tokens[max(start, 0) : stop])
      start, stop = start - tokens.size, stop - tokens.size
      shard += 1
    return np.concatenate(segments)

  def _read(self, number: int) -> Sequence[np.ndarray]:
    """Returns the tokens and offsets of a shard, and checks their sizes."""
    self._shards.count_offset_read()
    arrays = self._shards.open(number).texts(self._side)
    counts = arrays[1].size - 1, arrays[0].size
    expected_counts = self._counts[number]
    if counts != expected_counts:
      raise errors.CacheError(
        'The contents of the shard differ from the metadata of its task. The '
        f'number of examples must be {expected_counts[0]}, but it is '
        f'{counts[0]}. The number of tokens must be {expected_counts[1]}, but '
        f'it is {counts[1]}',
        where=self._shards.entries[number].name,
        fix='Delete the cache and write it again.',
      )
    return arrays
