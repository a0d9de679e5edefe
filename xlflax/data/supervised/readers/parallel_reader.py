"""Readers for parallel text, used for translation."""

import itertools
import os
from collections.abc import Sequence

from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.supervised.readers import file_reading
from xlflax.utils import line_splitting


def read_tsv(
  path: str | os.PathLike, *, columns: tuple[int, int] = (0, 1)
) -> list[corpus.Pair]:
  """Reads sentence pairs from two columns of a TSV file.

  Args:
    path: Path of the file.
    columns: Indices of the source and the target column, counted from 0.

  Raises:
    CorpusError: If a line has too few columns, a different number of columns
      than the first line, an empty source or an empty target (the error
      contains the file and the line), or if the file is empty.
  """
  pairs = []
  num_columns: int | None = None
  for number, line in file_reading.read_lines(path):
    fields = line.split('\t')
    num_columns = num_columns or len(fields)
    if max(columns) >= len(fields) or len(fields) != num_columns:
      raise file_reading.malformed_line_error(
        f'The line must contain a source text in column {columns[0]} and a '
        f'target text in column {columns[1]} (columns are counted from 0), '
        f'but it has {file_reading.format_column_count(fields)}'
        if max(columns) >= len(fields)
        else f'The line must have {num_columns} columns, as in the first line, '
        f'but it has {file_reading.format_column_count(fields)}',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      )
    source, target = (fields[column] for column in columns)
    pairs.append(_make_pair(source, target, path, number))
  file_reading.check_any(pairs, path)
  return pairs


def read_lines(paths: Sequence[str | os.PathLike]) -> list[corpus.Pair]:
  """Reads sentence pairs from two line-aligned files.

  Args:
    paths: Paths of the source and target files.

  Raises:
    CorpusError: If a line is empty or has no counterpart in the file of the
      other language (the error contains the file and the line), or if a file is
      empty.
  """
  first, second = paths
  pairs: list[corpus.Pair] = []
  sides = file_reading.read_lines(first), file_reading.read_lines(second)
  for source_line, target_line in itertools.zip_longest(*sides):
    if source_line is None or target_line is None:
      num_lines = [
        len(pairs) if line is None else line[0] + sum(1 for _ in side)
        for line, side in zip((source_line, target_line), sides, strict=True)
      ]
      raise line_splitting.unequal_lines_error(paths, num_lines)
    number, source = source_line
    empty_file = second if source.strip() else first
    pairs.append(_make_pair(source, target_line[1], empty_file, number))
  file_reading.check_any(pairs, first)
  return pairs


def _make_pair(source: str, target: str, path, number: int) -> corpus.Pair:
  """Returns a pair and checks that neither text is empty.

  Args:
    source: Source text.
    target: Target text.
    path: Path of the file, for the error message.
    number: Line number.
  """
  pair = corpus.Pair(source.strip(), target.strip())
  if not all(pair):
    raise file_reading.malformed_line_error(
      'A pair must consist of a source text and its translation, but the '
      f'{"target" if pair.source else "source"} text is empty',
      path,
      number,
    )
  return pair
