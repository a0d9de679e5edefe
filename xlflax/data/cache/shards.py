"""Shards of a token cache while it is written, and how they are merged.

A shard holds the examples of one range of a task and appears in one rename,
so a killed writer leaves finished shards only.
"""

import functools
import os
import pathlib
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

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
    with np.load(path) as shard:
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
  outputs = _create(temporary, counts, meta, dtype)
  starts, tokens, offsets = outputs
  for offset in offsets:
    offset[0] = 0
  done, begins = 0, True  # A task begins with a document.
  for path in paths:
    with np.load(path) as shard:
      size = shard['starts'].size
      starts[done : done + size] = shard['starts']
      if begins and size:
        starts[done] = True
      begins = bool(shard['begins']) or (begins and not size)
      for i in range(len(meta.sides)):
        ends = offsets[i][done] + np.cumsum(shard[f'lengths{i}'] + 1)
        offsets[i][done + 1 : done + size + 1] = ends
        if size:
          tokens[i][offsets[i][done] : ends[-1]] = shard[f'tokens{i}']
      done += size
  for array in (starts, *tokens, *offsets):
    array.flush()
  cache_format.write_json(temporary / cache_format.META_FILE, meta.to_json())
  os.replace(temporary, directory)


def _create(directory, counts, meta, dtype):
  """Memory-mapped files of the final sizes: starts, tokens, offsets."""

  def create(path, kind, size):
    return np.lib.format.open_memmap(
      path, mode='w+', dtype=kind, shape=(int(size),)
    )

  starts = create(directory / cache_format.STARTS_FILE, bool, counts.examples)
  tokens, offsets = [], []
  for side, number in zip(meta.sides, counts.tokens, strict=True):
    tokens.append(
      create(
        cache_format.token_file(directory, side),
        dtype,
        number + counts.examples,
      )
    )
    offsets.append(
      create(
        cache_format.offset_file(directory, side), np.int64, counts.examples + 1
      )
    )
  return starts, tokens, offsets


def _join(arrays, dtype) -> np.ndarray:
  return np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype, copy=False)
