"""Tags of words in columns: named entities, parts of speech.

The layouts of CoNLL-2002 and 2003, WikiAnn (PAN-X), Universal NER, and of the
files that XTREME's script leaves: one word a line, an empty line between
sentences.

Sang & De Meulder 2003; Pan et al. 2017 with the splits of Rahimi et al. 2019;
Mayhew et al. 2024.
"""

import enum
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import validation

_KIND = 'file of tagged words'
_COMMENT = re.compile(
  r'#\s*(?:[\w.]+(?: [\w.]+)*\s*=\s|(?:newdoc|newpar)\b|id\s\S+\s+\w+=)'
)
_SENT_ID = re.compile(r'#\s*sent_id\s*=\s*(\S+)')
_UNKNOWN = '\N{REPLACEMENT CHARACTER}'


class Scheme(enum.Enum):
  """How the tags of a file mark entities; the examples have IOB2.

  PLAIN: tags mark none (parts of speech) and stay as they are. IOB1: B- only
  where an entity follows one of its kind (CoNLL-2003 as distributed). IOB2:
  B- at each entity's start. IOBES: with E- at the end, S- for one word (L-
  and U- mean the same).
  """

  PLAIN = 'plain'
  IOB1 = 'iob1'
  IOB2 = 'iob2'
  IOBES = 'iobes'


class Separator(enum.Enum):
  """What is between columns; AUTO: a tab if the file has any, else a space."""

  TAB = 'tab'
  SPACE = 'space'
  AUTO = 'auto'


class Prefix(enum.Enum):
  """Whether words are written `fr:mot`, as in WikiAnn."""

  NONE = 'none'
  LANGUAGE = 'language'


class _Line(NamedTuple):
  number: int
  word: str
  tag: str | None


@file_formats.register_reader(
  'uner', example=labeled_examples.TaggedSentence, word=1, tag=2, scheme='iob2'
)
@file_formats.register_reader(
  'wikiann',
  example=labeled_examples.TaggedSentence,
  scheme='iob2',
  prefix='language',
)
@file_formats.register_reader(
  'conll_iob2', example=labeled_examples.TaggedSentence, scheme='iob2'
)
@file_formats.register_reader(
  'conll_iob1', example=labeled_examples.TaggedSentence, scheme='iob1'
)
@file_formats.register_reader('conll', example=labeled_examples.TaggedSentence)
def read_conll(
  path: str | os.PathLike,
  language: str,
  *,
  word: int = 0,
  tag: int = -1,
  scheme: Scheme | str = Scheme.PLAIN,
  separator: Separator | str = Separator.AUTO,
  prefix: Prefix | str = Prefix.NONE,
) -> file_reading.Reading:
  """Reads sentences of tagged words.

  Before: `fr:Paris<TAB>I-LOC` with scheme IOB1 and a language prefix; after:
  words `('Paris',)`, tags `('B-LOC',)`.

  A file with no column but the words is blind: its tags are None. Lines
  `# sent_id = …` name sentences; other such comments and `-DOCSTART-` lines
  are passed over.

  Args:
    path: of the file.
    language: code of the sentences.
    word: column of the words, from 0; negative: from the end.
    tag: column of the tags.
    scheme: what the file's tags are.
    separator: what is between columns.
    prefix: what is before words.

  Raises:
    CorpusError: file:line of a line with too few columns, or not as many as
      the others in the case of one; a tag that is none of the scheme; a word
      without its prefix; an empty file; tags that look like words.
  """
  scheme = validation.validate(scheme, Scheme, name='scheme')
  prefix = validation.validate(prefix, Prefix, name='prefix')
  split = _splitter(
    path, validation.validate(separator, Separator, name='separator')
  )
  examples: list[labeled_examples.TaggedSentence] = []
  problems: list[str] = []
  blind: bool | None = None
  for name, lines in _sentences(path, split, word, tag, prefix):
    blind = _check_blind(lines, blind, path)
    examples.append(
      labeled_examples.TaggedSentence(
        id=name or str(len(examples)),
        language=language,
        words=_words(lines, path, problems),
        tags=None if blind else _tags(lines, scheme, path, problems),
      )
    )
  file_reading.check_any(examples, path)
  column_validation.check_tags(examples, path)
  return file_reading.Reading(examples, tuple(problems))


def _splitter(path, separator: Separator):
  if separator is Separator.AUTO:
    # The first line of a word decides; `_sentences` verifies all others.
    first = next(
      (
        line
        for _, line in file_reading.read_lines(path)
        if line.strip() and not _is_comment(line)
      ),
      '',
    )
    tab = '\t' in first.strip()
    separator = Separator.TAB if tab else Separator.SPACE
  if separator is Separator.TAB:
    return lambda line: line.split('\t')
  # A tab in a file that is separated by spaces is a column of its own.
  return corpus_lines.split_tokens


