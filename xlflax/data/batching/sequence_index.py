"""Random access to the sequences of a task in a token cache.

The cache contains no data that depends on the layout. The texts of a sequence
are determined from the examples' offsets in the cache's flat token arrays, so
the same cache can be read with any layout and length. `sequence_iterator`
creates the same sequences from examples in order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from xlflax.data import dataset_config
from xlflax.data.batching import bitmask_index, collate, length_filter


class Texts(Protocol):
  """Concatenated texts of a task in one language, with eos after each text.

  Attributes:
    num_tokens: Total number of tokens, including eos.
  """

  num_tokens: int

  def slices(self, starts: np.ndarray, stops: np.ndarray) -> list[np.ndarray]:
    """Returns n slices of the token array, given their start and stop indices.

    Args:
      starts: Start of each slice, int64 [n].
      stops: Index after the last token of each slice, int64 [n].
    """

  def bounds(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of each text's first token and of its eos token.

    Args:
      index: Indices of the texts, int64 [n].

    Returns:
      Two arrays of shape [n], int64.
    """

  def lengths(self) -> Iterator[np.ndarray]:
    """Yields arrays of the lengths of consecutive texts, excluding eos tokens.

    Each array is int64 of shape [texts].
    """


class RowIndex:
  """Index that maps the sequences of an epoch to a task's cached texts.

  Attributes:
    num_rows: Number of sequences in an epoch.
    num_dropped: Number of examples that the length filters drop.
    num_truncated: Number of examples that are truncated.
    num_removed_tokens: Number of text tokens that are removed when examples are
      dropped or truncated. 0 for BLOCKS and INTERLEAVED.
  """

  num_rows: int
  num_dropped: int = 0
  num_truncated: int = 0
  num_removed_tokens: int = 0

  def units(self, index: np.ndarray) -> list[Sequence[collate.Unit]]:
    """Returns the texts of the sequences with the given indices.

    Args:
      index: Indices of the sequences in an epoch, int64 [n].

    Returns:
      The examples in each sequence.
    """
    raise NotImplementedError


def make_index(
  sides: Sequence[Texts],
  starts_document: Callable[[], np.ndarray],
  dataset: dataset_config.DatasetConfig,
) -> RowIndex:
  """Creates an index that maps a dataset's sequences to a task's texts.

  Args:
    sides: Texts in one or two languages, with at least one example each.
    starts_document: Function that returns whether each example starts a
      document, bool [examples]. It is called only for
      ExampleLayout.INTERLEAVED.
    dataset: Dataset configuration. Its layout must be suitable for the number
      of languages in `sides`.
  """
  if dataset.layout is dataset_config.ExampleLayout.BLOCKS:
    return _Blocks(sides[0], dataset)
  if dataset.layout is dataset_config.ExampleLayout.INTERLEAVED:
    return _Adjacent(sides[0], starts_document(), dataset)
  if dataset.packing is dataset_config.Packing.NEXT_FIT:
    return _Packed(sides, dataset)
  return _Examples(sides, dataset)


def next_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
  """Assigns examples to sequences in order (next-fit packing).

  An example that does not fit into the current sequence starts a new sequence.
  For example, `next_fit([3, 2, 4, 1], 5)` is `[0, 2, 4]`, because the sequences
  have the lengths (3, 2) and (4, 1).

  Args:
    lengths: Number of tokens in each example, at most `capacity`, int
      [examples].
    capacity: Maximum number of tokens in a sequence.

  Returns:
    Bounds of shape [sequences + 1], int64. Sequence r contains examples
    bounds[r] .. bounds[r + 1] - 1.
  """
  ends = np.concatenate([[0], np.cumsum(lengths)])
  # For each example, the next example that does not fit into a sequence that
  # starts with it.
  next_start = np.searchsorted(ends, ends[:-1] + capacity, 'right') - 1
  next_start = next_start.tolist()
  bounds, example = [0], 0
  while example < len(next_start):
    example = next_start[example]
    bounds.append(example)
  return np.asarray(bounds, np.int64)


