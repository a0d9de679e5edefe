"""Shards of a token cache: files that are written once and never changed.

A shard is a safetensors file with, for each side of a task, `<side>`: the ids
of all texts, each followed by eos, one after the other, and `<side>.offsets`:
where each text begins, and the end, uint32 [examples + 1]; and with
`starts_document`, bool [examples]. It appears in one rename, so a killed
writer leaves whole shards only.
"""

import errno
import itertools
import json
import mmap
import os
import pathlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from xlflax.data import tokenized_examples
from xlflax.data.cache import cache_format
from xlflax.storage import checksums
from xlflax.storage.paths import write_atomically
from xlflax.utils import errors

STARTS = 'starts_document'
# In the order in which a file holds arrays of these types.
_TYPES: dict[str, np.dtype] = {
  'U32': np.dtype(np.uint32),
  'I32': np.dtype(np.int32),
  'U16': np.dtype(np.uint16),
  'BOOL': np.dtype(np.bool_),
}


# Sides, whose tokens are read by ranges of bytes.
_TOKENS = ('inputs', 'targets')

_MALFORMED = (ValueError, RecursionError, TypeError)
_MOST_ASKED = 1024
_AHEAD = 17  # 2^17 bytes are asked for where neighbours are read soon

# (start, stop) -> bytes start .. stop - 1.
Read = Callable[[int, int], bytes]


def offsets_of(side: str) -> str:
  """Name of a side's offsets."""
  return f'{side}.offsets'


def write_shard_file(
  path: pathlib.Path,
  batches: Iterable[tokenized_examples.Examples],
  *,
  dtype: np.dtype,
  spec,
  sides: Sequence[str],
) -> cache_format.ShardEntry:
  """Writes one shard.

  Args:
    path: of the shard.
    batches: its examples.
    dtype: of token ids.
    spec: the vocabulary's.
    sides: names of the sides.

  Returns:
    What is known of it.

  Raises:
    CacheError: too many tokens for one file.
  """
  read, begins, starts = 0, False, []
  columns = [_Column(spec, np.dtype(dtype)) for _ in sides]
  for batch in batches:
    read += len(batch)
    batch, begins = tokenized_examples.drop_empty(batch, begins)
    starts.append(batch.starts_document.astype(np.bool_))
    for column, texts in zip(columns, batch.sides, strict=True):
      column.add(texts)
  arrays = {STARTS: (np.dtype(np.bool_), starts)}
  for side, column in zip(sides, columns, strict=True):
    arrays[side] = (column.dtype, column.ids)
    offsets = _offsets(column.lengths, path)
    arrays[offsets_of(side)] = (offsets.dtype, [offsets])
  chunks = _serialized(arrays)
  write_atomically(path, lambda file: file.writelines(chunks))
  stored = sum(array.size for array in starts)
  return cache_format.ShardEntry(
    name=path.name.removesuffix(cache_format.SUFFIX),
    digest=checksums.digest_chunks(chunks),
    examples=stored,
    empty=read - stored,
    tokens=tuple(column.tokens for column in columns),
    unknown=tuple(column.unknown for column in columns),
    begins=begins,
  )


class _Column:
  """The texts of one side, as small as they will be in the file.

  Attributes:
    dtype: of the ids.
    ids: of each batch, each text followed by eos.
    lengths: of its texts, without eos, by batch.
    tokens: without eos.
    unknown: how many of these are unknown.
  """

  def __init__(self, spec, dtype: np.dtype):
    self._spec, self.dtype = spec, dtype
    self.ids: list[np.ndarray] = []
    self.lengths: list[np.ndarray] = []
    self.tokens = self.unknown = 0

  def add(self, texts: tokenized_examples.Ragged) -> None:
    """Adds the texts of a batch."""
    self.ids.append(texts.with_eos(self._spec.eos_id, self.dtype))
    self.lengths.append(texts.lengths.astype(np.uint32))
    self.tokens += texts.tokens.size
    self.unknown += int(np.count_nonzero(texts.tokens == self._spec.unk_id))


def _serialized(
  arrays: dict[str, tuple[np.dtype, list[np.ndarray]]],
) -> list[memoryview | bytes]:
  """A safetensors file in pieces, as its library makes it; nothing is copied.

  Args:
    arrays: name -> type and consecutive parts.
  """
  names = {dtype: name for name, dtype in _TYPES.items()}
  rank = list(_TYPES.values()).index
  order = sorted(arrays, key=lambda name: (rank(arrays[name][0]), name))
  header, end = {}, 0
  for name in order:
    dtype, parts = arrays[name]
    size = sum(part.size for part in parts)
    start, end = end, end + size * dtype.itemsize
    header[name] = {
      'dtype': names[dtype],
      'shape': [size],
      'data_offsets': [start, end],
    }
  text = json.dumps(header, separators=(',', ':')).encode()
  text += b' ' * (-len(text) % 8)
  content = itertools.chain.from_iterable(arrays[name][1] for name in order)
  return [
    len(text).to_bytes(8, 'little') + text,
    *(part.data.cast('B') for part in content if part.size),
  ]


class Tokens:
  """What `array[start:stop]` of an array in memory is, of one in a file."""

  def __init__(self, read: Read, begin: int, size: int, dtype: np.dtype):
    """Makes it of `size` elements; its first byte is byte `begin`."""
    self._read, self._begin = read, begin
    self.size, self.dtype = size, dtype

  def __getitem__(self, places: slice) -> np.ndarray:
    """Elements start .. stop - 1, [n]."""
    start, stop, _ = places.indices(self.size)
    width = self.dtype.itemsize
    begin = self._begin
    return np.frombuffer(
      self._read(begin + start * width, begin + stop * width), self.dtype
    )


