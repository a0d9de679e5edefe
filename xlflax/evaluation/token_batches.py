"""Rows of tokens to score, cut from the text of one language or pair.

The rows are laid out by the same code as those of training
(`xlflax.data.batching.collate`), but hold all of the text, once, in order.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data import batch_keys, dataset_config
from xlflax.data.batching import collate
from xlflax.data.batching import length_filter as row_lengths
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import progress_reporting

Tokens = Sequence[int]


def split_into_blocks(
  lines: Sequence[Tokens], *, capacity: int, separator: int
) -> list[np.ndarray]:
  """Lines joined end to end and cut into blocks; the last may be shorter.

  Before, capacity 4, separator 2: `[[7, 8], [9, 9, 9]]`; after:
  `[[7, 8, 2, 9], [9, 9]]`.
  """
  joined = list(
    itertools.chain.from_iterable(
      itertools.chain((separator,), line) for line in lines if len(line)
    )
  )[1:]
  return [
    np.asarray(joined[i : i + capacity], np.int32)
    for i in range(0, len(joined), capacity)
  ]


def fitting_pairs(
  first: Sequence[Tokens],
  second: Sequence[Tokens],
  stream: dataset_config.Stream,
) -> list[collate.Unit]:
  """The pairs that pass the stream's filters, cut to fit in one row."""
  options = stream.pairs
  lengths = np.array(
    [
      [len(side) for side in sides] for sides in zip(first, second, strict=True)
    ],
    np.int64,
  ).reshape(-1, 2)
  keep = lengths.min(-1) >= options.min_tokens
  if options.max_tokens is not None:
    keep &= lengths.sum(-1) <= options.max_tokens
  ends = zip(
    *row_lengths.truncated_lengths(tuple(lengths.T), stream), strict=True
  )
  return [
    (np.asarray(x[:i], np.int32), np.asarray(y[:j], np.int32))
    for x, y, (i, j), fits in zip(first, second, ends, keep, strict=True)
    if fits
  ]


def make_batches(
  units: Sequence[collate.Unit],
  languages: tuple[int, ...],
  stream: dataset_config.Stream,
  spec: VocabularySpec,
) -> Iterator[batch_keys.Batch]:
  """All units, one a row, in batches of the stream's static shape.

  The last batch is filled up with rows of padding.

  Args:
    units: the text of each row: one array of ids, or two for pairs.
    languages: language id of each side.
    stream: layout, length T and batch size B.
    spec: special tokens.

  Yields:
    Arrays [B, T] as `xlflax.data.batch_keys` documents them.
  """
  progress_name = progress_reporting.current_progress_name()
  with progress_reporting.Progress(
    progress_name, unit='rows', total=len(units)
  ) as report:
    for start in range(0, len(units), stream.batch_size):
      batch_units = units[start : start + stream.batch_size]
      rows = [collate.Row([unit], languages) for unit in batch_units]
      empty = stream.batch_size - len(rows)
      rows += [collate.Row([], languages)] * empty
      yield collate.build_batch(rows, stream, spec)
      report(len(batch_units))
