"""The rows of one task in a cache: their number, and the texts of any row.

Nothing is stored per layout: rows are arithmetic on the offsets of examples
in the cache's flat token arrays, so one cache serves every layout and length.
`row_iterator` makes the same rows from examples in order.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data import stream as stream_lib
from xlflax.data.rows import layouts as rows
from xlflax.data.rows import lengths as row_lengths


@dataclasses.dataclass(frozen=True)
class Side:
  """The texts of one side of a task.

  Attributes:
    tokens: every text followed by eos, one after the other, [tokens].
    offsets: where each text begins, and the end: int64 [examples + 1].
  """

  tokens: np.ndarray
  offsets: np.ndarray

  def lengths(self) -> np.ndarray:
    """Tokens of each text without eos, int64 [examples]."""
    return np.diff(self.offsets) - 1


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


def make(
  sides: Sequence[Side], starts_document: np.ndarray, stream: stream_lib.Stream
) -> RowIndex:
  """The index for a stream's layout.

  Args:
    sides: one or two, of at least one example each.
    starts_document: bool [examples].
    stream: its layout fits the number of sides.
  """
  if stream.layout is stream_lib.Layout.BLOCKS:
    return _Blocks(sides[0], stream)
  if stream.layout is stream_lib.Layout.ADJACENT:
    return _Adjacent(sides[0], starts_document, stream)
  if stream.packing is stream_lib.Packing.NEXT_FIT:
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
    self._tokens = side.tokens
    self._width = stream.capacity
    self._end = int(side.offsets[-1]) - 1  # without the last eos
    whole, rest = divmod(self._end, self._width)
    pad = stream.remainder is stream_lib.Remainder.PAD
    self.num_rows = whole + 1 if rest and (pad or not whole) else whole

  def units(self, index):
    tokens, width, end = self._tokens, self._width, self._end
    return [
      ((tokens[s : min(s + width, end)],),) for s in (index * width).tolist()
    ]


class _Examples(RowIndex):
  """Row r: the r-th example that the filters keep."""

  def __init__(self, sides, stream):
    self._sides, self._stream = sides, stream
    lengths = [side.lengths() for side in sides]
    keep = row_lengths.keep(lengths, stream)
    self._kept = None if keep.all() else np.flatnonzero(keep)
    lengths = [length[keep] for length in lengths]
    self.num_rows = lengths[0].size
    self.num_dropped = keep.size - self.num_rows
    cut = row_lengths.cut(lengths, stream)
    self.num_truncated = row_lengths.count_shorter(cut, lengths)
    self._prepare(cut)

  def _prepare(self, lengths):
    """Called once with the text tokens in each kept example's sides."""

  def units(self, index):
    return [(unit,) for unit in self._units(index)]

  def _units(self, index):
    """The texts of kept examples."""
    if self._kept is not None:
      index = self._kept[index]
    starts = [side.offsets[index] for side in self._sides]
    cut = row_lengths.cut(
      [
        side.offsets[index + 1] - 1 - start
        for side, start in zip(self._sides, starts, strict=True)
      ],
      self._stream,
    )
    texts = [
      [
        side.tokens[s:e]
        for s, e in zip(start.tolist(), (start + length).tolist(), strict=True)
      ]
      for side, start, length in zip(self._sides, starts, cut, strict=True)
    ]
    return list(zip(*texts, strict=True))


class _Packed(_Examples):
  """Row r: consecutive kept examples that fit together."""

  def _prepare(self, lengths):
    self._bounds = next_fit(
      row_lengths.in_row(lengths, self._stream), self._stream.length
    )
    self.num_rows = self._bounds.size - 1

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
    self._tokens = side.tokens
    self._width = 2 * stream.capacity
    first = np.flatnonzero(starts_document)
    self._begin = side.offsets[first]
    self._end = side.offsets[np.append(first[1:], starts_document.size)] - 1
    length = self._end - self._begin
    whole, rest = np.divmod(length, self._width)
    halved = rest // 2 >= stream.pairs.min_tokens
    self._after = np.cumsum(whole + halved)  # rows up to each document's end
    self.num_rows = int(self._after[-1])
    self.num_dropped = int(np.count_nonzero(~halved & (rest > 0)))

  def units(self, index):
    document = np.searchsorted(self._after, index, 'right')
    before = np.where(document > 0, self._after[document - 1], 0)
    start = self._begin[document] + (index - before) * self._width
    end = np.minimum(start + self._width, self._end[document])
    middle = end - (end - start) // 2
    tokens = self._tokens
    return [
      ((tokens[s:m], tokens[m:e]),)
      for s, m, e in zip(
        start.tolist(), middle.tolist(), end.tolist(), strict=True
      )
    ]
