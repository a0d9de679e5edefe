"""The rows of one task in a cache: their number, and the texts of any row.

Nothing is stored per layout: rows are arithmetic on the offsets of examples
in the cache's flat token arrays, so one cache serves every layout and length.
`row_iterator` makes the same rows from examples in order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from xlflax.data import dataset_config
from xlflax.data.batching import bitmask_index
from xlflax.data.batching import collate as rows
from xlflax.data.batching import length_filter as row_lengths


class Texts(Protocol):
  """The texts of one side of a task, each followed by eos, end to end."""

  num_tokens: int  # with an eos for each text

  def slices(self, starts: np.ndarray, stops: np.ndarray) -> list[np.ndarray]:
    """Tokens starts_i .. stops_i - 1, for int64 [n] of each."""

  def bounds(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the texts `index`, int64 [n], begin, and where their eos is."""

  def lengths(self) -> Iterator[np.ndarray]:
    """Tokens of each text without eos, int64, of some at a time, in order."""


class RowIndex:
  """Rows of a layout over one task.

  Attributes:
    num_rows: rows in an epoch.
    num_dropped: examples that the filters drop.
    num_truncated: examples that are cut to fit.
  """

  num_rows: int
  num_dropped: int = 0
  num_truncated: int = 0

  def units(self, index: np.ndarray) -> list[Sequence[rows.Unit]]:
    """The texts of the rows `index`, int64 [n]: one entry for each."""
    raise NotImplementedError


def make_index(
  sides: Sequence[Texts],
  starts_document: Callable[[], np.ndarray],
  stream: dataset_config.Stream,
) -> RowIndex:
  """The index for a stream's layout.

  Args:
    sides: one or two, of at least one example each.
    starts_document: gives bool [examples], for the layout that needs it.
    stream: its layout fits the number of sides.
  """
  if stream.layout is dataset_config.Layout.BLOCKS:
    return _Blocks(sides[0], stream)
  if stream.layout is dataset_config.Layout.ADJACENT:
    return _Adjacent(sides[0], starts_document(), stream)
  if stream.packing is dataset_config.Packing.NEXT_FIT:
    return _Packed(sides, stream)
  return _Examples(sides, stream)


def next_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
  """Where rows begin when examples fill them in order.

  An example that does not fit in the open row closes it:
  `next_fit([3, 2, 4, 1], 5)` is `[0, 2, 4]`: rows (3, 2) and (4, 1).

  Args:
    lengths: tokens of each example, at most `capacity`, int [examples].
    capacity: tokens in a row.

  Returns:
    int64 [rows + 1]: row r holds examples bounds[r] .. bounds[r + 1] - 1.
  """
  ends = np.concatenate([[0], np.cumsum(lengths)])
  # after[i]: the first example that no longer fits in a row begun by i.
  after = (np.searchsorted(ends, ends[:-1] + capacity, 'right') - 1).tolist()
  bounds, example = [0], 0
  while example < len(after):
    example = after[example]
    bounds.append(example)
  return np.asarray(bounds, np.int64)


class _Blocks(RowIndex):
  """Row r: tokens r W .. (r + 1) W - 1 of the joined texts, W = T - 2."""

  def __init__(self, side, stream):
    self._side = side
    self._width = stream.capacity
    self._end = side.num_tokens - 1  # without the last eos
    self.num_rows = -(-self._end // self._width)

  def units(self, index):
    starts = index * self._width
    stops = np.minimum(starts + self._width, self._end)
    return [((tokens,),) for tokens in self._side.slices(starts, stops)]


class _Examples(RowIndex):
  """Row r: the r-th example that the filters keep."""

  def __init__(self, sides, stream):
    self._sides, self._stream = sides, stream
    builder = bitmask_index.Builder()
    for chunk in zip(*(side.lengths() for side in sides), strict=True):
      keep = row_lengths.passes_length_filter(chunk, stream)
      builder.add(keep)
      if not keep.all():
        chunk = tuple(length[keep] for length in chunk)
      cut = row_lengths.truncated_lengths(chunk, stream)
      self.num_truncated += row_lengths.count_shorter(cut, chunk)
      self._prepare(cut)
    self._kept = builder.build()
    self.num_rows = self._kept.size
    self.num_dropped = builder.num_seen - self.num_rows

  def _prepare(self, lengths):
    """Called with the text tokens in kept examples' sides, in their order."""

  def units(self, index):
    return [(unit,) for unit in self._units(index)]

  def _units(self, index):
    """The texts of kept examples."""
    bounds = [side.bounds(self._kept.places(index)) for side in self._sides]
    cut = row_lengths.truncated_lengths(
      [stops - starts for starts, stops in bounds], self._stream
    )
    texts = [
      side.slices(starts, starts + length)
      for side, (starts, _), length in zip(
        self._sides, bounds, cut, strict=True
      )
    ]
    return list(zip(*texts, strict=True))


class _Packed(_Examples):
  """Row r: consecutive kept examples that fit together."""

  def __init__(self, sides, stream):
    self._lengths: list[np.ndarray] = []
    super().__init__(sides, stream)
    lengths = np.concatenate([np.zeros(0, np.int64), *self._lengths])
    self._lengths = []
    self._bounds = next_fit(lengths, stream.length)
    self.num_rows = self._bounds.size - 1

  def _prepare(self, lengths):
    self._lengths.append(row_lengths.in_row(lengths, self._stream))

  def units(self, index):
    first, last = self._bounds[index], self._bounds[index + 1]
    counts = last - first
    ends = np.cumsum(counts)
    units = self._units(
      np.repeat(first - (ends - counts), counts) + np.arange(ends[-1])
    )
    return [
      units[e - n : e]
      for e, n in zip(ends.tolist(), counts.tolist(), strict=True)
    ]


class _Adjacent(RowIndex):
  """Windows of 2 (T - 2) tokens of a document, halved into two sides."""

  def __init__(self, side, starts_document, stream):
    self._side = side
    self._width = 2 * stream.capacity
    first = np.flatnonzero(starts_document)
    self._begin = side.bounds(first)[0]
    self._end = side.bounds(np.append(first[1:], starts_document.size) - 1)[1]
    length = self._end - self._begin
    num_full, remainder = np.divmod(length, self._width)
    halved = remainder // 2 >= stream.pairs.min_tokens
    self._after = np.cumsum(num_full + halved)  # rows up to each document's end
    self.num_rows = int(self._after[-1])
    self.num_dropped = int(np.count_nonzero(~halved & (remainder > 0)))

  def units(self, index):
    document = np.searchsorted(self._after, index, 'right')
    before = np.where(document > 0, self._after[document - 1], 0)
    start = self._begin[document] + (index - before) * self._width
    end = np.minimum(start + self._width, self._end[document])
    middle = end - (end - start) // 2
    first = self._side.slices(start, middle)
    second = self._side.slices(middle, end)
    return [(pair,) for pair in zip(first, second, strict=True)]
