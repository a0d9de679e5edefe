"""Tables of the sequences that a featurizer creates, and their file format."""

import functools
import pathlib
import zipfile
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np

from xlflax.data.supervised.featurizers import featurizer
from xlflax.storage import checksums, npz_files, paths
from xlflax.utils import errors

_CHUNK = 4096  # Number of sequences that are flattened together.
_TYPES = (np.int8, np.int16, np.int32)
FORMAT = 1


class FeatureTable:
  """Sequences of different lengths, stored as one flat array per batch key.

  The values of each key are stored in the smallest integer type that can
  represent them.
  """

  def __init__(
    self,
    values: dict[str, np.ndarray],
    ends: dict[str, np.ndarray],
    counts: dict[str, int],
  ):
    """Creates a table from flat arrays.

    Args:
      values: Concatenated values of all sequences, by batch key.
      ends: Index at which each sequence ends in the concatenated values, by
        batch key, int64 of shape [rows]. Keys with a single number per sequence
        have no entry.
      counts: Number of examples that were read ('examples') and number of
        examples that produced no sequence ('unused').
    """
    self._values = values
    self._ends = ends
    self.counts = counts
    self.num_rows = 0
    for key, value in values.items():
      self.num_rows = len(ends[key]) if key in ends else len(value)

  @classmethod
  def of(cls, groups: Iterable[list[featurizer.Row]]) -> 'FeatureTable':
    """Creates a table from lists of sequences, one list for each example."""
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
      {key: np.concatenate(arrays) for key, arrays in chunks.items()},
      {
        key: np.cumsum(np.concatenate(arrays))
        for key, arrays in lengths.items()
      },
      counts,
    )

  def row(self, index: int) -> featurizer.Row:
    """Returns the sequence at the given index."""
    row = {}
    for key, value in self._values.items():
      ends = self._ends.get(key)
      if ends is None:
        row[key] = value[index]
      else:
        start = ends[index - 1] if index else 0
        row[key] = value[start : ends[index]]
    return row

  def rows(self, indices: Sequence[int]) -> list[featurizer.Row]:
    """Returns the sequences at the given indices."""
    return [self.row(int(index)) for index in indices]

  def digest(self) -> str:
    """Returns a checksum of all sequences."""
    return checksums.digest_json(
      [
        [key, value.dtype.str, checksums.digest_content(value.tobytes())]
        for arrays in (self._values, self._ends)
        for key, value in sorted(arrays.items())
      ]
    )

  def num_tokens(self, key: str) -> int:
    """Counts the values of a batch key over all sequences."""
    return int(self._values[key].size) if key in self._values else 0

  def num_full(self, key: str, length: int) -> int:
    """Counts the sequences with exactly `length` values for a batch key."""
    ends = self._ends.get(key, np.zeros(0, np.int64))
    return int((np.diff(ends, prepend=0) == length).sum())

  def save(self, path: pathlib.Path, fingerprint: str) -> None:
    """Writes the table to a file atomically."""
    arrays = {f'value/{key}': value for key, value in self._values.items()}
    arrays |= {f'end/{key}': value for key, value in self._ends.items()}
    arrays |= {f'count/{key}': np.array(n) for key, n in self.counts.items()}
    arrays |= {'format': np.array(FORMAT), 'fingerprint': np.array(fingerprint)}
    paths.write_atomically(path, functools.partial(_write_npz, arrays))

  @classmethod
  def load(cls, path: pathlib.Path) -> tuple['FeatureTable', str]:
    """Loads a table that was written by `save`.

    Returns:
      The table and the fingerprint that was saved with it.

    Raises:
      CacheError: If the file is damaged or has a different format version.
    """
    try:
      arrays = npz_files.load_arrays(path)
      if int(arrays['format']) != FORMAT:
        raise ValueError(
          f'The format version {int(arrays["format"])} is not supported.'
        )
    except (ValueError, OSError, KeyError, TypeError) as error:
      raise errors.CacheError(
        f'The feature cache file cannot be read: {error}',
        where=str(path),
        fix='Delete the file to regenerate it from the examples.',
      ) from error

    def arrays_with_prefix(prefix):
      return {
        key.removeprefix(prefix): value
        for key, value in arrays.items()
        if key.startswith(prefix)
      }

    counts = {
      key: int(count) for key, count in arrays_with_prefix('count/').items()
    }
    table = cls(
      arrays_with_prefix('value/'), arrays_with_prefix('end/'), counts
    )
    return table, str(arrays['fingerprint'])


def _flush(rows, chunks, lengths) -> None:
  """Appends the values and lengths of sequences as flat arrays."""
  if not rows:
    return
  for key, first_value in rows[0].items():
    is_ragged = np.ndim(first_value) > 0
    values = (
      np.concatenate([row[key] for row in rows])
      if is_ragged
      else np.array([row[key] for row in rows])
    )
    chunks.setdefault(key, []).append(_downcast(values))
    if is_ragged:
      lengths.setdefault(key, []).append(
        np.array([len(row[key]) for row in rows], np.int64)
      )


def _downcast(values: np.ndarray) -> np.ndarray:
  """Casts values to the smallest integer type that can represent them."""
  for dtype in _TYPES:
    limits = np.iinfo(dtype)
    if not values.size or (
      limits.min <= values.min() and values.max() <= limits.max
    ):
      return values.astype(dtype)
  raise ValueError('All values of the sequences must fit into 32-bit integers.')


def _write_npz(arrays: dict[str, np.ndarray], file: BinaryIO) -> None:
  """Writes arrays as `np.savez` does, but without timestamps.

  All processes therefore write identical bytes.
  """
  with zipfile.ZipFile(file, 'w') as archive:
    for key, value in arrays.items():
      info = zipfile.ZipInfo(f'{key}.npy')
      with archive.open(info, 'w', force_zip64=True) as member:
        np.lib.format.write_array(member, value, allow_pickle=False)
