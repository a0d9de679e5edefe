"""Readers for files with one tagged word per line, such as CoNLL-2003.

The tags are named entities or parts of speech. The supported formats are those
of CoNLL-2002 and CoNLL-2003, WikiAnn (PAN-X), Universal NER, and the files that
XTREME's script writes. They have one word per line and an empty line between
sentences.

Sources: Sang and De Meulder (2003); Pan et al. (2017) with the splits of Rahimi
et al. (2019); Mayhew et al. (2024).
"""

import enum
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import validation

_COMMENT = re.compile(
  r'#\s*(?:[\w.]+(?: [\w.]+)*\s*=\s|(?:newdoc|newpar)\b|id\s\S+\s+\w+=)'
)
_SENT_ID = re.compile(r'#\s*sent_id\s*=\s*(\S+)')
_UNKNOWN = '\N{REPLACEMENT CHARACTER}'


class Scheme(enum.Enum):
  """Tagging scheme of a file with one tagged word per line.

  IOB1 and IOBES tags are converted to IOB2 when the file is read.

  PLAIN: Tags do not mark entities (for example, they are parts of speech) and
  remain unchanged. IOB1: B- is used only if an entity directly follows another
  entity of the same type (CoNLL-2003 as distributed). IOB2: B- is used at the
  start of each entity. IOBES: E- is used at the end of an entity and S- for a
  single word. L- and U- are read like E- and S-. AUTO: The scheme is detected
  from the tags of the file (see `detect_scheme`).
  """

  AUTO = 'auto'
  PLAIN = 'plain'
  IOB1 = 'iob1'
  IOB2 = 'iob2'
  IOBES = 'iobes'


class Separator(enum.Enum):
  """Column separator. AUTO is a tab if the file contains tabs, else a space."""

  TAB = 'tab'
  SPACE = 'space'
  AUTO = 'auto'


class _Line(NamedTuple):
  """Line with a word. The tag is None in a blind test set."""

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
  language_prefix=True,
)
@file_formats.register_reader(
  'conll_iob2', example=labeled_examples.TaggedSentence, scheme='iob2'
)
@file_formats.register_reader(
  'conll_iob1', example=labeled_examples.TaggedSentence, scheme='iob1'
)
@file_formats.register_reader(
  'conll', example=labeled_examples.TaggedSentence, scheme='auto'
)
def read_conll(
  path: str | os.PathLike,
  language: str,
  *,
  word: int = 0,
  tag: int = -1,
  scheme: Scheme | str = Scheme.PLAIN,
  separator: Separator | str = Separator.AUTO,
  language_prefix: bool = False,
) -> file_reading.Reading:
  """Reads sentences with one tagged word per line.

  For example, `fr:Paris<TAB>I-LOC` with the scheme IOB1 and a language prefix
  gives the words `('Paris',)` and the tags `('B-LOC',)`.

  A file that contains only words is a blind test set, and its tags are None. A
  line `# sent_id = …` sets the id of a sentence. Other comments in the format
  `# name = value` and `-DOCSTART-` lines are skipped.

  Args:
    path: Path of the file.
    language: Language code of the sentences.
    word: Index of the word column. Negative indices count from the end.
    tag: Index of the tag column.
    scheme: Tagging scheme of the file.
    separator: Column separator of the file.
    language_prefix: Whether each word is prefixed with a language code, as in
      `fr:mot` (WikiAnn).

  Raises:
    CorpusError: If a line has too few columns or a different number of columns
      than the previous lines, if a tag does not belong to the scheme, or if a
      word lacks its prefix (the error contains the file and the line); if the
      file is empty; if the word column contains only word numbers; or if the
      tags look like words.
  """
  scheme = validation.validate(scheme, Scheme, name='scheme')
  language_prefix = validation.validate(
    language_prefix, bool, name='language_prefix'
  )
  separator = validation.validate(separator, Separator, name='separator')
  split = _choose_splitter(path, separator)
  sentences = list(_read_sentences(path, split, word, tag, language_prefix))
  _check_words_are_not_numbers([lines for _, lines in sentences], path)
  is_blind: bool | None = None
  for _, lines in sentences:
    is_blind = _check_blind(lines, is_blind, path)
  if scheme is Scheme.AUTO:
    scheme = detect_scheme(
      [[line.tag or '' for line in lines] for _, lines in sentences]
    )
  examples: list[labeled_examples.TaggedSentence] = []
  problems: list[str] = []
  for sentence_id, lines in sentences:
    examples.append(
      labeled_examples.TaggedSentence(
        id=sentence_id or str(len(examples)),
        language=language,
        words=_read_words(lines, path, problems),
        tags=None if is_blind else _read_tags(lines, scheme, path, problems),
      )
    )
  file_reading.check_any(examples, path)
  column_validation.check_tags(examples, path)
  column_validation.check_text(
    language, (' '.join(example.words) for example in examples), path
  )
  return file_reading.Reading(examples, tuple(problems))


