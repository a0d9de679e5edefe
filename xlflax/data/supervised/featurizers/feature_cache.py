"""Rows of labelled examples, kept whole in memory or in a file."""

import functools
import pathlib
import zipfile
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np

from xlflax.data.supervised.featurizers import featurizer
from xlflax.storage import checksums, npz_files, paths
from xlflax.utils import errors

_CHUNK = 4096
_TYPES = (np.int8, np.int16, np.int32)
FORMAT = 1


class RowTable:
  """Rows of different lengths, a flat array for each key.

  A key's numbers are kept in the smallest integer type that holds them.
  """

  def __init__(
    self,
    values: dict[str, np.ndarray],
    ends: dict[str, np.ndarray],
    counts: dict[str, int],
  ):
    """Args:
    values: key -> the rows' numbers, one row after the other.
    ends: key -> int64 [rows], where each row ends; none for keys with one
      number a row.
    counts: 'examples' read, 'unused' ones without a row.
    """
    self._values = values
    self._ends = ends
    self.counts = counts
    self.num_rows = 0
    for key, value in values.items():
      self.num_rows = len(ends[key]) if key in ends else len(value)

  @classmethod
  def of(cls, groups: Iterable[list[featurizer.Row]]) -> 'RowTable':
    """From the rows of one example after the other."""
    counts = {'examples': 0, 'unused': 0}
    chunks: dict[str, list[np.ndarray]] = {}
    lengths: dict[str, list[np.ndarray]] = {}
    pending: list[featurizer.Row] = []
    for group in groups:
      counts['examples'] += 1
      counts['unused'] += not group
      pending += group
      if len(pending) >= _CHUNK:
        _flush(pending, chunks, lengths)
        pending = []
    _flush(pending, chunks, lengths)
    return cls(
      {key: np.concatenate(parts) for key, parts in chunks.items()},
      {key: np.cumsum(np.concatenate(parts)) for key, parts in lengths.items()},
      counts,
    )

  def row(self, index: int) -> featurizer.Row:
    """Row number `index`."""
    row = {}
    for key, value in self._values.items():
      ends = self._ends.get(key)
      if ends is None:
        row[key] = value[index]
      else:
        row[key] = value[ends[index - 1] if index else 0 : ends[index]]
    return row

  def rows(self, indices: Sequence[int]) -> list[featurizer.Row]:
    return [self.row(int(index)) for index in indices]

  def digest(self) -> str:
    """What tells whether another table has the same rows."""
    return checksums.digest_json(
      [
        [key, value.dtype.str, checksums.digest_content(value.tobytes())]
        for arrays in (self._values, self._ends)
        for key, value in sorted(arrays.items())
      ]
    )

  def num_tokens(self, key: str) -> int:
    return int(self._values[key].size) if key in self._values else 0

  def num_full(self, key: str, length: int) -> int:
    """How many rows have so many numbers of a key."""
    ends = self._ends.get(key, np.zeros(0, np.int64))
    return int((np.diff(ends, prepend=0) == length).sum())

  def save(self, path: pathlib.Path, fingerprint: str) -> None:
    """Writes the table so that it is there whole or not at all."""
    arrays = {f'value/{key}': value for key, value in self._values.items()}
    arrays |= {f'end/{key}': value for key, value in self._ends.items()}
    arrays |= {f'count/{key}': np.array(n) for key, n in self.counts.items()}
    arrays |= {'format': np.array(FORMAT), 'fingerprint': np.array(fingerprint)}
    paths.write_atomically(path, functools.partial(_write, arrays))

  @classmethod
  def load(cls, path: pathlib.Path) -> tuple['RowTable', str]:
    """A table that was saved, and the fingerprint of its examples.

    Raises:
      CacheError: the file is damaged or of another format.
    """
    try:
      named = npz_files.load_arrays(path)
      if int(named['format']) != FORMAT:
        raise ValueError(f'format {int(named["format"])}')
    except (ValueError, OSError, KeyError, TypeError) as error:
      raise errors.CacheError(
        f'A file of cached rows cannot be read ({error})',
        where=str(path),
        fix='delete it; it is written again from the examples',
      ) from error

    def group(prefix):
      return {
        key.removeprefix(prefix): value
        for key, value in named.items()
        if key.startswith(prefix)
      }

    counts = {key: int(n) for key, n in group('count/').items()}
    return cls(group('value/'), group('end/'), counts), str(
      named['fingerprint']
    )


def _flush(rows, chunks, lengths) -> None:
  """Moves rows to flat arrays."""
  if not rows:
    return
  for key, first in rows[0].items():
    ragged = np.ndim(first) > 0
    values = (
      np.concatenate([row[key] for row in rows])
      if ragged
      else np.array([row[key] for row in rows])
    )
    chunks.setdefault(key, []).append(_small(values))
    if ragged:
      lengths.setdefault(key, []).append(
        np.array([len(row[key]) for row in rows], np.int64)
      )


def _small(values: np.ndarray) -> np.ndarray:
  for kind in _TYPES:
    limits = np.iinfo(kind)
    if not values.size or (
      limits.min <= values.min() and values.max() <= limits.max
    ):
      return values.astype(kind)
  raise ValueError('A row holds a number beyond 32 bits.')


def _write(arrays: dict[str, np.ndarray], file: BinaryIO) -> None:
  """As `np.savez`, without the time: processes write the same bytes."""
  with zipfile.ZipFile(file, 'w') as archive:
    for key, value in arrays.items():
      info = zipfile.ZipInfo(f'{key}.npy')
      with archive.open(info, 'w', force_zip64=True) as member:
        np.lib.format.write_array(member, value, allow_pickle=False)