def _is_comment(line: str) -> bool:
  """Returns whether a line is a comment or the start of a document."""
  return bool(_COMMENT.match(line)) or line.startswith('-DOCSTART-')


def _sentences(
  path, split, word, tag, prefix
) -> Iterator[tuple[str | None, list[_Line]]]:
  name: str | None = None
  lines: list[_Line] = []
  num_columns: int | None = None
  for number, text in file_reading.read_lines(path):
    if not text.strip():
      if lines:
        yield name, lines
        name, lines = None, []
    elif _is_comment(text):
      match = _SENT_ID.match(text)
      name = match[1] if match else name
    else:
      fields = [field.strip() for field in split(text)]
      num_columns = num_columns or len(fields)
      if len(fields) != num_columns:
        raise file_reading.malformed_line_error(
          _KIND,
          path,
          number,
          f'{len(fields)} columns: {file_reading.shorten_quoted(text)}',
          expected=f'{num_columns} columns, as in the lines before',
        )
      lines.append(_line(fields, word, tag, prefix, path, number))
  if lines:
    yield name, lines


def _line(
  fields: list[str], word: int, tag: int, prefix: Prefix, path, number: int
) -> _Line:
  size = len(fields)
  places = [column + size if column < 0 else column for column in (word, tag)]
  if not 0 <= places[0] < size or (size > 1 and not 0 <= places[1] < size):
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'{size} columns: ' + file_reading.shorten_quoted(' | '.join(fields)),
      expected=f'the word in column {word}, its tag in column {tag} '
      '(counted from 0)',
    )
  text = fields[places[0]]
  if prefix is Prefix.LANGUAGE:
    before, colon, text = text.partition(':')
    if not colon or not re.fullmatch(r'[A-Za-z][\w-]*', before):
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        number,
        f'the word {fields[places[0]]!r}',
        expected="a language's code and a colon before it, as fr:mot",
      )
  label = fields[places[1]] if size > 1 and places[0] != places[1] else None
  if label == '':
    raise file_reading.malformed_line_error(
      _KIND, path, number, f'no tag of {text!r}'
    )
  return _Line(number, text.strip(), label)


def _check_blind(lines: list[_Line], blind: bool | None, path) -> bool:
  """Whether no word has a tag, as in the sentences before."""
  for line in lines:
    is_untagged = line.tag is None
    blind = is_untagged if blind is None else blind
    if is_untagged != blind:
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        line.number,
        f'{"no" if is_untagged else "a"} tag of {line.word!r}',
        expected='a tag of each word, or none in the whole file',
      )
  return bool(blind)


def _words(lines: list[_Line], path, problems: list[str]) -> tuple[str, ...]:
  for line in lines:
    if not line.word:
      problems.append(
        f'{path}:{line.number}: an empty word, read as {_UNKNOWN}'
      )
  return tuple(line.word or _UNKNOWN for line in lines)


def _tags(
  lines: list[_Line], scheme: Scheme, path, problems: list[str]
) -> tuple[str, ...]:
  tags = [line.tag or '' for line in lines]
  if scheme is Scheme.PLAIN:
    return tuple(tags)
  marks = 'BIESLU' if scheme is Scheme.IOBES else 'BI'
  for line, tag in zip(lines, tags, strict=True):
    if not re.fullmatch(rf'O|[{marks}]-.+', tag):
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        line.number,
        f'the tag {tag!r}',
        expected='O, or one of ' + ', '.join(f'{m}-…' for m in marks),
      )
  if scheme is not Scheme.IOB2:
    return to_iob2(tags)
  for line, before, tag in zip(lines, ['O', *tags], tags, strict=False):
    if tag[0] == 'I' and tag[1:] != before[1:]:
      problems.append(
        f'{path}:{line.number}: an entity starts with {tag}, not B-'
      )
  return tuple(tags)


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
  """IOB1 or IOBES tags as IOB2.

  Before: `I-LOC I-LOC B-LOC I-ORG`; after: `B-LOC I-LOC B-LOC B-ORG`. Before:
  `S-PER B-LOC E-LOC`; after: `B-PER B-LOC I-LOC`.
  """
  result = []
  kind = None  # of an entity that may go on
  for tag in tags:
    mark, _, entity_type = tag.partition('-')
    goes_on = mark in 'IEL' and entity_type == kind
    result.append(
      tag if mark == 'O' else ('I-' if goes_on else 'B-') + entity_type
    )
    kind = None if mark in 'OESLU' else entity_type
  return tuple(result)
