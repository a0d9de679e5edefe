"""Rows of tokens to score, cut from the text of one language or pair.

The rows are laid out by the same code as those of training
(`xlflax.data.rows.layouts`), but hold all of the text, once, in order.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.data import stream as stream_lib
from xlflax.data.rows import layouts as rows_lib
from xlflax.data.rows import lengths as row_lengths
from xlflax.data.vocabularies.spec import VocabularySpec
from xlflax.foundation import progress

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
  first: Sequence[Tokens], second: Sequence[Tokens], stream: stream_lib.Stream
) -> list[rows_lib.Unit]:
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
  units: Sequence[rows_lib.Unit],
  languages: tuple[int, ...],
  stream: stream_lib.Stream,
  spec: VocabularySpec,
) -> Iterator[batch_lib.Batch]:
  """All units, one a row, in batches of the stream's static shape.

  The last batch is filled up with rows of padding.

  Args:
    units: the text of each row: one array of ids, or two for pairs.
    languages: language id of each side.
    stream: layout, length T and batch size B.
    spec: special tokens.

  Yields:
    Arrays [B, T] as `xlflax.data.batch` documents them.
  """
  what = progress.current_progress_name()
  with progress.Progress(what, unit='rows', total=len(units)) as report:
    for start in range(0, len(units), stream.batch_size):
      taken = units[start : start + stream.batch_size]
      rows = [rows_lib.Row([unit], languages) for unit in taken]
      empty = stream.batch_size - len(rows)
      rows += [rows_lib.Row([], languages)] * empty
      yield rows_lib.build_batch(rows, stream, spec)
      report(len(taken))