class _File:
  """A file that is read by ranges; it is closed when nothing refers to it.

  So it refers to no shard and no view: a circle would keep it open until
  Python looks for circles, and there may be many.
  """

  def __init__(self, path: pathlib.Path, ahead: bool):
    self._path, self._ahead = path, ahead
    self._asked: set[int] = set()
    self.number = os.open(path, os.O_RDONLY)
    weakref.finalize(self, os.close, self.number)

  def read(self, start: int, stop: int) -> bytes:
    """Bytes start .. stop - 1."""
    if self._ahead:
      self._ask(start >> _AHEAD)
    try:
      content = os.pread(self.number, stop - start, start)
    except OSError as error:
      raise errors.of_os_error(error, where=self._path) from error
    if len(content) != stop - start:
      raise _damaged(
        self._path, f'it has no byte {start + len(content)} any more'
      )
    return content

  def _ask(self, number: int) -> None:
    """Has a block read in one request, as a page at a time would be many."""
    if number not in self._asked and hasattr(os, 'posix_fadvise'):
      if len(self._asked) > _MOST_ASKED:
        self._asked.clear()
      self._asked.add(number)
      os.posix_fadvise(
        self.number, number << _AHEAD, 1 << _AHEAD, os.POSIX_FADV_WILLNEED
      )


class Shard:
  """The arrays of a shard: tokens are read, the others mapped into memory.

  A read of a row copies a kilobyte or two. Mapped, its place would count as
  memory of the process: with all of the folio around it, 2 MB, until it is
  let go of, which costs more than the copy.

  Raises:
    CacheError: the file is missing, cut off, or is no such file.
    XlflaxError, OSError: the system refuses to read it, which is no damage.
  """

  def __init__(self, path: pathlib.Path, *, ahead: bool = False):
    """Opens it; `ahead`: has the system read the places around each row too."""
    self._path = path
    self._read: Read
    self._views: dict[str, Any] = {}
    self._texts: dict[str, tuple[Any, np.ndarray]] = {}
    try:
      self._open(path, ahead)
    except (FileNotFoundError, *_MALFORMED) as error:
      raise _damaged(path, error) from error
    except OSError as error:
      if error.errno in (errno.EMFILE, errno.ENFILE):
        raise  # The reader closes other shards and tries again.
      raise errors.of_os_error(error, where=path) from error

  def _open(self, path: pathlib.Path, ahead: bool) -> None:
    file = _File(path, ahead)
    self._read = file.read
    self._bytes = mmap.mmap(file.number, 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(self._bytes[:8], 'little')
    self._arrays = json.loads(self._bytes[8 : 8 + length])
    self._begin = 8 + length
    self._size = len(self._bytes)
    self.release_pages()

  def _slice(self, name: str, start: int, size: int, dtype: np.dtype) -> Any:
    begin = self._begin + start
    if name in _TOKENS:
      return Tokens(self._read, begin, size, dtype)
    return self._map(begin, size, dtype)

  def _map(self, start: int, size: int, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(self._bytes, dtype, size, start)

  def array(self, name: str) -> Any:
    """A view of one array, [n], or what can be sliced as one."""
    if name not in self._views:
      self._views[name] = self._view(name)
    return self._views[name]

  def _view(self, name: str) -> Any:
    try:
      array_info = self._arrays[name]
      dtype = _TYPES[array_info['dtype']]
      start, end = array_info['data_offsets']
      [size] = array_info['shape']
      if (end - start) != size * dtype.itemsize or start < 0:
        raise ValueError(f'{name} has {end - start} bytes')
      if self._begin + end > self._size:
        raise ValueError(f'{name} ends behind the end of the file')
      return self._slice(name, start, size, dtype)
    except (KeyError, ValueError, TypeError) as error:
      raise _damaged(self._path, error) from error

  def release_pages(self) -> None:
    """Lets the system take the memory that holds what was read."""
    self._bytes.madvise(mmap.MADV_DONTNEED)

  def texts(self, side: str) -> tuple[Any, np.ndarray]:
    """Tokens and offsets of a side, which fit together.

    Raises:
      CacheError: they do not.
    """
    if side not in self._texts:
      self._texts[side] = self._checked_texts(side)
    return self._texts[side]

  def _checked_texts(self, side: str) -> tuple[Any, np.ndarray]:
    tokens, offsets = self.array(side), self.array(offsets_of(side))
    if (
      offsets.size
      and offsets[0] == 0
      and offsets[-1] == tokens.size
      and (offsets[1:] > offsets[:-1]).all()
    ):
      return tokens, offsets
    raise _damaged(
      self._path,
      f'{side} has {tokens.size} tokens, offsets that do not rise to that',
    )


def _damaged(path: pathlib.Path, error: Any) -> errors.CacheError:
  return errors.CacheError(
    'A shard of the token cache is damaged or missing',
    got=str(error)[:200],
    where=path,
    fix='Delete it and run `xlflax cache` again',
  )


def _offsets(lengths: list[np.ndarray], path: pathlib.Path) -> np.ndarray:
  joined = np.concatenate([np.zeros(1, np.int64), *lengths]).astype(np.int64)
  joined[1:] += 1  # eos
  offsets = np.cumsum(joined)
  if offsets[-1] >= 1 << 32:
    raise errors.CacheError(
      'A shard has too many tokens for one file',
      got=int(offsets[-1]),
      expected=f'fewer than {1 << 32}',
      where=path,
      fix='Give a smaller --shard_size',
    )
  return offsets.astype(np.uint32)
