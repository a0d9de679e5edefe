"""Shards of a token cache while it is written, and how they are merged.

A shard holds the examples of one range of a task and appears in one rename,
so a killed writer leaves finished shards only.
"""

import contextlib
import functools
import os
import pathlib
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from xlflax import digests, errors
from xlflax.data import examples as examples_lib
from xlflax.data.cache import format as cache_format
from xlflax.paths import write_atomically


class Counts(NamedTuple):
  """Sums over a shard, or over shards.

  Attributes:
    examples: stored.
    empty: left out.
    tokens: int64 [sides], without eos.
    unknown: int64 [sides].
  """

  examples: int
  empty: int
  tokens: np.ndarray
  unknown: np.ndarray


def shard_path(directory: pathlib.Path, number: int) -> pathlib.Path:
  """Path of a shard, by its number."""
  return directory / f'{number:06d}.npz'


def write_shard(
  path: pathlib.Path,
  batches: Iterable[examples_lib.Examples],
  *,
  num_sides: int,
  dtype: np.dtype,
  spec,
) -> int:
  """Writes one shard.

  Args:
    path: of the shard.
    batches: its examples.
    num_sides: 1 or 2.
    dtype: of token ids.
    spec: the vocabulary's.

  Returns:
    Examples read, the empty ones included.
  """
  kept, read, begins = [], 0, False
  for batch in batches:
    read += len(batch)
    batch, begins = examples_lib.drop_empty(batch, begins)
    kept.append(batch)
  arrays: dict[str, Any] = {
    'starts': _join([b.starts_document for b in kept], bool),
    'begins': np.array(begins),
  }
  tokens, unknown = [], []
  for i in range(num_sides):
    sides = [batch.sides[i] for batch in kept]
    arrays[f'tokens{i}'] = _join(
      [side.with_eos(spec.eos_id, dtype) for side in sides], dtype
    )
    arrays[f'lengths{i}'] = _join([side.lengths for side in sides], np.int64)
    tokens.append(sum(side.tokens.size for side in sides))
    unknown.append(
      sum(np.count_nonzero(side.tokens == spec.unk_id) for side in sides)
    )
  stored = arrays['starts'].size
  arrays['counts'] = np.array([stored, read - stored, *tokens, *unknown])
  write_atomically(path, functools.partial(np.savez, **arrays))
  return read


def count(paths: Sequence[pathlib.Path]) -> Counts:
  """The sums over shards."""
  each = []
  for path in paths:
    with _open(path) as shard:
      each.append(shard['counts'])
  total = np.sum(each, axis=0)
  return Counts(int(total[0]), int(total[1]), *np.split(total[2:], 2))


def merge(
  paths: Sequence[pathlib.Path],
  counts: Counts,
  directory: pathlib.Path,
  meta: cache_format.TaskMeta,
  dtype: np.dtype,
) -> None:
  """Joins shards to a complete task, which appears in one rename.

  Args:
    paths: of all shards, in order.
    counts: their sums.
    directory: of the complete task; must not exist.
    meta: goes with it.
    dtype: of token ids.
  """
  temporary = directory.with_name(f'.{directory.name}.partial')
  shutil.rmtree(temporary, ignore_errors=True)
  temporary.mkdir(parents=True)
  with contextlib.ExitStack() as stack:
    outputs = _create(stack, temporary, counts, meta, dtype)
    _append_shards(paths, outputs)
  cache_format.write_json(temporary / cache_format.META_FILE, meta.to_json())
  digests.seal(temporary)
  os.replace(temporary, directory)


class _Output:
  """A `.npy` file of a known length that is written from its beginning.

  Written plainly: a full disk is an error then, where a memory map of it would
  end the process.
  """

  def __init__(self, file: BinaryIO, dtype: Any, size: int):
    self._file, self._dtype = file, np.dtype(dtype)
    np.lib.format.write_array_header_1_0(
      file,
      {
        'descr': np.lib.format.dtype_to_descr(self._dtype),
        'fortran_order': False,
        'shape': (int(size),),
      },
    )

  def append(self, values: np.ndarray) -> None:
    self._file.write(np.ascontiguousarray(values, self._dtype).data)


class _Outputs(NamedTuple):
  """The files of a task; tokens and offsets for each side."""

  starts: _Output
  tokens: list[_Output]
  offsets: list[_Output]


def _create(stack, directory, counts, meta, dtype) -> _Outputs:
  """Opens the files of a task; they are closed, and synced, by `stack`."""

  def create(path, kind, size):
    file = stack.enter_context(path.open('wb'))
    stack.callback(_sync, file)
    return _Output(file, kind, size)

  tokens = [
    create(cache_format.token_file(directory, side), dtype, n + counts.examples)
    for side, n in zip(meta.sides, counts.tokens, strict=True)
  ]
  offsets = [
    create(
      cache_format.offset_file(directory, side), np.int64, counts.examples + 1
    )
    for side in meta.sides
  ]
  for output in offsets:
    output.append(np.zeros(1, np.int64))
  starts = create(directory / cache_format.STARTS_FILE, bool, counts.examples)
  return _Outputs(starts, tokens, offsets)


def _sync(file: BinaryIO) -> None:
  file.flush()
  os.fsync(file.fileno())


def _append_shards(paths: Sequence[pathlib.Path], outputs: _Outputs) -> None:
  begins = True  # a task begins with a document
  ends = [0] * len(outputs.tokens)
  for path in paths:
    with _open(path) as shard:
      starts = shard['starts']
      if begins and starts.size:
        starts[0] = True
      begins = bool(shard['begins']) or (begins and not starts.size)
      outputs.starts.append(starts)
      for i, end in enumerate(ends):
        offsets = end + np.cumsum(shard[f'lengths{i}'] + 1)
        outputs.offsets[i].append(offsets)
        outputs.tokens[i].append(shard[f'tokens{i}'])
        ends[i] = int(offsets[-1]) if offsets.size else end


@contextlib.contextmanager
def _open(path: pathlib.Path) -> Iterator[Any]:
  """A shard; zip files know the checksums of their parts."""
  try:
    with np.load(path, allow_pickle=False) as shard:
      yield shard
  except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
    raise errors.CacheError(
      'A shard of the token cache is damaged',
      got=str(error)[:200],
      where=path,
      fix='Delete it and run `xlflax cache` again',
    ) from error


def _join(arrays, dtype) -> np.ndarray:
  return np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype, copy=False)
