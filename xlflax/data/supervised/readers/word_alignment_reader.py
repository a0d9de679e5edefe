"""Reader for sentence pairs with gold word alignments.

Sure and possible links are defined by Och and Ney (2003).
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors, logs, plurals

_LINK = re.compile(r'(\d+)([-p?])(\d+)([SP]?)')
_NUMBERED = re.compile(r'(\d+)\t(.*)')
_SEPARATOR = ' ||| '
# Links are probably reversed if at least this number of links is past the end of
# a sentence, and at most this fraction of the number remains after source and
# target are exchanged.
_MIN_REVERSED = 5
_MAX_REVERSED_FRACTION = 0.05
# Files of the NAACL format, in which WPT 2003 and 2005 are published.
_NAACL_SENTENCE = re.compile(r'<s snum=(\d+)>\s*(.*?)\s*</s>\s*')
_NAACL_LINK = re.compile(
  r'(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?\s*'
)


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
  """Reads sentence pairs and the alignment links between their words.

  The sentences are stored in one file with lines `source ||| target`, or in
  separate source and target files. Sure links are `i-j` or `i-jS`. Possible
  links are `i-jP`, `ipj` or `i?j`. If the lines in all files start with a
  number and a tab, as in SimAlign's files, lines with the same number belong
  together. Otherwise, lines at the same position belong together.

  The format of WPT 2003 and 2005 (NAACL) is read as well: sentences such as
  `<s snum=0001> das Haus </s>`, and a line with sentence number, source word,
  target word and optionally `S` or `P` for each link, such as `0001 1 1 S`.
  Words are then numbered from 1, and links with the number 0 (no word) are left
  out.

  For example, `das Haus ||| the house` with the links `1-1 2-2P` and a
  first_index of 1 gives the sure links {(0, 0)} and the possible links {(0, 0),
  (1, 1)}.

  Links to words past the end of a sentence are skipped and listed as problems,
  unless the links seem to be numbered from 1 although `first_index` is 0. Their
  number is logged. If they are within the sentences after source and target are
  exchanged, the warning states that the links seem to be reversed.

  Args:
    paths: Paths of the files (sentences, links) or (source sentences, target
      sentences, links).
    languages: Language codes of the source and the target sentences.
    first_index: Number that the links use for a sentence's first word: 0 or 1.

  Raises:
    ConfigError: If the number of files or the first index is invalid.
    CorpusError: If a link is malformed or contains a number below
      `first_index`; if `first_index` is 0 but the links seem to be numbered
      from 1; if a line lacks `|||` (the error contains the file and the line);
      if the files contain different sentences; or if a file is empty.
  """
  if len(paths) not in (2, 3) or first_index not in (0, 1):
    raise errors.ConfigError(
      'A word alignment requires two files (text, links) or three files '
      '(source, target, links), and `first_index` must be 0 or 1. The number '
      f'of files is {len(paths)}, and first_index={first_index}'
    )
  naacl_links = _read_naacl_links(paths[-1])
  if naacl_links is not None:
    first_index = 1
  numbered_lines = [_read_numbered_lines(path) for path in paths[:-1]]
  if naacl_links is None:
    numbered_lines.append(_read_numbered_lines(paths[-1]))
  else:
    # Sentences without links do not occur in the file of links.
    empty = {key: (0, '') for lines in numbered_lines for key in lines or {}}
    numbered_lines.append(empty | naacl_links)
  _check_same_format(numbered_lines, paths)
  if any(lines is None for lines in numbered_lines):
    columns = [dict(enumerate(file_reading.read_lines(path))) for path in paths]
  else:
    columns = [lines or {} for lines in numbered_lines]
  _check_same_sentences(columns, paths)
  skipped_links: list[_SkippedLink] = []
  examples: list[labeled_examples.AlignedSentence] = []
  for key, (number, links) in columns[-1].items():
    sides = [column[key][1] for column in columns[:-1]]
    if len(sides) == 1:
      sides = _split_sides(sides[0], paths[0], columns[0][key][0])
    tokens = [tuple(corpus_lines.split_tokens(side)) for side in sides]
    sure, possible = _parse_links(
      links, tokens, first_index, paths[-1], number, skipped_links
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
  if first_index == 0:
    _check_numbered_from_zero(examples, skipped_links)
  if skipped_links:
    _warn_of_skipped_links(
      examples, skipped_links, paths[-1], is_naacl=naacl_links is not None
    )
  texts_by_side = [
    [' '.join(example.source_words) for example in examples],
    [' '.join(example.target_words) for example in examples],
  ]
  column_validation.check_translations(languages, texts_by_side, paths[0])
  return file_reading.Reading(
    examples, tuple(skipped.describe() for skipped in skipped_links)
  )


class _SkippedLink(NamedTuple):
  """Link to a word past the end of a sentence.

  Attributes:
    text: Link in the format of the file, such as '3-4'.
    indices: Indices of the source and the target word, counted from 0.
    num_words: Numbers of words in the source and the target sentence.
    location: File and line of the link.
  """

  text: str
  indices: tuple[int, int]
  num_words: tuple[int, int]
  location: str

  def describe(self) -> str:
    """Returns a warning with the file and line of a skipped alignment link."""
    return (
      f'{self.location}: Skipping the link {self.text}, which is past the end '
      f'of a sentence ({self.num_words[0]} and {self.num_words[1]} words)'
    )


def _check_numbered_from_zero(
  examples: Iterable[labeled_examples.AlignedSentence],
  skipped_links: Sequence[_SkippedLink],
) -> None:
  """Raises a CorpusError if links seem to be numbered from 1 instead of 0.

  This is the case if no link contains the number 0, and if a skipped link would
  be within its sentences if words were numbered from 1.
  """
  links = {link for example in examples for link in example.possible}
  links.update(skipped.indices for skipped in skipped_links)
  if any(0 in link for link in links):
    return
  for skipped in skipped_links:
    if all(
      index <= count
      for index, count in zip(skipped.indices, skipped.num_words, strict=True)
    ):
      raise errors.CorpusError(
        'The words of the links seem to be numbered from 1, because no link '
        'contains the number 0. The number of links past the end of a sentence '
        f'is {len(skipped_links)}',
        got=skipped.text,
        expected='links with words that are numbered from 0',
        where=skipped.location,
        fix='If words are numbered from 1, set first_index=1 '
        '(--gin.FIRST_INDEX=1 or --index_base=1). Otherwise, correct the link.',
      )


def _warn_of_skipped_links(
  examples: Iterable[labeled_examples.AlignedSentence],
  skipped_links: Sequence[_SkippedLink],
  path: str | os.PathLike,
  *,
  is_naacl: bool,
) -> None:
  """Logs the number of links past the end of a sentence.

  Args:
    examples: Examples with the other links.
    skipped_links: Links past the end of a sentence.
    path: Path of the file with the links.
    is_naacl: Whether the links are in the NAACL format.
  """
  num_skipped = len(skipped_links)
  links = [
    (link, (len(example.source_words), len(example.target_words)))
    for example in examples
    for link in example.possible
  ]
  links += [(skipped.indices, skipped.num_words) for skipped in skipped_links]
  num_reversed_skipped = sum(
    target >= num_source or source >= num_target
    for (source, target), (num_source, num_target) in links
  )
  count = (
    f'{path}: {num_skipped:,} of {plurals.format_count(len(links), "link")} '
    f'{"is" if num_skipped == 1 else "are"} past the end of a sentence and '
    f'will be ignored, such as {skipped_links[0].text} '
    f'({skipped_links[0].location}).'
  )
  if (
    num_skipped >= _MIN_REVERSED
    and num_reversed_skipped <= _MAX_REVERSED_FRACTION * num_skipped
  ):
    command = (
      "awk '{t = $2; $2 = $3; $3 = t; print}'"
      if is_naacl
      else r"sed -E 's/([0-9]+)([-p?])([0-9]+)/\3\2\1/g'"
    )
    logging.warning(
      '%s The number would be %d if source and target were exchanged, so the '
      'links are probably in the order target-source, and alignment scores '
      'would be wrong. If the source and the target file were exchanged, pass '
      'them in the other order. Otherwise, exchange the words of each link in '
      'the file, for example with %s.',
      count,
      num_reversed_skipped,
      command,
      extra=logs.ONCE,
    )
    return
  logging.warning(
    '%s Check that the links belong to these sentences, and that the sentences '
    'have the tokenization of the links.',
    count,
    extra=logs.ONCE,
  )


def _read_numbered_lines(path) -> dict[int, tuple[int, str]] | None:
  """Reads lines that start with a sentence number and a tab.

  The first line determines whether the file contains sentence numbers.

  Returns:
    The line number and the text of each sentence, by sentence number. None if
    the file has no sentence numbers.

  Raises:
    CorpusError: If a line after the first one has no number, or if a number is
      repeated.
  """
  lines: dict[int, tuple[int, str]] = {}
  for number, text in file_reading.read_lines(path):
    if not text.strip():
      continue
    match = _NUMBERED.fullmatch(text) or _NAACL_SENTENCE.fullmatch(text)
    if not match and not lines:
      return None
    if not match:
      raise file_reading.malformed_line_error(
        'The line must consist of a sentence number, a tab and text, as in '
        'the previous lines',
        path,
        number,
        got=file_reading.shorten_quoted(text),
      )
    if int(match[1]) in lines:
      raise file_reading.malformed_line_error(
        'Each sentence number must occur only once in the file',
        path,
        number,
        got=match[1],
      )
    lines[int(match[1])] = number, match[2]
  return lines


def _read_naacl_links(path) -> dict[int, tuple[int, str]] | None:
  """Reads a file that contains one link per line, in the NAACL format.

  Returns:
    The number of the last line and the links `i-jS` or `i-jP` of each sentence,
    by sentence number. None if the first line has another format.

  Raises:
    CorpusError: If a line after the first one has a different format.
  """
  links: dict[int, tuple[int, str]] = {}
  for number, text in file_reading.read_lines(path):
    if not text.strip():
      continue
    match = _NAACL_LINK.fullmatch(text)
    if not match and not links:
      return None
    if not match:
      raise file_reading.malformed_line_error(
        'The line must consist of a sentence number and the numbers of two '
        'words, as in the previous lines',
        path,
        number,
        got=file_reading.shorten_quoted(text),
      )
    key = int(match[1])
    items = links[key][1] if key in links else ''
    if int(match[2]) and int(match[3]):
      items += f' {match[2]}-{match[3]}{match[4] or "S"}'
    links[key] = number, items
  return links or None


def _check_same_format(numbered_lines, paths) -> None:
  """Raises a CorpusError if only some files contain sentence numbers."""
  unnumbered = [
    str(path)
    for lines, path in zip(numbered_lines, paths, strict=True)
    if lines is None
  ]
  numbered = [
    str(path)
    for lines, path in zip(numbered_lines, paths, strict=True)
    if lines
  ]
  if unnumbered and numbered:
    raise errors.CorpusError(
      'If one file of a word alignment has a sentence number and a tab at the '
      'start of each line, all files must have them. Sentence numbers were '
      f'found only in {", ".join(numbered)}',
      where=unnumbered[0],
    )


def _check_same_sentences(columns, paths) -> None:
  """Raises a CorpusError if files do not contain the same sentences."""
  if len({frozenset(column) for column in columns}) > 1:
    raise errors.CorpusError(
      'The source, target and link files must contain the same sentences',
      got=', '.join(
        f'{plurals.format_count(len(column), "line")} in {path}'
        for column, path in zip(columns, paths, strict=True)
      ),
    )


def _split_sides(text: str, path, number: int) -> list[str]:
  """Splits a line `source ||| target`."""
  sides = text.split(_SEPARATOR)
  if len(sides) != 2 or not all(side.strip() for side in sides):
    raise file_reading.malformed_line_error(
      'The line must consist of a source text and a target text in the form '
      f'source{_SEPARATOR}target',
      path,
      number,
      got=file_reading.shorten_quoted(text),
    )
  return sides


def _parse_links(
  text: str,
  words,
  first: int,
  path,
  number: int,
  skipped_links: list[_SkippedLink],
) -> tuple[frozenset, frozenset]:
  """Returns the sure links and all links of a line that are not skipped."""
  sure, possible = set(), set()
  for item in corpus_lines.split_tokens(text):
    match = _LINK.fullmatch(item)
    if not match or (match[2] != '-' and match[4]):
      raise file_reading.malformed_line_error(
        'The link must be in the format i-j, ipj, i?j, i-jS or i-jP',
        path,
        number,
        got=repr(item),
      )
    link = int(match[1]) - first, int(match[3]) - first
    if min(link) < 0:
      raise file_reading.malformed_line_error(
        f'The word numbers of a link must be at least {first}',
        path,
        number,
        got=repr(item),
        fix='If words are numbered from 0, set first_index=0 '
        '(--gin.FIRST_INDEX=0 or --index_base=0).',
      )
    if any(index >= len(side) for index, side in zip(link, words, strict=True)):
      skipped_links.append(
        _SkippedLink(
          item,
          link,
          (len(words[0]), len(words[1])),
          errors.line_location(path, number),
        )
      )
      continue
    possible.add(link)
    if match[2] == '-' and match[4] != 'P':
      sure.add(link)
  return frozenset(sure), frozenset(possible)
