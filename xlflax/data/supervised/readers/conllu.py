"""Readers for dependency trees and part-of-speech tags in CoNLL-U files.

Words are syntactic words, as in the CoNLL 2018 shared task with gold
segmentation. Empty nodes (`3.1`) are skipped, and multiword tokens (`1-2`) are
used only in prediction files. The `conllu` package parses the lines. This
module also checks what the package does not (columns, numbering and trees), and
reports the line that contains an error.

Sources: Zeman et al. (2018), "CoNLL 2018 Shared Task";
universaldependencies.org/format.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import conllu
from conllu import parser

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors, validation

_COLUMNS = 10
# Reading a column as plain text is faster and cannot fail.
_PARSERS = dict.fromkeys(
  parser.DEFAULT_FIELDS, lambda columns, index: columns[index]
) | {name: parser.DEFAULT_FIELD_PARSERS[name] for name in ('id', 'head')}


_WORD_COLUMNS = ('form', 'lemma', 'upos', 'feats', 'head', 'deprel')


class _Word(NamedTuple):
  """Syntactic word. The head is None if the file does not specify it."""

  line_number: int
  form: str
  lemma: str
  tag: str
  features: str
  head: int | None
  relation: str


class _Sentence(NamedTuple):
  """Words of a sentence, and its multiword tokens in the form '1-2 token'."""

  last_line_number: int
  id: str | None
  words: list[_Word]
  multiwords: list[str]


@file_formats.register_reader('conllu', example=labeled_examples.ParsedSentence)
def read_trees(
  path: str | os.PathLike, language: str, *, keep_subtypes: bool = True
) -> file_reading.Reading:
  """Reads sentences with their dependency trees.

  Sentences in which all heads are `_`, as in a blind test set, have no tree.

  Args:
    path: Path of the file.
    language: Language code of the sentences.
    keep_subtypes: Whether to keep language-specific subtypes of relations. If
      False, `acl:relcl` is read as `acl`.

  Raises:
    CorpusError: If a line or a tree violates the format (columns, numbering,
      heads outside the sentence, no root or several roots, a cycle), or if the
      file is empty. The error contains the file and the line.
  """
  keep_subtypes = validation.validate(keep_subtypes, bool, name='keep_subtypes')
  examples: list[labeled_examples.ParsedSentence] = []
  for sentence in _read_sentences(path):
    heads = _read_heads(sentence, path)
    relations = tuple(
      _read_relation(word, keep_subtypes) for word in sentence.words
    )
    examples.append(
      labeled_examples.ParsedSentence(
        id=sentence.id or str(len(examples)),
        language=language,
        words=tuple(word.form for word in sentence.words),
        tags=tuple(word.tag for word in sentence.words),
        heads=heads,
        relations=relations if heads else None,
        multiwords=tuple(sentence.multiwords),
        lemmas=tuple(word.lemma for word in sentence.words),
        features=tuple(word.features for word in sentence.words),
      )
    )
  file_reading.check_any(examples, path)
  column_validation.check_text(
    language, (' '.join(example.words) for example in examples), path
  )
  return file_reading.Reading(examples)


@file_formats.register_reader(
  'conllu_tags', example=labeled_examples.TaggedSentence
)
def read_tags(path: str | os.PathLike, language: str) -> file_reading.Reading:
  """Reads sentences with their universal part-of-speech tags.

  The file does not have to contain trees. Sentences in which all tags are `_`
  have no tags.

  Raises:
    CorpusError: If a line violates the format, as documented by `read_trees`,
      or if only some words of a sentence have a tag.
  """
  examples: list[labeled_examples.TaggedSentence] = []
  for sentence in _read_sentences(path):
    tags = tuple(word.tag for word in sentence.words)
    if '_' in tags and set(tags) != {'_'}:
      raise _missing_tag_error(sentence.words[tags.index('_')], path)
    examples.append(
      labeled_examples.TaggedSentence(
        id=sentence.id or str(len(examples)),
        language=language,
        words=tuple(word.form for word in sentence.words),
        tags=None if '_' in tags else tags,
      )
    )
  file_reading.check_any(examples, path)
  column_validation.check_text(
    language, (' '.join(example.words) for example in examples), path
  )
  return file_reading.Reading(examples)


def _missing_tag_error(word, path: str | os.PathLike) -> errors.CorpusError:
  """Returns the error for a word without a tag."""
  return file_reading.malformed_line_error(
    'Either all words of a sentence or none of them must have a part of '
    f'speech, but the word {word.form!r} has no part of speech',
    path,
    word.line_number,
  )


def _read_sentences(path) -> Iterator[_Sentence]:
  """Yields the sentences of a file."""
  lines: list[tuple[int, str]] = []
  for number, line in file_reading.read_lines(path):
    if line.strip():
      lines.append((number, line))
    elif lines:
      yield from _parse_sentence(lines, path)
      lines = []
  if lines:
    yield from _parse_sentence(lines, path)


def _parse_sentence(
  lines: Sequence[tuple[int, str]], path
) -> Iterator[_Sentence]:
  """Yields the sentence of numbered lines, or nothing if all are comments."""
  sentence_id: str | None = None
  parsed_words: list[_Word] = []
  multiwords: list[str] = []
  last_covered = 0  # Last word of a multiword token so far.
  for number, line in lines:
    if line.startswith('#'):
      comment = dict(parser.parse_comment_line(line))
      sentence_id = comment.get('sent_id', sentence_id)
      continue
    token = _parse_token(line, path, number)
    match token['id']:
      case (first, '-', last):
        _check_range(first, last, len(parsed_words), last_covered, path, number)
        last_covered = last
        multiwords.append(f'{first}-{last} {token["form"]}')
      case (previous, '.', _):
        _check_empty_node(
          token['id'], previous == len(parsed_words), path, number
        )
      case word_number:
        _check_word_number(word_number, len(parsed_words) + 1, path, number)
        columns = (token[name] for name in _WORD_COLUMNS)
        parsed_words.append(_Word(number, *columns))
  if parsed_words:
    yield _Sentence(lines[-1][0], sentence_id, parsed_words, multiwords)


def _parse_token(line: str, path, number: int) -> conllu.Token:
  """Parses the columns of a line."""
  _check_columns(line, path, number)
  try:
    # The package splits columns not only at tabs, but also at two spaces.
    return parser.parse_line(
      re.sub(' {2,}', ' ', line), parser.DEFAULT_FIELDS, _PARSERS
    )
  except conllu.exceptions.ParseException as error:
    raise file_reading.malformed_line_error(
      f'The CoNLL-U file cannot be parsed: {error}', path, number
    ) from error


def _check_columns(line: str, path, number: int) -> None:
  """Raises a CorpusError for a wrong number of columns or an empty column."""
  file_reading.check_not_json(line, path, number)
  columns = line.split('\t')
  if len(columns) != _COLUMNS:
    raise file_reading.malformed_line_error(
      f'The line must have {_COLUMNS} tab-separated columns, be a comment '
      'that starts with #, or be an empty line between sentences, but it has '
      + file_reading.format_column_count(columns),
      path,
      number,
      got=file_reading.shorten_quoted(line),
      fix=_suggest_format(columns),
    )
  empty = [i for i, text in enumerate(columns, start=1) if not text.strip()]
  if empty:
    raise file_reading.malformed_line_error(
      f'The column {empty[0]} must not be empty. If the value is missing, the '
      'column must contain _',
      path,
      number,
    )


def _suggest_format(columns: Sequence[str]) -> str:
  """Returns a hint on the format of a line that is not in CoNLL-U format."""
  if (
    len(columns) > 2
    and columns[0].strip().isdecimal()
    and re.fullmatch('O|[BI]-.+', columns[2].strip())
  ):
    return (
      'The columns seem to be those of Universal NER (number, word, IOB2 tag). '
      'Set the format, as in --gin.FORMAT="\'uner\'".'
    )
  return (
    'If the file is not in CoNLL-U format, set FORMAT, for example to '
    "'conll' (the first column is the word and the last column is the tag) or "
    "'uner' (number, word and tag)."
  )


def _check_word_number(
  word_number: int | None, expected: int, path, number: int
) -> None:
  """Raises a CorpusError if words are not numbered consecutively."""
  if word_number != expected:
    raise file_reading.malformed_line_error(
      f'The word number must be {expected}. Words are numbered from 1 '
      'in each sentence, and an empty line separates sentences',
      path,
      number,
      got=word_number,
    )


def _check_range(
  first: int, last: int, num_words: int, last_covered: int, path, number: int
) -> None:
  """Raises a CorpusError if the range of a multiword token is invalid.

  Args:
    first: Number of the multiword token's first word.
    last: Number of the multiword token's last word.
    num_words: Number of words that were read from the preceding lines of the
      sentence.
    last_covered: Number of the previous multiword token's last word.
    path: Path of the file, for error messages.
    number: Line number, for error messages.
  """
  if first != num_words + 1 or first <= last_covered:
    raise file_reading.malformed_line_error(
      f'The multiword token {first}-{last} is invalid. A multiword token in '
      f'this line must start with the word {num_words + 1}, and multiword '
      'tokens must not overlap',
      path,
      number,
    )


def _check_empty_node(node, is_in_order: bool, path, number: int) -> None:
  """Raises a CorpusError if an empty node does not follow its word."""
  if not is_in_order:
    raise file_reading.malformed_line_error(
      f'The empty node {node[0]}.{node[2]} must follow the word {node[0]}',
      path,
      number,
    )


def _read_heads(sentence: _Sentence, path) -> tuple[int, ...] | None:
  """Returns the head of each word, or None if the file has no tree.

  Raises:
    CorpusError: If the heads do not form a tree with one root.
  """
  sentence_words = sentence.words
  if all(word.head is None for word in sentence_words):
    return None
  heads = [
    _read_head(word, index, len(sentence_words), path)
    for index, word in enumerate(sentence_words, start=1)
  ]
  if heads.count(0) != 1:
    raise file_reading.malformed_line_error(
      'Each sentence must have exactly one word with the head 0, which is '
      f'the root, but this sentence has {heads.count(0)} roots',
      path,
      sentence.last_line_number,
    )
  cycle = _find_cycle(heads)
  if cycle:
    raise file_reading.malformed_line_error(
      'The heads of a sentence must form a tree, but they form the cycle '
      f'{" → ".join(map(str, cycle))}',
      path,
      sentence_words[cycle[0] - 1].line_number,
    )
  return tuple(heads)


def _read_head(word: _Word, index: int, num_words: int, path) -> int:
  """Returns the head of word `index`, counted from 1."""
  head = word.head
  if head is None or not 0 <= head <= num_words or head == index:
    raise file_reading.malformed_line_error(
      f'The head of the word {index} must be 0 (the root) or the number of '
      f'another word. The number of words in the sentence is {num_words}',
      path,
      word.line_number,
      got='_' if head is None else head,
    )
  return head


def _find_cycle(heads: Sequence[int]) -> list[int]:
  """Returns the words of a cycle, with the first repeated at the end.

  The list is empty if the heads form a tree.
  """
  connected = {0}  # Words with a path to the root.
  for start in range(1, len(heads) + 1):
    path: list[int] = []
    node = start
    while node not in connected:
      if node in path:
        return [*path[path.index(node) :], node]
      path.append(node)
      node = heads[node - 1]
    connected.update(path)
  return []


def _read_relation(word: _Word, keep_subtypes: bool) -> str:
  """Returns the relation of a word, with or without its subtype."""
  if keep_subtypes:
    return word.relation
  return word.relation.partition(':')[0]
