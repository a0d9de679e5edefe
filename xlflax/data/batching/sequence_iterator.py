"""Streaming conversion of a task's examples to sequences.

The sequences equal the sequences 0, 1, 2, … of `sequence_index`. This module
supports sources that can be read only from the beginning.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from xlflax.data import dataset_config, tokenized_examples
from xlflax.data.batching import collate, length_filter

Units = Sequence[collate.Unit]


@dataclasses.dataclass
class Counts:
  """Numbers of examples read, dropped and truncated so far.

  Attributes:
    examples: Number of examples that were read.
    dropped: Number of examples that the filters dropped. With
      ExampleLayout.INTERLEAVED, this is the number of remainders of documents
      that were dropped because they are too short.
    truncated: Number of examples that were truncated.
  """

  examples: int = 0
  dropped: int = 0
  truncated: int = 0


def iterate_sequences(
  batches: Iterable[tokenized_examples.Examples],
  dataset: dataset_config.DatasetConfig,
  *,
  eos_id: int,
  counts: Counts,
) -> Iterator[Units]:
  """Yields the texts of each sequence in one epoch of a task.

  Args:
    batches: Batches that together contain all non-empty examples of a task.
    dataset: Dataset that defines the layout, length and filters.
    eos_id: Id of the end-of-sequence token, which separates concatenated lines.
    counts: Numbers of read, dropped and truncated examples. The iterator
      updates them.
  """
  layout = dataset.layout
  if layout is dataset_config.ExampleLayout.BLOCKS:
    return _iterate_blocks(batches, dataset, eos_id, counts)
  if layout is dataset_config.ExampleLayout.INTERLEAVED:
    return _iterate_adjacent(batches, dataset, eos_id, counts)
  if dataset.packing is dataset_config.Packing.NEXT_FIT:
    return _iterate_packed(batches, dataset, counts)
  return ((unit,) for unit, _ in _iterate_examples(batches, dataset, counts))


def _iterate_blocks(batches, dataset, eos_id, counts):
  """Yields sequences that are blocks of concatenated lines (BLOCKS layout)."""
  width = dataset.capacity
  pending = np.zeros(0, np.int32)
  for batch in batches:
    counts.examples += len(batch)
    pending = np.concatenate(
      [pending, batch.sides[0].with_eos(eos_id, np.int32)]
    )
    # The last token is an eos, which is omitted at the end of the task.
    num_blocks = (pending.size - 1) // width
    for start in range(0, num_blocks * width, width):
      yield ((pending[start : start + width],),)
    pending = pending[num_blocks * width :]
  if pending.size > 1:
    yield ((pending[:-1],),)


def _iterate_examples(batches, dataset, counts):
  """Yields the texts and length of each example that passes the filters."""
  for batch in batches:
    lengths = [side.lengths for side in batch.sides]
    keep = length_filter.passes_length_filter(lengths, dataset)
    sides = [side.select(keep) for side in batch.sides]
    lengths = [side.lengths for side in sides]
    truncated = length_filter.truncated_lengths(lengths, dataset)
    counts.examples += len(batch)
    counts.dropped += len(batch) - int(np.count_nonzero(keep))
    counts.truncated += length_filter.count_truncated(truncated, lengths)
    texts = [
      side.texts(side_lengths)
      for side, side_lengths in zip(sides, truncated, strict=True)
    ]
    yield from zip(
      zip(*texts, strict=True),
      length_filter.sequence_lengths(truncated, dataset).tolist(),
      strict=True,
    )


def _iterate_packed(batches, dataset, counts):
  """Yields packed sequences of examples."""
  sequence: list[collate.Unit] = []
  num_tokens = 0
  for unit, size in _iterate_examples(batches, dataset, counts):
    if num_tokens + size > dataset.length:
      yield sequence
      sequence, num_tokens = [], 0
    sequence.append(unit)
    num_tokens += size
  if sequence:
    yield sequence


def _iterate_adjacent(batches, dataset, eos_id, counts):
  """Yields pairs of adjacent document segments (INTERLEAVED layout)."""
  for document in _iterate_documents(batches, eos_id, counts):
    width = 2 * dataset.capacity
    for start in range(0, document.size, width):
      window = document[start : start + width]
      middle = window.size - window.size // 2
      is_short = window.size // 2 < dataset.pairs.min_tokens
      if window.size < width and is_short:
        counts.dropped += 1
        continue
      yield ((window[:middle], window[middle:]),)


def _iterate_documents(batches, eos_id, counts):
  """Yields the lines of each document, joined with eos, int32 [tokens]."""
  lines: list[np.ndarray] = []
  for batch in batches:
    counts.examples += len(batch)
    joined = batch.sides[0].with_eos(eos_id, np.int32)
    sizes = batch.sides[0].lengths + 1  # With eos.
    starts = np.cumsum(sizes) - sizes
    document_starts = starts[batch.starts_document].tolist()
    bounds = [0, *document_starts, joined.size]
    for i, (start, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
      if i > 0 and lines:
        yield np.concatenate(lines)[:-1]
        lines = []
      if end > start:
        lines.append(joined[start:end])
  if lines:
    yield np.concatenate(lines)[:-1]
