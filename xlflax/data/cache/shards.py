"""Shards of a token cache, which never change after they are written.

A shard is a safetensors file with these arrays:

- `<side>`, for the source and the target texts of a task: the concatenated ids
  of all texts, with eos after each text.
- `<side>.offsets`: the start of each text and the end of the last text, uint32
  [examples + 1].
- `starts_document`: whether each example starts a document, bool [examples].

A shard is created atomically, so a killed writer leaves only complete shards.
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
# Types of arrays, in the order in which a file stores them.
_TYPES: dict[str, np.dtype] = {
  'U32': np.dtype(np.uint32),
  'I32': np.dtype(np.int32),
  'U16': np.dtype(np.uint16),
  'BOOL': np.dtype(np.bool_),
}


# Names of sides, whose tokens are read by byte ranges.
_TOKENS = ('inputs', 'targets')

# Errors that indicate a malformed file.
_MALFORMED = (ValueError, RecursionError, TypeError)
# Number of recently requested read-ahead blocks that are remembered.
_MAX_REQUESTED_BLOCKS = 1024
# Logarithm of the size of read-ahead blocks: 2^17 bytes.
_BLOCK_BITS = 17

# A function that reads the bytes start .. stop - 1.
Read = Callable[[int, int], bytes]


def offsets_name(side: str) -> str:
  """Returns the name of the offsets array for `inputs` or `targets`."""
  return f'{side}.offsets'


def write_shard_file(
  path: pathlib.Path,
  batches: Iterable[tokenized_examples.Examples],
  *,
  dtype: np.dtype,
  spec,
  sides: Sequence[str],
) -> cache_format.ShardEntry:
  """Writes a shard from batches of examples.

  Args:
    path: Path of the shard.
    batches: Batches of the shard's examples.
    dtype: Dtype of the token ids.
    spec: Specification of the vocabulary that encoded the texts.
    sides: Name of each text of an example: `targets`, or `inputs` and
      `targets`.

  Returns:
    The shard's metadata entry.

  Raises:
    CacheError: If the texts in one language have too many tokens for one file.
  """
  num_read = 0
  begins = False
  starts: list[np.ndarray] = []
  columns = [_Column(spec, np.dtype(dtype)) for _ in sides]
  for batch in batches:
    num_read += len(batch)
    batch, begins = tokenized_examples.drop_empty(batch, begins)
    starts.append(batch.starts_document.astype(np.bool_))
    for column, texts in zip(columns, batch.sides, strict=True):
      column.add(texts)
  arrays = {STARTS: (np.dtype(np.bool_), starts)}
  for side, column in zip(sides, columns, strict=True):
    arrays[side] = (column.dtype, column.ids)
    offsets = _compute_offsets(column.lengths, path)
    arrays[offsets_name(side)] = (offsets.dtype, [offsets])
  chunks = _serialize(arrays)
  write_atomically(path, lambda file: file.writelines(chunks))
  num_stored = sum(array.size for array in starts)
  return cache_format.ShardEntry(
    name=path.name.removesuffix(cache_format.SUFFIX),
    digest=checksums.digest_chunks(chunks),
    examples=num_stored,
    empty=num_read - num_stored,
    tokens=tuple(column.tokens for column in columns),
    unknown=tuple(column.unknown for column in columns),
    begins=begins,
  )


class _Column:
  """Texts in one language that are collected to be written to a shard.

  Attributes:
    dtype: Dtype of the ids.
    ids: Token ids of each batch, with eos after each text.
    lengths: For each batch, the number of tokens in each text, without eos.
    tokens: Number of tokens in the texts, without eos tokens.
    unknown: Number of unknown tokens.
  """

  def __init__(self, spec, dtype: np.dtype):
    self._spec, self.dtype = spec, dtype
    self.ids: list[np.ndarray] = []
    self.lengths: list[np.ndarray] = []
    self.tokens = self.unknown = 0

  def add(self, texts: tokenized_examples.Ragged) -> None:
    """Appends a batch of texts, and counts its tokens and unknown tokens."""
    self.ids.append(texts.with_eos(self._spec.eos_id, self.dtype))
    self.lengths.append(texts.lengths.astype(np.uint32))
    self.tokens += texts.tokens.size
    self.unknown += int(np.count_nonzero(texts.tokens == self._spec.unk_id))


def _serialize(
  arrays: dict[str, tuple[np.dtype, list[np.ndarray]]],
) -> list[memoryview | bytes]:
  """Serializes arrays in the safetensors format without copying their data.

  Args:
    arrays: Mapping from array names to pairs (dtype, segments). Each array is
      the concatenation of its segments.

  Returns:
    Consecutive chunks of the file.
  """
  names = {dtype: name for name, dtype in _TYPES.items()}
  rank = list(_TYPES.values()).index
  order = sorted(arrays, key=lambda name: (rank(arrays[name][0]), name))
  header, end = {}, 0
  for name in order:
    dtype, segments = arrays[name]
    size = sum(segment.size for segment in segments)
    start, end = end, end + size * dtype.itemsize
    header[name] = {
      'dtype': names[dtype],
      'shape': [size],
      'data_offsets': [start, end],
    }
  text = json.dumps(header, separators=(',', ':')).encode()
  text += b' ' * (-len(text) % 8)
  all_segments = itertools.chain.from_iterable(
    arrays[name][1] for name in order
  )
  return [
    len(text).to_bytes(8, 'little') + text,
    *(segment.data.cast('B') for segment in all_segments if segment.size),
  ]


class Tokens:
  """Array in a shard file, of which only the accessed slices are read.

  Attributes:
    size: Number of elements in the array.
    dtype: Dtype of the array's elements.
  """

  def __init__(self, read: Read, begin: int, size: int, dtype: np.dtype):
    """Creates an array.

    Args:
      read: Function that reads bytes from the file.
      begin: Offset in the file at which the array starts, in bytes.
      size: Number of elements in the array.
      dtype: Dtype of the array's elements.
    """
    self._read = read
    self._begin = begin
    self.size = size
    self.dtype = dtype

  def __getitem__(self, indices: slice) -> np.ndarray:
    """Reads the elements of a slice from the file."""
    start, stop, _ = indices.indices(self.size)
    width = self.dtype.itemsize
    begin = self._begin
    return np.frombuffer(
      self._read(begin + start * width, begin + stop * width), self.dtype
    )


class _File:
  """File that is read by byte ranges and closed when it is no longer used.

  The file object must not refer to a shard or view. Otherwise, a reference
  cycle would keep the file open until Python's garbage collector runs, and many
  files can be open.
  """

  def __init__(self, path: pathlib.Path, ahead: bool):
    self._path = path
    self._ahead = ahead
    self._requested_blocks: set[int] = set()
    self.descriptor = os.open(path, os.O_RDONLY)
    weakref.finalize(self, os.close, self.descriptor)

  def read(self, start: int, stop: int) -> bytes:
    """Reads the file's bytes in the half-open range [start, stop)."""
    if self._ahead:
      self._request_block(start >> _BLOCK_BITS)
    try:
      content = os.pread(self.descriptor, stop - start, start)
    except OSError as error:
      raise errors.convert_os_error(error, where=self._path) from error
    if len(content) != stop - start:
      raise _damaged_error(
        self._path, f'the file ends before byte {start + len(content)}'
      )
    return content

  def _request_block(self, number: int) -> None:
    """Requests that the operating system prefetches a block of the file."""
    if number in self._requested_blocks or not hasattr(os, 'posix_fadvise'):
      return
    if len(self._requested_blocks) > _MAX_REQUESTED_BLOCKS:
      self._requested_blocks.clear()
    self._requested_blocks.add(number)
    os.posix_fadvise(
      self.descriptor,
      number << _BLOCK_BITS,
      1 << _BLOCK_BITS,
      os.POSIX_FADV_WILLNEED,
    )