def _choose_splitter(path, separator: Separator):
  """Returns the function that splits a line into columns."""
  if separator is Separator.AUTO:
    # The first line with a word determines the separator. `_read_sentences`
    # checks that all lines have the same number of columns.
    first_line = next(
      (
        line
        for _, line in file_reading.read_lines(path)
        if line.strip() and not _is_comment(line)
      ),
      '',
    )
    has_tab = '\t' in first_line.strip()
    separator = Separator.TAB if has_tab else Separator.SPACE
  if separator is Separator.TAB:
    return lambda line: line.split('\t')
  # In a file that is separated by spaces, a tab is a separate column.
  return corpus_lines.split_tokens


def _is_comment(line: str) -> bool:
  """Returns whether a line is a comment or the start of a document."""
  return bool(_COMMENT.match(line)) or line.startswith('-DOCSTART-')


def _read_sentences(
  path, split, word, tag, language_prefix
) -> Iterator[tuple[str | None, list[_Line]]]:
  """Yields the id, if any, and the words of each sentence."""
  sentence_id: str | None = None
  lines: list[_Line] = []
  num_columns: int | None = None
  for number, text in file_reading.read_lines(path):
    if not text.strip():
      if lines:
        yield sentence_id, lines
        sentence_id, lines = None, []
    elif _is_comment(text):
      match = _SENT_ID.match(text)
      sentence_id = match[1] if match else sentence_id
    else:
      if num_columns is None:
        file_reading.check_not_json(text, path, number)
      fields = [field.strip() for field in split(text)]
      num_columns = num_columns or len(fields)
      if len(fields) != num_columns:
        raise file_reading.malformed_line_error(
          f'The number of columns in the line must be {num_columns}, as in the '
          f'previous lines, but it is {len(fields)}',
          path,
          number,
          got=file_reading.shorten_quoted(text),
        )
      lines.append(
        _parse_line(fields, word, tag, language_prefix, path, number)
      )
  if lines:
    yield sentence_id, lines


def _parse_line(
  fields: list[str],
  word: int,
  tag: int,
  language_prefix: bool,
  path,
  number: int,
) -> _Line:
  """Returns the word and the tag of a line."""
  size = len(fields)
  word_column, tag_column = (
    column + size if column < 0 else column for column in (word, tag)
  )
  if not 0 <= word_column < size or (size > 1 and not 0 <= tag_column < size):
    raise file_reading.malformed_line_error(
      f'The line must contain a word in column {word} and its tag in column '
      f'{tag} (columns are counted from 0), but it has '
      + file_reading.format_column_count(fields),
      path,
      number,
      got=file_reading.shorten_quoted(' | '.join(fields)),
    )
  text = fields[word_column]
  if language_prefix:
    code, colon, text = text.partition(':')
    if not colon or not re.fullmatch(r'[A-Za-z][\w-]*', code):
      raise file_reading.malformed_line_error(
        'The word must have a language code as prefix, as in fr:mot',
        path,
        number,
        got=repr(fields[word_column]),
      )
  has_tag = size > 1 and word_column != tag_column
  label = fields[tag_column] if has_tag else None
  if label == '':
    raise file_reading.malformed_line_error(
      f'The tag of the word {text!r} must not be empty', path, number
    )
  return _Line(number, text.strip(), label)


def _check_words_are_not_numbers(sentences: list[list[_Line]], path) -> None:
  """Raises a CorpusError if the words of all sentences are 1, 2, 3, …."""
  if max(map(len, sentences), default=0) < 3:
    return
  for lines in sentences:
    if [line.word for line in lines] != [
      str(number) for number in range(1, len(lines) + 1)
    ]:
      return
  raise file_reading.malformed_line_error(
    'The word column must contain words, but it contains only word numbers',
    path,
    sentences[0][0].number,
    got=sentences[0][0].word,
    fix='If the columns are those of Universal NER (number, word, IOB2 tag), '
    'set the format, as in --gin.FORMAT="\'uner\'". Otherwise, add the word '
    'column and the tag column, counted from 0, to the options of this file, '
    "such as --gin.OPTIONS=\"{'word': 1, 'tag': 2}\" if it has no other "
    f'options. {file_reading.OPTION_MACROS}',
  )


