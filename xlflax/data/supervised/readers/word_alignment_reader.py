"""Sentence pairs with gold links between their words.

Och & Ney 2003 (sure and possible links).
"""

import os
import re
from collections.abc import Sequence

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors

_KIND = 'file of word alignments'
_LINK = re.compile(r'(\d+)([-p?])(\d+)([SP]?)')
_NUMBERED = re.compile(r'(\d+)\t(.*)')
_BAR = ' ||| '


@file_formats.register_reader(
  'word_alignment',
  example=labeled_examples.AlignedSentence,
  takes=file_formats.Takes.FILES,
)
def read_aligned_sentences(
  paths: Sequence[str | os.PathLike],
  languages: tuple[str, str],
  *,
  first_index: int = 0,
) -> file_reading.Reading:
  """Reads sentence pairs and the links between their words.

  Text is one file of lines `source ||| target`, or two files. Links are
  `i-j`, or `i-jS`, sure; `i-jP`, `ipj` or `i?j`, possible. If the lines of
  all files begin with a number and a tab, lines of one number belong together
  (SimAlign's files); else lines in the same place do.

  Before: `das Haus ||| the house` with links `1-1 2-2P`, first_index 1; after:
  sure {(0, 0)}, possible {(0, 0), (1, 1)}.

  Links past the end of a sentence are dropped and listed as problems.

  Args:
    paths: (text, links), or (source text, target text, links).
    languages: codes of source and target.
    first_index: number of the first word in the links: 0 or 1.

  Raises:
    ConfigError: another number of files, or another first index.
    CorpusError: file:line of a link that is none or is below the first index,
      of a line without `|||`; files that differ in length; an empty file.
  """
  if len(paths) not in (2, 3) or first_index not in (0, 1):
    raise errors.ConfigError(
      'Word alignments cannot be read so',
      got=f'{len(paths)} files, first_index {first_index}',
      expected='(text, links) or (source, target, links), first_index 0 or 1',
    )
  texts = [_numbered_lines(path) for path in paths]
  if any(lines is None for lines in texts):
    texts = [dict(enumerate(file_reading.read_lines(path))) for path in paths]
  columns = [lines or {} for lines in texts]
  _check_same(columns, paths)
  problems: list[str] = []
  examples: list[labeled_examples.AlignedSentence] = []
  for key, (number, links) in columns[-1].items():
    sides = [column[key][1] for column in columns[:-1]]
    if len(sides) == 1:
      sides = _two_sides(sides[0], paths[0], columns[0][key][0])
    tokens = [tuple(corpus_lines.split_tokens(side)) for side in sides]
    sure, possible = _links(
      links, tokens, first_index, paths[-1], number, problems
    )
    examples.append(
      labeled_examples.AlignedSentence(
        id=str(key),
        language=languages[0],
        target_language=languages[1],
        source_words=tokens[0],
        target_words=tokens[1],
        sure=sure,
        possible=possible,
      )
    )
  file_reading.check_any(examples, paths[-1])
  texts_by_side = [
    [' '.join(example.source_words) for example in examples],
    [' '.join(example.target_words) for example in examples],
  ]
  column_validation.check_languages(languages, texts_by_side, paths[0])
  return file_reading.Reading(examples, tuple(problems))


def _numbered_lines(path) -> dict[int, tuple[int, str]] | None:
  """The file's own number -> (number, text); None if a line has none."""
  lines = {}
  for number, text in file_reading.read_lines(path):
    if not text:
      continue
    match = _NUMBERED.fullmatch(text)
    if not match:
      return None
    if int(match[1]) in lines:
      raise file_reading.malformed_line_error(
        _KIND, path, number, f'the sentence number {match[1]} again'
      )
    lines[int(match[1])] = number, match[2]
  return lines


def _check_same(columns, paths) -> None:
  if len({frozenset(column) for column in columns}) > 1:
    raise errors.CorpusError(
      'Files of word alignments do not belong together',
      got=', '.join(
        f'{len(column)} lines in {path}'
        for column, path in zip(columns, paths, strict=True)
      ),
      expected='the same sentences in each',
    )


def _two_sides(text: str, path, number: int) -> list[str]:
  sides = text.split(_BAR)
  if len(sides) != 2 or not all(side.strip() for side in sides):
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      file_reading.shorten_quoted(text),
      expected=f'source{_BAR}target',
    )
  return sides


def _links(
  text: str, words, first: int, path, number: int, problems: list[str]
) -> tuple[frozenset, frozenset]:
  """Sure links, and all links."""
  sure, possible = set(), set()
  for item in corpus_lines.split_tokens(text):
    match = _LINK.fullmatch(item)
    if not match or (match[2] != '-' and match[4]):
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        f'the link {item!r}',
        expected='i-j, ipj, i?j, i-jS or i-jP',
      )
    link = int(match[1]) - first, int(match[3]) - first
    if min(link) < 0:
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        f'the link {item!r}',
        expected=f'word numbers from {first}',
        fix='read the file with first_index=0',
      )
    if any(index >= len(side) for index, side in zip(link, words, strict=True)):
      problems.append(
        f'{path}:{number}: the link {item} is past the end of a sentence '
        f'({len(words[0])} and {len(words[1])} words) and is left out'
      )
      continue
    possible.add(link)
    if match[2] == '-' and match[4] != 'P':
      sure.add(link)
  return frozenset(sure), frozenset(possible)
