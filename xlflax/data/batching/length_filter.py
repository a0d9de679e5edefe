"""Which examples are kept and where their texts are cut, from lengths only."""

from collections.abc import Sequence

import numpy as np

from xlflax.data import dataset_config


def passes_length_filter(
  lengths: Sequence[np.ndarray], stream: dataset_config.Stream
) -> np.ndarray:
  """Which examples pass the length filters of `stream.pairs`.

  Args:
    lengths: text tokens of each example, int64 [examples], for each side.
    stream: its `pairs.min_tokens` and `pairs.max_tokens` count (PPA,
      section 4.1); examples with one side are all kept.

  Returns:
    bool [examples].
  """
  if len(lengths) == 1:
    return np.ones(lengths[0].shape, bool)
  first, second = lengths
  is_kept = np.minimum(first, second) >= stream.pairs.min_tokens
  if stream.pairs.max_tokens is not None:
    is_kept &= first + second <= stream.pairs.max_tokens
  return is_kept


def counts_kept_pairs(stream: dataset_config.Stream) -> bool:
  """Whether N_i of the sampling rates are the pairs that the filters keep.

  So it is where rows are pairs and a filter is set: an epoch over the stream
  is then one over each task (PPA, section 3.1).
  """
  return (
    stream.layout in (dataset_config.Layout.PAIRS, dataset_config.Layout.SIDES)
    and stream.packing is dataset_config.Packing.NONE
    and (stream.pairs.min_tokens > 1 or stream.pairs.max_tokens is not None)
  )


def truncated_lengths(
  lengths: Sequence[np.ndarray], stream: dataset_config.Stream
) -> tuple[np.ndarray, ...]:
  """Lengths after truncation to the row.

  Two sides in one row are cut longest first: with room for 6 tokens, lengths
  (9, 2) become (4, 2) and (9, 8) become (3, 3).

  Args:
    lengths: text tokens of each example, int64 [examples], for each side.
    stream: its capacity counts.

  Returns:
    int64 [examples] for each side.
  """
  room = stream.capacity
  if stream.layout is not dataset_config.Layout.PAIRS:
    return tuple(np.minimum(side, room) for side in lengths)
  first, second = lengths
  first = np.minimum(first, np.maximum(room - second, (room + 1) // 2))
  return first, np.minimum(second, room - first)


def in_row(
  lengths: Sequence[np.ndarray], stream: dataset_config.Stream
) -> np.ndarray:
  """Tokens [examples] in a row, with special ones; `lengths` per side."""
  special = stream.length - stream.capacity
  return np.sum(lengths, axis=0) + special


def count_shorter(
  cut: Sequence[np.ndarray], lengths: Sequence[np.ndarray]
) -> int:
  """Examples of which a side was cut; arguments are [examples] a side."""
  return int(
    np.count_nonzero(
      np.logical_or.reduce([a < b for a, b in zip(cut, lengths, strict=True)])
    )
  )
