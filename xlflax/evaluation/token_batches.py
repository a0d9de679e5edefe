"""Batches of text in one language or language pair, for scoring.

The sequences are laid out by the same code as in training
(`xlflax.data.batching.collate`), but they contain all of the text exactly once
and in order.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data import batch_keys, dataset_config
from xlflax.data.batching import collate, length_filter
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import progress_reporting

Tokens = Sequence[int]


def split_into_blocks(
  lines: Sequence[Tokens], *, capacity: int, separator: int
) -> list[np.ndarray]:
  """Concatenates token sequences and splits the result into blocks.

  The last block may be shorter.

  For capacity 4 and separator 2, `[[7, 8], [9, 9, 9]]` becomes
  `[[7, 8, 2, 9], [9, 9]]`.

  Args:
    lines: Token ids of each line. Empty lines are skipped.
    capacity: Maximum number of tokens per block.
    separator: Token id to insert between lines.
  """
  joined = list(
    itertools.chain.from_iterable(
      itertools.chain((separator,), line) for line in lines if len(line)
    )
  )[1:]
  return [
    np.asarray(joined[start : start + capacity], np.int32)
    for start in range(0, len(joined), capacity)
  ]


def fitting_pairs(
  first: Sequence[Tokens],
  second: Sequence[Tokens],
  dataset: dataset_config.DatasetConfig,
) -> list[collate.Unit]:
  """Returns the sentence pairs that pass the dataset's filters.

  Pairs that exceed the sequence length are truncated.

  Args:
    first: Token ids of the first language's sentences.
    second: Token ids of the second language's sentences, which are the
      translations of `first`.
    dataset: Dataset configuration with the filters and the sequence length.
  """
  options = dataset.pairs
  lengths = np.array(
    [[len(x), len(y)] for x, y in zip(first, second, strict=True)], np.int64
  ).reshape(-1, 2)
  is_selected = lengths.min(-1) >= options.min_tokens
  if options.max_tokens is not None:
    is_selected &= lengths.sum(-1) <= options.max_tokens

  first_ends, second_ends = length_filter.truncated_lengths(
    tuple(lengths.T), dataset
  )
  return [
    (
      np.asarray(first[i][: first_ends[i]], np.int32),
      np.asarray(second[i][: second_ends[i]], np.int32),
    )
    for i in np.flatnonzero(is_selected).tolist()
  ]


def make_batches(
  units: Sequence[collate.Unit],
  languages: tuple[int, ...],
  dataset: dataset_config.DatasetConfig,
  spec: VocabularySpec,
) -> Iterator[batch_keys.Batch]:
  """Yields texts or text pairs in batches of the dataset's static shape.

  The last batch is filled with rows of padding.

  Args:
    units: Token ids of each sequence: one array for a text, or two for a pair.
    languages: Language id of each text in a sequence.
    dataset: Dataset configuration with the layout, the length T and the batch
      size B.
    spec: Vocabulary specification that defines the special tokens.

  Yields:
    Arrays of shape [B, T]; see `xlflax.data.batch_keys`.
  """
  progress_name = progress_reporting.current_progress_name()
  with progress_reporting.Progress(
    progress_name, unit='rows', total=len(units)
  ) as report:
    for start in range(0, len(units), dataset.batch_size):
      batch_units = units[start : start + dataset.batch_size]
      rows = [collate.Row([unit], languages) for unit in batch_units]
      num_padding_rows = dataset.batch_size - len(rows)
      rows += [collate.Row([], languages)] * num_padding_rows
      yield collate.build_batch(rows, dataset, spec)
      report(len(batch_units))
