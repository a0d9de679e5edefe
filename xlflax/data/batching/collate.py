"""From the texts of rows to the arrays of a batch; used by both loaders.

Which texts make up a row is decided by `row_index` (from a cache, at any
place) and `row_iterator` (from examples in order). Here special tokens,
segments, positions, languages and sides are added, for all rows at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data import batch_keys, dataset_config
from xlflax.data.tokenizers import vocabulary_spec

# The sides of one example: one text, or two of a pair; token ids [n] each.
Unit = tuple[np.ndarray, ...]

_NO_PREFIX = -1


class Row(NamedTuple):
  """The texts of a row, without special tokens, already cut to fit.

  Attributes:
    units: the examples in the row; more than one only when packed.
    languages: language id of each side.
    swaps: bit u % 64 set: the sides of unit u are exchanged.
  """

  units: Sequence[Unit]
  languages: tuple[int, ...]
  swaps: int = 0


class _Pieces(NamedTuple):
  """Runs of tokens `[prefix] text eos`, in the order of rows and columns.

  Arrays are int64 [pieces]; `unit` numbers the examples of a row from 0,
  `prefix` is the token before the text or _NO_PREFIX.
  """

  texts: list[np.ndarray]
  row: np.ndarray
  unit: np.ndarray
  side: np.ndarray
  language: np.ndarray
  prefix: np.ndarray


def build_batch(
  rows: Sequence[Row],
  stream: dataset_config.Stream,
  spec: vocabulary_spec.VocabularySpec,
) -> batch_keys.Batch:
  """Arrays of a batch, as `xlflax.data.batch_keys` documents them.

  Before, with Layout.PAIRS and T = 8: `Row([([7, 8], [9])], (0, 1))`; after,
  with bos 1, eos 2, pad 0: token_ids `[1, 7, 8, 2, 2, 9, 2, 0]`, segment_ids
  `[1, 1, 1, 1, 1, 1, 1, 0]`, positions `[0, 1, 2, 3, 4, 5, 6, 0]`,
  language_ids `[0, 0, 0, 0, 1, 1, 1, 0]`, side_ids `[0, 0, 0, 0, 1, 1, 1, 0]`.

  Args:
    rows: one entry for each row of the batch, B in all.
    stream: layout, length and pair options.
    spec: special tokens.

  Returns:
    int32 arrays [B, T].
  """
  layout = stream.layout
  if layout in (dataset_config.Layout.SIDES, dataset_config.Layout.ADJACENT):
    batch = _fill(_one_side(rows, 0, spec), len(rows), stream, spec)
    paired = _fill(_one_side(rows, 1, spec), len(rows), stream, spec)
    return batch | {batch_keys.PAIRED + k: v for k, v in paired.items()}
  if layout is dataset_config.Layout.PAIRS:
    pieces = _both_sides(rows, stream.pairs.separator, spec)
  else:
    pieces = _one_side(rows, 0, spec)
  return _fill(pieces, len(rows), stream, spec)


def _one_side(rows, place: int, spec) -> _Pieces:
  """`bos text eos` for what stands at `place` (0 or 1) after swapping."""
  texts: list[np.ndarray] = []
  row: list[int] = []
  unit: list[int] = []
  language: list[int] = []
  for r, (units, languages, swaps) in enumerate(rows):
    for u, sides in enumerate(units):
      side = place ^ (swaps >> (u & 63) & 1)
      texts.append(sides[side])
      row.append(r)
      unit.append(u)
      language.append(languages[side])
  zeros = np.zeros(len(texts), np.int64)
  return _Pieces(
    texts,
    np.array(row),
    np.array(unit),
    zeros,
    np.array(language),
    zeros + spec.bos_id,
  )


def _both_sides(rows, separator, spec) -> _Pieces:
  """`bos x eos` and `[separator] y eos` for each pair."""
  texts: list[np.ndarray] = []
  row: list[int] = []
  unit: list[int] = []
  language: list[int] = []
  for r, (units, languages, swaps) in enumerate(rows):
    for u, sides in enumerate(units):
      first = swaps >> (u & 63) & 1
      texts += (sides[first], sides[1 - first])
      language += (languages[first], languages[1 - first])
      row += (r, r)
      unit += (u, u)
  second = {
    dataset_config.Separator.BERT: _NO_PREFIX,
    dataset_config.Separator.XLMR: spec.eos_id,
    dataset_config.Separator.XLM: spec.bos_id,
  }[separator]
  pairs = len(texts) // 2
  return _Pieces(
    texts,
    np.array(row),
    np.array(unit),
    np.tile([0, 1], pairs),
    np.array(language),
    np.tile([spec.bos_id, second], pairs),
  )


def _fill(pieces: _Pieces, num_rows: int, stream, spec) -> batch_keys.Batch:
  """Writes pieces one after the other into their rows."""
  length = stream.length
  text_length = np.fromiter(map(len, pieces.texts), np.int64, len(pieces.texts))
  has_prefix = (pieces.prefix != _NO_PREFIX).astype(np.int64)
  total = has_prefix + text_length + 1
  if len(total) == num_rows and has_prefix.all() and (total == length).all():
    return _fill_whole(pieces, length, stream, spec)
  column = _restarting_sum(total, pieces.row)
  begin = pieces.row * length + column  # in the flat [num_rows * length]

  tokens = np.full(num_rows * length, spec.pad_id, np.int32)
  tokens[_ranges(begin + has_prefix, text_length)] = np.concatenate(
    pieces.texts
  )
  tokens[begin[has_prefix > 0]] = pieces.prefix[has_prefix > 0]
  tokens[begin + total - 1] = spec.eos_id

  index = _ranges(begin, total)

  def spread(values):
    out = np.zeros(num_rows * length, np.int32)
    out[index] = np.repeat(values.astype(np.int32), total)
    return out.reshape(num_rows, length)

  positions = np.zeros(num_rows * length, np.int32)
  positions[index] = index - np.repeat(
    _origin(pieces, begin, stream.pairs.positions), total
  )
  batch = {
    batch_keys.TOKEN_IDS: tokens.reshape(num_rows, length),
    batch_keys.SEGMENT_IDS: spread(pieces.unit + 1),
    batch_keys.POSITIONS: positions.reshape(num_rows, length),
    batch_keys.LANGUAGE_IDS: spread(pieces.language),
  }
  if stream.layout is dataset_config.Layout.PAIRS:
    batch[batch_keys.SIDE_IDS] = spread(pieces.side)
  return batch


def _fill_whole(pieces: _Pieces, length: int, stream, spec) -> batch_keys.Batch:
  """As `_fill`, of rows that are one piece from end to end: a fast copy."""
  shape = len(pieces.texts), length
  tokens = np.empty(shape, np.int32)
  tokens[:, 0] = pieces.prefix
  tokens[:, 1:-1] = np.concatenate(pieces.texts).reshape(shape[0], length - 2)
  tokens[:, -1] = spec.eos_id

  def spread(values):
    out = np.empty(shape, np.int32)
    out[:] = values
    return out

  batch = {
    batch_keys.TOKEN_IDS: tokens,
    batch_keys.SEGMENT_IDS: spread(pieces.unit[:, None] + 1),
    batch_keys.POSITIONS: spread(np.arange(length)),
    batch_keys.LANGUAGE_IDS: spread(pieces.language[:, None]),
  }
  if stream.layout is dataset_config.Layout.PAIRS:
    batch[batch_keys.SIDE_IDS] = spread(pieces.side[:, None])
  return batch


def _origin(pieces: _Pieces, begin, positions):
  """Flat index of the token whose position is 0, for each piece."""
  if positions is dataset_config.Positions.RESET:
    return begin
  # A second side counts on from the first, which stands just before it.
  return np.where(pieces.side == 1, np.roll(begin, 1), begin)


def _restarting_sum(total, row):
  """Sum of `total` over the earlier pieces of the same row, int64 [n]."""
  before = np.cumsum(total) - total
  first = np.concatenate([[True], row[1:] != row[:-1]])
  return before - before[first][np.cumsum(first) - 1]


def _ranges(starts, lengths):
  """starts_i, starts_i + 1, …, lengths_i numbers each, one after the other."""
  ends = np.cumsum(lengths)
  return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
