"""The rows of one task in order, from its examples as they are read.

The same rows as `row_index` gives for 0, 1, 2, …, for sources that can only
be read from the beginning.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from xlflax.data import dataset_config, tokenized_examples
from xlflax.data.batching import collate as rows
from xlflax.data.batching import length_filter as row_lengths

Units = Sequence[rows.Unit]


@dataclasses.dataclass
class Counts:
  """What has been read so far.

  Attributes:
    examples: examples read.
    dropped: examples (ADJACENT: ends of documents) left out by filters.
    truncated: examples cut to fit.
  """

  examples: int = 0
  dropped: int = 0
  truncated: int = 0


def iterate_sequences(
  batches: Iterable[tokenized_examples.Examples],
  stream: dataset_config.Stream,
  *,
  eos_id: int,
  counts: Counts,
) -> Iterator[Units]:
  """The texts of each row of an epoch.

  Args:
    batches: all examples of a task, without empty ones.
    stream: layout, length, filters.
    eos_id: stands between joined lines.
    counts: is added to.
  """
  layout = stream.layout
  if layout is dataset_config.Layout.BLOCKS:
    return _blocks(batches, stream, eos_id, counts)
  if layout is dataset_config.Layout.ADJACENT:
    return _adjacent(batches, stream, eos_id, counts)
  if stream.packing is dataset_config.Packing.NEXT_FIT:
    return _packed(batches, stream, counts)
  return ((unit,) for unit, _ in _single(batches, stream, counts))


def _blocks(batches, stream, eos_id, counts):
  width = stream.capacity
  pending = np.zeros(0, np.int32)
  for batch in batches:
    counts.examples += len(batch)
    pending = np.concatenate(
      [pending, batch.sides[0].with_eos(eos_id, np.int32)]
    )
    # The last token is an eos that is left out if nothing follows.
    num_blocks = (pending.size - 1) // width
    for start in range(0, num_blocks * width, width):
      yield ((pending[start : start + width],),)
    pending = pending[num_blocks * width :]
  if pending.size > 1:
    yield ((pending[:-1],),)


def _single(batches, stream, counts):
  """Each kept example's texts, and what they take in a row."""
  for batch in batches:
    lengths = [side.lengths for side in batch.sides]
    keep = row_lengths.passes_length_filter(lengths, stream)
    sides = [side.select(keep) for side in batch.sides]
    lengths = [side.lengths for side in sides]
    cut = row_lengths.truncated_lengths(lengths, stream)
    counts.examples += len(batch)
    counts.dropped += len(batch) - int(np.count_nonzero(keep))
    counts.truncated += row_lengths.count_shorter(cut, lengths)
    texts = [s.texts(length) for s, length in zip(sides, cut, strict=True)]
    yield from zip(
      zip(*texts, strict=True),
      row_lengths.in_row(cut, stream).tolist(),
      strict=True,
    )


def _packed(batches, stream, counts):
  row: list[rows.Unit] = []
  used = 0
  for unit, size in _single(batches, stream, counts):
    if used + size > stream.length:
      yield row
      row, used = [], 0
    row.append(unit)
    used += size
  if row:
    yield row


def _adjacent(batches, stream, eos_id, counts):
  for document in _documents(batches, eos_id, counts):
    width = 2 * stream.capacity
    for start in range(0, document.size, width):
      window = document[start : start + width]
      middle = window.size - window.size // 2
      if window.size < width and (window.size // 2 < stream.pairs.min_tokens):
        counts.dropped += 1
        continue
      yield ((window[:middle], window[middle:]),)


def _documents(batches, eos_id, counts):
  """Each document's lines joined with eos between, int32 [tokens]."""
  lines: list[np.ndarray] = []
  for batch in batches:
    counts.examples += len(batch)
    joined = batch.sides[0].with_eos(eos_id, np.int32)
    starts = (
      np.cumsum(batch.sides[0].lengths + 1) - batch.sides[0].lengths - 1
    )[batch.starts_document].tolist()
    bounds = [0, *starts, joined.size]
    for i, (start, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
      if i > 0 and lines:
        yield np.concatenate(lines)[:-1]
        lines = []
      if end > start:
        lines.append(joined[start:end])
  if lines:
    yield np.concatenate(lines)[:-1]