class _Blocks(RowIndex):
  """Index for `ExampleLayout.BLOCKS`: blocks of concatenated texts.

  Sequence r contains tokens r W .. (r + 1) W - 1, where W = T - 2.
  """

  def __init__(self, side, dataset):
    self._side = side
    self._width = dataset.capacity
    self._end = side.num_tokens - 1  # Without the last eos.
    self.num_rows = -(-self._end // self._width)

  def units(self, index):
    starts = index * self._width
    stops = np.minimum(starts + self._width, self._end)
    return [((tokens,),) for tokens in self._side.slices(starts, stops)]


class _Examples(RowIndex):
  """Index of sequences that contain one example each, without packing."""

  def __init__(self, sides, dataset):
    self._sides, self._dataset = sides, dataset
    builder = bitmask_index.Builder()
    for chunk in zip(*(side.lengths() for side in sides), strict=True):
      keep = length_filter.passes_length_filter(chunk, dataset)
      builder.add(keep)
      self.num_removed_tokens += sum(int(length.sum()) for length in chunk)
      if not keep.all():
        chunk = tuple(length[keep] for length in chunk)
      truncated = length_filter.truncated_lengths(chunk, dataset)
      self.num_truncated += length_filter.count_truncated(truncated, chunk)
      self.num_removed_tokens -= sum(int(length.sum()) for length in truncated)
      self._record_lengths(truncated)
    self._selection = builder.build()
    self.num_rows = self._selection.size
    self.num_dropped = builder.num_elements - self.num_rows

  def _record_lengths(self, lengths):
    """Hook that a subclass overrides to record the examples' lengths."""

  def units(self, index):
    return [(unit,) for unit in self._read_examples(index)]

  def _read_examples(self, index):
    """Returns the truncated texts of the given examples after filtering."""
    positions = self._selection.positions(index)
    bounds = [side.bounds(positions) for side in self._sides]
    truncated = length_filter.truncated_lengths(
      [stops - starts for starts, stops in bounds], self._dataset
    )
    texts = [
      side.slices(starts, starts + length)
      for side, (starts, _), length in zip(
        self._sides, bounds, truncated, strict=True
      )
    ]
    return list(zip(*texts, strict=True))


class _Packed(_Examples):
  """Index of packed sequences, each with several consecutive examples."""

  def __init__(self, sides, dataset):
    self._lengths: list[np.ndarray] = []
    super().__init__(sides, dataset)
    lengths = np.concatenate([np.zeros(0, np.int64), *self._lengths])
    self._lengths = []
    self._bounds = next_fit(lengths, dataset.length)
    self.num_rows = self._bounds.size - 1

  def _record_lengths(self, lengths):
    self._lengths.append(length_filter.sequence_lengths(lengths, self._dataset))

  def units(self, index):
    first, last = self._bounds[index], self._bounds[index + 1]
    counts = last - first
    ends = np.cumsum(counts)
    units = self._read_examples(
      np.repeat(first - (ends - counts), counts) + np.arange(ends[-1])
    )
    return [
      units[end - count : end]
      for end, count in zip(ends.tolist(), counts.tolist(), strict=True)
    ]


class _Adjacent(RowIndex):
  """Index for `ExampleLayout.INTERLEAVED`: each window is split into halves."""

  def __init__(self, side, starts_document, dataset):
    self._side = side
    self._width = 2 * dataset.capacity
    first = np.flatnonzero(starts_document)
    self._document_starts = side.bounds(first)[0]
    self._document_stops = side.bounds(
      np.append(first[1:], starts_document.size) - 1
    )[1]
    length = self._document_stops - self._document_starts
    num_full, remainder = np.divmod(length, self._width)
    is_kept = remainder // 2 >= dataset.pairs.min_tokens
    # Number of sequences up to the end of each document.
    self._ends = np.cumsum(num_full + is_kept)
    self.num_rows = int(self._ends[-1])
    self.num_dropped = int(np.count_nonzero(~is_kept & (remainder > 0)))

  def units(self, index):
    document = np.searchsorted(self._ends, index, 'right')
    first_index = np.where(document > 0, self._ends[document - 1], 0)
    window = index - first_index
    start = self._document_starts[document] + window * self._width
    stop = np.minimum(start + self._width, self._document_stops[document])
    middle = stop - (stop - start) // 2
    first = self._side.slices(start, middle)
    second = self._side.slices(middle, stop)
    return [(pair,) for pair in zip(first, second, strict=True)]