class Shard:
  """Reader for the arrays of one shard.

  Tokens are read from the file, and the other arrays are mapped into memory.
  Reading a sequence copies one or two kilobytes. If tokens were mapped into
  memory instead, each read would count as memory of the process until its pages
  are released. Because the kernel maps the complete folio around an address,
  this is 2 MB per read, which costs more than the copy.
  """

  def __init__(self, path: pathlib.Path, *, ahead: bool = False):
    """Opens a shard.

    Args:
      path: Path of the shard's file.
      ahead: Whether to prefetch the file block that contains the start of each
        sequence that is read.

    Raises:
      CacheError: If the file is missing or truncated, or if it is not a shard.
      XlflaxError: If the file is not damaged, but the operating system cannot
        read it.
      OSError: If the process has too many open files.
    """
    self._path = path
    self._read: Read
    self._views: dict[str, Any] = {}
    self._texts: dict[str, tuple[Any, np.ndarray]] = {}
    try:
      self._open(path, ahead)
    except (FileNotFoundError, *_MALFORMED) as error:
      raise _damaged_error(path, error) from error
    except OSError as error:
      # If too many files are open, the caller closes other shards and retries.
      if error.errno in (errno.EMFILE, errno.ENFILE):
        raise
      raise errors.convert_os_error(error, where=path) from error

  def _open(self, path: pathlib.Path, ahead: bool) -> None:
    """Opens the file, and parses its header."""
    file = _File(path, ahead)
    self._read = file.read
    self._bytes = mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(self._bytes[:8], 'little')
    self._arrays = json.loads(self._bytes[8 : 8 + length])
    self._begin = 8 + length
    self._size = len(self._bytes)
    self.release_pages()

  def _slice(self, name: str, start: int, size: int, dtype: np.dtype) -> Any:
    """Returns the array at an offset from the end of the file's header."""
    begin = self._begin + start
    if name in _TOKENS:
      return Tokens(self._read, begin, size, dtype)
    return self._map(begin, size, dtype)

  def _map(self, start: int, size: int, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(self._bytes, dtype, size, start)

  def array(self, name: str) -> Any:
    """Returns an array of the shard, memory-mapped or as a `Tokens` object."""
    if name not in self._views:
      self._views[name] = self._make_view(name)
    return self._views[name]

  def _make_view(self, name: str) -> Any:
    """Validates the location of an array and returns its view."""
    try:
      array_info = self._arrays[name]
      dtype = _TYPES[array_info['dtype']]
      start, end = array_info['data_offsets']
      [size] = array_info['shape']
      if (end - start) != size * dtype.itemsize or start < 0:
        raise ValueError(
          f'The array {name!r} has {end - start} bytes, which does not match '
          'its shape.'
        )
      if self._begin + end > self._size:
        raise ValueError(
          f'The array {name!r} extends past the end of the file.'
        )
      return self._slice(name, start, size, dtype)
    except (KeyError, ValueError, TypeError) as error:
      raise _damaged_error(self._path, error) from error

  def release_pages(self) -> None:
    """Releases the memory pages of the mapped file."""
    self._bytes.madvise(mmap.MADV_DONTNEED)

  def texts(self, side: str) -> tuple[Any, np.ndarray]:
    """Returns the tokens and offsets of the texts in one language.

    Raises:
      CacheError: If the offsets do not match the tokens.
    """
    if side not in self._texts:
      self._texts[side] = self._checked_texts(side)
    return self._texts[side]

  def _checked_texts(self, side: str) -> tuple[Any, np.ndarray]:
    """Returns one language's tokens and offsets, and checks that they match."""
    tokens, offsets = self.array(side), self.array(offsets_name(side))
    if (
      offsets.size
      and offsets[0] == 0
      and offsets[-1] == tokens.size
      and (offsets[1:] > offsets[:-1]).all()
    ):
      return tokens, offsets
    raise _damaged_error(
      self._path,
      f'the text offsets of {side} do not increase from 0 to {tokens.size}, '
      'the number of tokens',
    )


def _damaged_error(path: pathlib.Path, error: Any) -> errors.CacheError:
  return errors.CacheError(
    'A shard of the token cache is damaged or missing',
    got=str(error)[:200],
    where=path,
    fix='Delete the shard and run `xlflax cache` again.',
  )


def _compute_offsets(
  lengths: list[np.ndarray], path: pathlib.Path
) -> np.ndarray:
  """Computes where each text starts if an eos token follows each text.

  Args:
    lengths: For each batch, the number of tokens in each text, without eos.
    path: Path of the shard, for the error message.

  Returns:
    Array of shape [examples + 1], uint32.
  """
  sizes = np.concatenate([np.zeros(1, np.int64), *lengths]).astype(np.int64)
  sizes[1:] += 1  # eos
  offsets = np.cumsum(sizes)
  if offsets[-1] >= 1 << 32:
    raise errors.CacheError(
      f'A shard must contain fewer than {1 << 32} tokens',
      got=int(offsets[-1]),
      where=path,
      fix='Pass a smaller --shard_size.',
    )
  return offsets.astype(np.uint32)