def _check_blind(lines: list[_Line], is_blind: bool | None, path) -> bool:
  """Checks that either all words of a file have tags or none has.

  Args:
    lines: Lines with the words of one sentence.
    is_blind: Whether the words in earlier sentences have no tags. None for the
      first sentence.
    path: Path of the file, for error messages.

  Returns:
    Whether the words have no tags.
  """
  for line in lines:
    is_untagged = line.tag is None
    is_blind = is_untagged if is_blind is None else is_blind
    if is_untagged != is_blind:
      raise file_reading.malformed_line_error(
        f'The word {line.word!r} has {"no" if is_untagged else "a"} tag, '
        'unlike the previous words. If one word of a file has a tag, all words '
        'must have one',
        path,
        line.number,
      )
  return bool(is_blind)


def _read_words(
  lines: list[_Line], path, problems: list[str]
) -> tuple[str, ...]:
  """Returns a sentence's words, and adds problems with them to `problems`."""
  for line in lines:
    if not line.word:
      problems.append(
        f'{path}:{line.number}: Replacing an empty word by {_UNKNOWN}'
      )
  return tuple(line.word or _UNKNOWN for line in lines)


def _read_tags(
  lines: list[_Line], scheme: Scheme, path, problems: list[str]
) -> tuple[str, ...]:
  """Returns a sentence's tags, and adds problems with them to `problems`."""
  tags = [line.tag or '' for line in lines]
  if scheme is Scheme.PLAIN:
    return tuple(tags)
  prefixes = 'BIESLU' if scheme is Scheme.IOBES else 'BI'
  for line, tag in zip(lines, tags, strict=True):
    if not re.fullmatch(rf'O|[{prefixes}]-.+', tag):
      raise file_reading.malformed_line_error(
        'The tag must be O or start with one of the prefixes '
        f'{", ".join(f"{p}-" for p in prefixes)}',
        path,
        line.number,
        got=repr(tag),
      )
  if scheme is not Scheme.IOB2:
    return to_iob2(tags)
  for line, previous_tag, tag in zip(lines, ['O', *tags], tags, strict=False):
    if tag[0] == 'I' and tag[1:] != previous_tag[1:]:
      problems.append(
        f'{path}:{line.number}: An entity starts with {tag} instead of B-'
      )
  return tuple(tags)


def detect_scheme(sentences: Sequence[Sequence[str]]) -> Scheme:
  """Detects the tagging scheme, such as IOB1, from the tags of sentences.

  Returns:
    PLAIN, unless some tags mark entities and all others are `O`. IOBES if a tag
    has the prefix E-, S-, L- or U-. IOB1 if an entity starts with I-, and B- is
    used only after an entity of the same type. Otherwise, IOB2.
  """
  tags = {tag for sentence in sentences for tag in sentence}
  prefixes = {tag[0] for tag in tags if re.fullmatch('[BIESLU]-.+', tag)}
  if not prefixes or not all(
    re.fullmatch('O|[BIESLU]-.+', tag) for tag in tags
  ):
    return Scheme.PLAIN
  if prefixes & set('ESLU'):
    return Scheme.IOBES
  starts_with_i = starts_with_b = False
  for sentence in sentences:
    for previous_tag, tag in itertools.pairwise(['O', *sentence]):
      follows_same_type = previous_tag[1:] == tag[1:]
      starts_with_i |= tag[0] == 'I' and not follows_same_type
      starts_with_b |= tag[0] == 'B' and not follows_same_type
  return Scheme.IOB1 if starts_with_i and not starts_with_b else Scheme.IOB2


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
  """Converts IOB1 or IOBES tags to IOB2.

  For example, `I-LOC I-LOC B-LOC I-ORG` becomes `B-LOC I-LOC B-LOC B-ORG`, and
  `S-PER B-LOC E-LOC` becomes `B-PER B-LOC I-LOC`.
  """
  result = []
  open_type = None  # Type of an entity that the next tag may continue.
  for tag in tags:
    prefix, _, entity_type = tag.partition('-')
    if prefix == 'O':
      result.append(tag)
    elif prefix in 'IEL' and entity_type == open_type:
      result.append(f'I-{entity_type}')
    else:
      result.append(f'B-{entity_type}')
    open_type = None if prefix in 'OESLU' else entity_type
  return tuple(result)
