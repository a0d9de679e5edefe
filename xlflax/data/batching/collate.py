"""Conversion of tokenized text to batch arrays, for cached and live loaders.

`sequence_index` (random access to a cache) and `sequence_iterator` (examples in
order) assign texts to sequences. This module adds special tokens to all
sequences of a batch, and creates the arrays of segments, positions, languages
and sides (source or target).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data import batch_keys, dataset_config
from xlflax.data.tokenizers import vocabulary_spec

# The token ids [n] of each side of an example: one text, or two of a pair.
Unit = tuple[np.ndarray, ...]

_NO_PREFIX = -1


class Row(NamedTuple):
  """Texts of one sequence, after truncation and without special tokens.

  Attributes:
    units: Examples in the sequence, each a tuple with the token ids of its
      texts. Only a packed sequence has several examples.
    languages: Language ids of the source and target texts.
    swaps: Bit mask. If bit u % 64 is set, the source and target of the
      sequence's u-th example are swapped.
  """

  units: Sequence[Unit]
  languages: tuple[int, ...]
  swaps: int = 0


class _Spans(NamedTuple):
  """Spans of a batch, which are texts surrounded by their special tokens.

  Attributes:
    texts: Token ids of each text.
    row: Index of each span's sequence in the batch, int64 [spans].
    unit: Index of the example within the sequence for each span, int64 [spans].
    side: 0 if a span is source text, and 1 if it is target text, int64 [spans].
    language: Language id of each span, int64 [spans].
    prefix: Special token before each text, or `_NO_PREFIX`, int64 [spans].
  """

  texts: list[np.ndarray]
  row: np.ndarray
  unit: np.ndarray
  side: np.ndarray
  language: np.ndarray
  prefix: np.ndarray


def build_batch(
  rows: Sequence[Row],
  dataset: dataset_config.DatasetConfig,
  spec: vocabulary_spec.VocabularySpec,
) -> batch_keys.Batch:
  """Builds the arrays of a batch, as documented in `xlflax.data.batch_keys`.

  For example, with ExampleLayout.PAIRS, T = 8, bos 1, eos 2 and pad 0, the
  arrays of `Row([([7, 8], [9])], (0, 1))` are: token_ids `[1, 7, 8, 2, 2, 9, 2,
  0]`, segment_ids `[1, 1, 1, 1, 1, 1, 1, 0]`, positions `[0, 1, 2, 3, 4, 5, 6,
  0]`, language_ids `[0, 0, 0, 0, 1, 1, 1, 0]` and side_ids `[0, 0, 0, 0, 1, 1,
  1, 0]`.

  Args:
    rows: Texts of the B sequences in the batch.
    dataset: Dataset that defines the layout, length and pair options.
    spec: Specification of the vocabulary.

  Returns:
    Arrays of shape [B, T], int32.
  """
  layout = dataset.layout
  if layout in (
    dataset_config.ExampleLayout.DUAL,
    dataset_config.ExampleLayout.INTERLEAVED,
  ):
    batch = _fill(_make_side_spans(rows, 0, spec), len(rows), dataset, spec)
    paired = _fill(_make_side_spans(rows, 1, spec), len(rows), dataset, spec)
    return batch | {batch_keys.PAIRED + k: v for k, v in paired.items()}
  if layout is dataset_config.ExampleLayout.PAIRS:
    spans = _make_pair_spans(rows, dataset.pairs.separator, spec)
  else:
    spans = _make_side_spans(rows, 0, spec)
  return _fill(spans, len(rows), dataset, spec)


def _make_side_spans(rows, position: int, spec) -> _Spans:
  """Returns a span `bos text eos` for each source text or each target text.

  Args:
    rows: Texts of the sequences in the batch.
    position: 0 to select the first text of each pair after swapping, or 1 to
      select the second.
    spec: Specification of the vocabulary.
  """
  texts: list[np.ndarray] = []
  row: list[int] = []
  unit: list[int] = []
  language: list[int] = []
  for r, (units, languages, swaps) in enumerate(rows):
    for u, sides in enumerate(units):
      side = position ^ (swaps >> (u & 63) & 1)
      texts.append(sides[side])
      row.append(r)
      unit.append(u)
      language.append(languages[side])
  zeros = np.zeros(len(texts), np.int64)
  return _Spans(
    texts,
    np.array(row),
    np.array(unit),
    zeros,
    np.array(language),
    zeros + spec.bos_id,
  )


def _make_pair_spans(rows, separator, spec) -> _Spans:
  """Returns the spans `bos x eos` and `[separator] y eos` for each pair."""
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
  second_prefix = {
    dataset_config.SpecialTokenTemplate.BERT: _NO_PREFIX,
    dataset_config.SpecialTokenTemplate.XLMR: spec.eos_id,
    dataset_config.SpecialTokenTemplate.XLM: spec.bos_id,
  }[separator]
  num_pairs = len(texts) // 2
  return _Spans(
    texts,
    np.array(row),
    np.array(unit),
    np.tile([0, 1], num_pairs),
    np.array(language),
    np.tile([spec.bos_id, second_prefix], num_pairs),
  )


def _fill(spans: _Spans, num_rows: int, dataset, spec) -> batch_keys.Batch:
  """Creates the padded arrays of a batch from consecutive spans."""
  length = dataset.length
  text_length = np.fromiter(map(len, spans.texts), np.int64, len(spans.texts))
  has_prefix = (spans.prefix != _NO_PREFIX).astype(np.int64)
  total = has_prefix + text_length + 1
  if len(total) == num_rows and has_prefix.all() and (total == length).all():
    return _fill_complete_rows(spans, length, dataset, spec)
  column = _offsets_in_rows(total, spans.row)
  # Start of each span in the flat array [num_rows * length].
  begin = spans.row * length + column

  tokens = np.full(num_rows * length, spec.pad_id, np.int32)
  tokens[_concatenate_ranges(begin + has_prefix, text_length)] = np.concatenate(
    spans.texts
  )
  tokens[begin[has_prefix > 0]] = spans.prefix[has_prefix > 0]
  tokens[begin + total - 1] = spec.eos_id

  index = _concatenate_ranges(begin, total)

  def spread(values):
    out = np.zeros(num_rows * length, np.int32)
    out[index] = np.repeat(values.astype(np.int32), total)
    return out.reshape(num_rows, length)

  positions = np.zeros(num_rows * length, np.int32)
  positions[index] = index - np.repeat(
    _find_origins(spans, begin, dataset.pairs.positions), total
  )
  batch = {
    batch_keys.TOKEN_IDS: tokens.reshape(num_rows, length),
    batch_keys.SEGMENT_IDS: spread(spans.unit + 1),
    batch_keys.POSITIONS: positions.reshape(num_rows, length),
    batch_keys.LANGUAGE_IDS: spread(spans.language),
  }
  if dataset.layout is dataset_config.ExampleLayout.PAIRS:
    batch[batch_keys.SIDE_IDS] = spread(spans.side)
  return batch


def _fill_complete_rows(
  spans: _Spans, length: int, dataset, spec
) -> batch_keys.Batch:
  """Creates the arrays of a batch in which each text fills one sequence."""
  shape = len(spans.texts), length
  tokens = np.empty(shape, np.int32)
  tokens[:, 0] = spans.prefix
  tokens[:, 1:-1] = np.concatenate(spans.texts).reshape(shape[0], length - 2)
  tokens[:, -1] = spec.eos_id

  def spread(values):
    out = np.empty(shape, np.int32)
    out[:] = values
    return out

  batch = {
    batch_keys.TOKEN_IDS: tokens,
    batch_keys.SEGMENT_IDS: spread(spans.unit[:, None] + 1),
    batch_keys.POSITIONS: spread(np.arange(length)),
    batch_keys.LANGUAGE_IDS: spread(spans.language[:, None]),
  }
  if dataset.layout is dataset_config.ExampleLayout.PAIRS:
    batch[batch_keys.SIDE_IDS] = spread(spans.side[:, None])
  return batch


def _find_origins(spans: _Spans, begin, positions):
  """Returns the index of the token with position id 0 for each span.

  The indices refer to the flattened batch, int64 [spans].
  """
  if positions is dataset_config.PositionIds.RESET:
    return begin
  # The positions of a second side continue those of the first side, which is
  # the preceding span.
  return np.where(spans.side == 1, np.roll(begin, 1), begin)


def _offsets_in_rows(total, row):
  """Returns the offset of each span in its sequence.

  Args:
    total: Number of tokens in each span, int64 [spans].
    row: Index of each span's sequence in the batch, int64 [spans].

  Returns:
    The offset of each span in its sequence, int64 [spans].
  """
  offsets = np.cumsum(total) - total
  is_first = np.concatenate([[True], row[1:] != row[:-1]])
  return offsets - offsets[is_first][np.cumsum(is_first) - 1]


def _concatenate_ranges(starts, lengths):
  """Concatenates the index ranges with the given starts and lengths."""
  ends = np.cumsum(lengths)
  return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
