"""Filtering and truncation of examples by length."""

from collections.abc import Sequence

import numpy as np

from xlflax.data import dataset_config


def passes_length_filter(
  lengths: Sequence[np.ndarray], dataset: dataset_config.DatasetConfig
) -> np.ndarray:
  """Returns a mask of the examples that pass the length filters for pairs.

  Monolingual examples always pass.

  Args:
    lengths: Number of text tokens in each example, int64 [examples].
      Monolingual text has one array. Pairs have one for source and one for
      target texts.
    dataset: Dataset that defines the filters `pairs.min_tokens` and
      `pairs.max_tokens` (PPA, section 4.1).

  Returns:
    Array of shape [examples], bool.
  """
  if len(lengths) == 1:
    return np.ones(lengths[0].shape, bool)
  first, second = lengths
  is_kept = np.minimum(first, second) >= dataset.pairs.min_tokens
  if dataset.pairs.max_tokens is not None:
    is_kept &= first + second <= dataset.pairs.max_tokens
  return is_kept


def counts_kept_pairs(dataset: dataset_config.DatasetConfig) -> bool:
  """Returns whether sampling rates are based on the task sizes after filtering.

  The task sizes N_i are counted after filtering if sequences are pairs and a
  filter is set. An epoch of the dataset is then one epoch of each task (PPA,
  section 3.1).
  """
  return (
    dataset.layout
    in (dataset_config.ExampleLayout.PAIRS, dataset_config.ExampleLayout.DUAL)
    and dataset.packing is dataset_config.Packing.NONE
    and (dataset.pairs.min_tokens > 1 or dataset.pairs.max_tokens is not None)
  )


def truncated_lengths(
  lengths: Sequence[np.ndarray], dataset: dataset_config.DatasetConfig
) -> tuple[np.ndarray, ...]:
  """Returns the lengths of texts after truncation to the sequence length.

  If source and target are in one sequence, the longer text is truncated first.
  With a capacity of 6 tokens, lengths (9, 2) become (4, 2), and (9, 8) become
  (3, 3).

  Args:
    lengths: Number of text tokens in each example, int64 [examples].
      Monolingual text has one array. Pairs have one for source and one for
      target texts.
    dataset: Dataset that defines the layout and capacity.

  Returns:
    For source and target, an array of shape [examples], int64.
  """
  capacity = dataset.capacity
  if dataset.layout is not dataset_config.ExampleLayout.PAIRS:
    return tuple(np.minimum(side, capacity) for side in lengths)
  first, second = lengths
  first = np.minimum(first, np.maximum(capacity - second, (capacity + 1) // 2))
  return first, np.minimum(second, capacity - first)


def sequence_lengths(
  lengths: Sequence[np.ndarray], dataset: dataset_config.DatasetConfig
) -> np.ndarray:
  """Returns the number of tokens in each example, including special tokens.

  Args:
    lengths: Number of text tokens in each example, int64 [examples].
      Monolingual text has one array. Pairs have one for source and one for
      target texts.
    dataset: Dataset that defines the layout and length.

  Returns:
    Array of shape [examples], int64.
  """
  num_special = dataset.length - dataset.capacity
  return np.sum(lengths, axis=0) + num_special


def count_truncated(
  truncated: Sequence[np.ndarray], lengths: Sequence[np.ndarray]
) -> int:
  """Counts the examples in which the source or the target was truncated.

  Args:
    truncated: Number of text tokens in each example after truncation, int64
      [examples]. Monolingual text has one array. Pairs have one for source and
      one for target texts.
    lengths: Number of text tokens in each example before truncation, in the
      same form as `truncated`.
  """
  is_truncated = np.logical_or.reduce(
    [after < before for after, before in zip(truncated, lengths, strict=True)]
  )
  return int(np.count_nonzero(is_truncated))
