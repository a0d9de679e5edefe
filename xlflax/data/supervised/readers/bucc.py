"""Readers for the two sentence collections of bitext mining tasks.

Source of the BUCC format: Zweigenbaum et al. (2018), "Overview of the Third
BUCC Shared Task".
"""

import os

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors


@file_formats.register_reader(
  'bucc',
  example=labeled_examples.BitextSentence,
  takes=file_formats.Takes.COLLECTIONS,
)
def read_bucc(
  first: str | os.PathLike,
  second: str | os.PathLike,
  gold: str | os.PathLike | None = None,
  *,
  languages: tuple[str, str],
) -> labeled_examples.BitextSentences:
  """Reads two sentence collections and their gold pairs in the BUCC format.

  Args:
    first: Path of the first collection, with lines `id<TAB>sentence` (in BUCC,
      the language other than English).
    second: Path of the second collection, in the same format as `first`.
    gold: Path of the gold pairs, with lines `id<TAB>id` for sentences that are
      translations of each other. None for a blind test set.
    languages: Language codes of the first and the second collection.

  Raises:
    CorpusError: If a line has no tab or an empty field, if an id is repeated,
      if a gold pair contains an unknown id, or if a file is empty. The error
      contains the file and the line.
  """
  collections = [_read_sentences(path) for path in (first, second)]
  return _make_collections(
    languages, collections, first, gold, _read_gold_pairs
  )


@file_formats.register_reader(
  'lines',
  example=labeled_examples.BitextSentence,
  takes=file_formats.Takes.COLLECTIONS,
)
def read_lines(
  first: str | os.PathLike,
  second: str | os.PathLike,
  gold: str | os.PathLike | None = None,
  *,
  languages: tuple[str, str],
) -> labeled_examples.BitextSentences:
  """Reads two sentence collections from files with one sentence per line.

  XTREME's script writes the Tatoeba test sets in this format and sorts the
  English sentences. The ids are zero-based line numbers.

  Args:
    first: Path of the first collection (in Tatoeba, the language other than
      English).
    second: Path of the second collection, in the same format as `first`.
    gold: Path of a file with one line for each sentence of the second file. The
      line contains the zero-based line number of the sentence's translation in
      the first file. None for a blind test set.
    languages: Language codes of the first and the second collection.

  Raises:
    CorpusError: If a file is empty or cannot be read, or if the gold file does
      not contain a valid line number for each sentence of the second file.
  """
  collections = [
    {
      str(number - 1): line.strip()
      for number, line in file_reading.read_lines(path)
    }
    for path in (first, second)
  ]
  for path, sentences in zip((first, second), collections, strict=True):
    file_reading.check_any(sentences, path)
  return _make_collections(
    languages, collections, first, gold, _read_gold_lines
  )


def _make_collections(
  languages: tuple[str, str],
  collections: list[dict[str, str]],
  path,
  gold,
  read_gold,
) -> labeled_examples.BitextSentences:
  """Checks the languages of both collections and adds the gold pairs.

  Args:
    languages: Language codes of the first and the second collection.
    collections: For each of the two collections, a mapping from ids to
      sentences.
    path: Path of the first file, for error messages.
    gold: Path of the gold file. None for a blind test set.
    read_gold: Function that reads the gold pairs from the gold file.
  """
  texts = [list(sentences.values()) for sentences in collections]
  column_validation.check_languages(languages, texts, path)
  return labeled_examples.BitextSentences(
    languages=(languages[0], languages[1]),
    first=collections[0],
    second=collections[1],
    gold=None if gold is None else read_gold(gold, *collections),
  )


def _read_sentences(path) -> dict[str, str]:
  """Reads lines `id<TAB>sentence`."""
  sentences: dict[str, str] = {}
  for number, line in file_reading.read_lines(path):
    if not line.strip():
      continue
    sentence_id, text = _split_pair(line, path, number)
    if sentence_id in sentences:
      raise file_reading.malformed_line_error(
        'The id of a sentence must occur only once in the file',
        path,
        number,
        got=sentence_id,
      )
    sentences[sentence_id] = text
  file_reading.check_any(sentences, path)
  return sentences


def _read_gold_pairs(
  path, first: dict[str, str], second: dict[str, str]
) -> frozenset[tuple[str, str]]:
  """Reads lines `id<TAB>id`."""
  pairs = set()
  for number, line in file_reading.read_lines(path):
    if not line.strip():
      continue
    pair = _split_pair(line, path, number)
    if (
      (pair[0] not in first or pair[1] not in second)
      and pair[0] in second
      and pair[1] in first
    ):
      raise _swapped_files_error(path, number, line)
    for sentence_id, sentences in zip(pair, (first, second), strict=True):
      if sentence_id not in sentences:
        raise file_reading.malformed_line_error(
          'The gold file must contain only ids of existing sentences',
          path,
          number,
          got=sentence_id,
        )
    pairs.add(pair)
  file_reading.check_any(pairs, path)
  return frozenset(pairs)


def _read_gold_lines(
  path, first: dict[str, str], second: dict[str, str]
) -> frozenset[tuple[str, str]]:
  """Reads the line number in `first` that matches each sentence in `second`."""
  lines = list(file_reading.read_lines(path))
  if len(lines) == len(first) != len(second) and all(
    line.strip() in second for _, line in lines
  ):
    raise _swapped_files_error(path, *lines[0])
  for number, line in lines:
    if line.strip() not in first:
      raise file_reading.malformed_line_error(
        'Each line of the gold file must be a line number from 0 to '
        f'{len(first) - 1}',
        path,
        number,
        got=file_reading.shorten_quoted(line),
      )
  if len(lines) != len(second):
    raise errors.CorpusError(
      'The gold file must contain one line for each sentence of the second '
      f'file, but the number of lines is {len(lines)} and the number of '
      f'sentences is {len(second)}',
      where=str(path),
    )
  return frozenset(
    (line.strip(), second_id)
    for (_, line), second_id in zip(lines, second, strict=True)
  )


def _swapped_files_error(path, number: int, line: str) -> errors.CorpusError:
  """Returns the error for text files in the reverse order of the gold file."""
  return file_reading.malformed_line_error(
    'The two text files are probably swapped, because the gold file refers to '
    'the sentences of the first file as those of the second, and vice versa',
    path,
    number,
    got=file_reading.shorten_quoted(line),
    fix='Pass the two text files in the other order. The language pair must '
    'name the languages in the order of the files.',
  )


def _split_pair(line: str, path, number: int) -> tuple[str, str]:
  """Splits a line into an id and a sentence, or into two ids."""
  sentence_id, _, text = line.partition('\t')
  if not sentence_id.strip() or not text.strip():
    raise file_reading.malformed_line_error(
      'Each line of a text file must contain an id, a tab and a sentence, and '
      'each line of a gold file must contain two ids with a tab in between',
      path,
      number,
      got=file_reading.shorten_quoted(line),
    )
  return sentence_id.strip(), text.strip()
