"""Two collections of sentences among which are translations (BUCC 2018).

Zweigenbaum et al. 2018, "Overview of the Third BUCC Shared Task".
"""

import os

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors

_KIND = 'file of sentences to mine'


@file_formats.register_reader(
  'bucc',
  example=labeled_examples.MinedSentence,
  takes=file_formats.Takes.COLLECTIONS,
)
def read_bucc(
  first: str | os.PathLike,
  second: str | os.PathLike,
  gold: str | os.PathLike | None = None,
  *,
  languages: tuple[str, str],
) -> labeled_examples.MinedSentences:
  """Reads BUCC's files: `id<TAB>sentence`, and pairs `id<TAB>id`.

  Args:
    first: sentences of the first language (in BUCC, not English).
    second: sentences of the second.
    gold: the pairs that are translations; None: a blind test set.
    languages: codes of the two.

  Raises:
    CorpusError: file:line of a line without a tab, an empty side, an id that
      is given twice, or a pair of ids that no sentence has; an empty file.
  """
  sides = [_sentences(path) for path in (first, second)]
  return _collections(languages, sides, first, gold, _gold)


@file_formats.register_reader(
  'lines',
  example=labeled_examples.MinedSentence,
  takes=file_formats.Takes.COLLECTIONS,
)
def read_lines(
  first: str | os.PathLike,
  second: str | os.PathLike,
  gold: str | os.PathLike | None = None,
  *,
  languages: tuple[str, str],
) -> labeled_examples.MinedSentences:
  """Reads two files of one sentence a line.

  XTREME's script leaves Tatoeba's test sets so, the English in another order.
  Ids are the numbers of the lines, from 0.

  Args:
    first: sentences of the first language (in Tatoeba, not English).
    second: sentences of the second.
    gold: for each second sentence, the number of the line of its translation
      in the first file, from 0; None: a blind test set.
    languages: codes of the two.

  Raises:
    CorpusError: an empty file, or one that cannot be read; gold that has not
      a number for each second sentence.
  """
  sides = [
    {
      str(number - 1): line.strip()
      for number, line in file_reading.read_lines(path)
    }
    for path in (first, second)
  ]
  for path, side in zip((first, second), sides, strict=True):
    file_reading.check_any(side, path)
  return _collections(languages, sides, first, gold, _gold_lines)


def _collections(
  languages: tuple[str, str], sides: list[dict[str, str]], path, gold, read_gold
) -> labeled_examples.MinedSentences:
  """Both sides, and what `read_gold` finds in the file of gold pairs."""
  texts = [list(side.values()) for side in sides]
  column_validation.check_languages(languages, texts, path)
  return labeled_examples.MinedSentences(
    languages=(languages[0], languages[1]),
    first=sides[0],
    second=sides[1],
    gold=None if gold is None else read_gold(gold, *sides),
  )


def _sentences(path) -> dict[str, str]:
  sentences: dict[str, str] = {}
  for number, line in file_reading.read_lines(path):
    if not line.strip():
      continue
    name, text = _two(line, path, number)
    if name in sentences:
      raise file_reading.malformed_line_error(
        _KIND, path, number, f'the id {name} again', expected='each id once'
      )
    sentences[name] = text
  file_reading.check_any(sentences, path)
  return sentences


def _gold(
  path, first: dict[str, str], second: dict[str, str]
) -> frozenset[tuple[str, str]]:
  pairs = set()
  for number, line in file_reading.read_lines(path):
    if not line.strip():
      continue
    pair = _two(line, path, number)
    for name, side in zip(pair, (first, second), strict=True):
      if name not in side:
        raise file_reading.malformed_line_error(
          _KIND,
          path,
          number,
          f'the id {name}',
          expected='an id of the sentences',
        )
    pairs.add(pair)
  file_reading.check_any(pairs, path)
  return frozenset(pairs)


def _gold_lines(
  path, first: dict[str, str], second: dict[str, str]
) -> frozenset[tuple[str, str]]:
  """Pairs of ids, from the line of the first for each of the second."""
  lines = list(file_reading.read_lines(path))
  for number, line in lines:
    if line.strip() not in first:
      raise file_reading.malformed_line_error(
        'file of gold lines',
        path,
        number,
        file_reading.shorten_quoted(line),
        expected=f'a line from 0 to {len(first) - 1}',
      )
  if len(lines) != len(second):
    raise errors.CorpusError(
      'Gold lines are not as many as sentences',
      got=f'{len(lines)} lines',
      expected=f'{len(second)}, one for each sentence of the second file',
      where=str(path),
    )
  return frozenset(
    (line.strip(), name) for (_, line), name in zip(lines, second, strict=True)
  )


def _two(line: str, path, number: int) -> tuple[str, str]:
  name, _, text = line.partition('\t')
  if not name.strip() or not text.strip():
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      file_reading.shorten_quoted(line),
      expected='an id, a tab and a sentence (or, among the pairs, a second id)',
    )
  return name.strip(), text.strip()
