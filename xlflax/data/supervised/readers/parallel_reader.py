"""Sentences and their translations, to translate or to train on."""

import itertools
import os
from collections.abc import Sequence

from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.supervised.readers import file_reading
from xlflax.utils import errors

_KIND = 'file of translations'


def read_tsv(
  path: str | os.PathLike, *, columns: tuple[int, int] = (0, 1)
) -> list[corpus.Pair]:
  """Reads pairs from two columns of a file separated by tabs.

  Args:
    path: of the file.
    columns: of source and target, from 0.

  Raises:
    CorpusError: file:line of too few columns or an empty side; an empty file.
  """
  pairs = []
  for number, line in file_reading.read_lines(path):
    fields = line.split('\t')
    if max(columns) >= len(fields):
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        f'{len(fields)} column(s): {file_reading.shorten_quoted(line)}',
        expected=f'source in column {columns[0]}, target in column '
        f'{columns[1]} (counted from 0)',
      )
    pairs.append(_pair(fields[columns[0]], fields[columns[1]], path, number))
  file_reading.check_any(pairs, path)
  return pairs


def read_lines(paths: Sequence[str | os.PathLike]) -> list[corpus.Pair]:
  """Reads two files of which line i of one translates line i of the other.

  Raises:
    CorpusError: file:line of an empty side or of the longer file's first line
      too many; an empty file.
  """
  first, second = paths
  pairs = []
  for a, b in itertools.zip_longest(
    file_reading.read_lines(first), file_reading.read_lines(second)
  ):
    if a is None or b is None:
      number, longer = (b[0], second) if a is None else (a[0], first)
      raise errors.CorpusError(
        'Two files that should be line-aligned have unequal lengths',
        got=f'{longer} goes on',
        where=f'{longer}:{number}',
        expected=f'as many lines in {first} as in {second}',
      )
    pairs.append(_pair(a[1], b[1], first, a[0]))
  file_reading.check_any(pairs, first)
  return pairs


def _pair(source: str, target: str, path, number: int) -> corpus.Pair:
  pair = corpus.Pair(source.strip(), target.strip())
  if not all(pair):
    raise file_reading.malformed_line_error(
      _KIND, path, number, 'an empty side', expected='text and its translation'
    )
  return pair
