"""Dependency trees and parts of speech from CoNLL-U files.

The words are the syntactic ones, as in the CoNLL 2018 shared task on gold
segmentation: empty nodes (`3.1`) are skipped, and multiword tokens (`1-2`)
are kept for files of predictions only.
The `conllu` package parses the lines; this module checks what the package
lets pass (columns, numbering, trees) and says where a file is wrong.

Sources: Zeman et al. 2018, "CoNLL 2018 Shared Task";
universaldependencies.org/format.
"""

import enum
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import conllu
from conllu import parser

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.utils import errors, validation

_COLUMNS = 10
_KIND = 'CoNLL-U'
# Columns that are read as they stand cost less, and cannot be malformed.
_PARSERS = dict.fromkeys(
  parser.DEFAULT_FIELDS, lambda columns, index: columns[index]
) | {name: parser.DEFAULT_FIELD_PARSERS[name] for name in ('id', 'head')}


_WORD_COLUMNS = ('form', 'lemma', 'upos', 'feats', 'head', 'deprel')


class Subtypes(enum.Enum):
  """Language-specific parts of relations: `acl:relcl` is kept, or `acl`."""

  KEPT = 'kept'
  DROPPED = 'dropped'


class _Word(NamedTuple):
  number: int  # of its line
  form: str
  lemma: str
  tag: str
  features: str
  head: int | None  # None: the file does not say
  relation: str


class _Sentence(NamedTuple):
  number: int  # of its last line
  id: str | None
  words: list[_Word]
  multiwords: list[str]  # 'first-last form'


@file_formats.register_reader('conllu', example=labeled_examples.ParsedSentence)
def read_trees(
  path: str | os.PathLike,
  language: str,
  *,
  subtypes: Subtypes | str = Subtypes.KEPT,
) -> file_reading.Reading:
  """Reads sentences with their trees.

  Sentences whose heads are all `_` have no tree (a blind test set).

  Args:
    path: of the file.
    language: code of the sentences.
    subtypes: see `Subtypes`.

  Raises:
    CorpusError: file:line and the reason, of a line or tree that breaks the
      format: columns, numbering, heads outside the sentence, no root or
      several, a cycle; an empty file.
  """
  subtypes = validation.validate(subtypes, Subtypes, name='subtypes')
  examples: list[labeled_examples.Example] = []
  for sentence in _sentences(path):
    heads = _heads(sentence, path)
    relations = tuple(_relation(word, subtypes) for word in sentence.words)
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
  return file_reading.Reading(examples)


@file_formats.register_reader(
  'conllu_tags', example=labeled_examples.TaggedSentence
)
def read_tags(path: str | os.PathLike, language: str) -> file_reading.Reading:
  """Reads sentences with their universal parts of speech; no tree is needed.

  Sentences whose tags are all `_` have none.

  Raises:
    CorpusError: see `read_trees`; a word without a tag among others with one.
  """
  examples: list[labeled_examples.Example] = []
  for sentence in _sentences(path):
    tags = tuple(word.tag for word in sentence.words)
    if '_' in tags and set(tags) != {'_'}:
      raise _no_tag(sentence.words[tags.index('_')], path)
    examples.append(
      labeled_examples.TaggedSentence(
        id=sentence.id or str(len(examples)),
        language=language,
        words=tuple(word.form for word in sentence.words),
        tags=None if '_' in tags else tags,
      )
    )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _no_tag(word, path: str | os.PathLike) -> errors.CorpusError:
  return file_reading.malformed_line_error(
    _KIND,
    path,
    word.number,
    f'no part of speech of {word.form!r}',
    expected='all words of a sentence have one, or none',
  )


def _sentences(path) -> Iterator[_Sentence]:
  lines: list[tuple[int, str]] = []
  for number, line in file_reading.read_lines(path):
    if line.strip():
      lines.append((number, line))
    elif lines:
      yield from _sentence(lines, path)
      lines = []
  if lines:
    yield from _sentence(lines, path)


def _sentence(lines: Sequence[tuple[int, str]], path) -> Iterator[_Sentence]:
  """The sentence of some numbered lines; none if all are comments."""
  name: str | None = None
  parsed_words: list[_Word] = []
  multiwords: list[str] = []
  covered = 0
  for number, line in lines:
    if line.startswith('#'):
      name = dict(parser.parse_comment_line(line)).get('sent_id', name)
      continue
    token = _token(line, path, number)
    match token['id']:
      case (first, '-', last):
        _check_range(first, last, len(parsed_words), covered, path, number)
        covered = last
        multiwords.append(f'{first}-{last} {token["form"]}')
      case (before, '.', _):
        _check_empty_node(
          token['id'], before == len(parsed_words), path, number
        )
      case place:
        _check_place(place, len(parsed_words) + 1, path, number)
        parsed_words.append(_word(token, number))
  if parsed_words:
    yield _Sentence(lines[-1][0], name, parsed_words, multiwords)


def _word(token: conllu.Token, number: int) -> _Word:
  columns = (token[name] for name in _WORD_COLUMNS)
  return _Word(number, *columns)


def _token(line: str, path, number: int) -> conllu.Token:
  _check_columns(line, path, number)
  try:
    # To the package, two spaces within a column part columns, as a tab does.
    return parser.parse_line(
      re.sub(' {2,}', ' ', line), parser.DEFAULT_FIELDS, _PARSERS
    )
  except conllu.exceptions.ParseException as error:
    raise file_reading.malformed_line_error(
      _KIND, path, number, str(error)
    ) from error


def _check_columns(line: str, path, number: int) -> None:
  columns = line.split('\t')
  if len(columns) != _COLUMNS:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'{len(columns)} columns: {file_reading.shorten_quoted(line)}',
      expected=f'{_COLUMNS} columns separated by tabs, a comment after #, '
      'or an empty line between sentences',
    )
  empty = [i for i, text in enumerate(columns, start=1) if not text.strip()]
  if empty:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'column {empty[0]} is empty',
      expected='text, or _ for what is not told',
    )


def _check_place(place: int | None, expected: int, path, number: int) -> None:
  if place != expected:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'the word number {place}',
      expected=f'{expected}: words are numbered from 1 in each sentence, and '
      'an empty line separates sentences',
    )


def _check_range(
  first: int, last: int, before: int, covered: int, path, number: int
) -> None:
  if first != before + 1 or first <= covered:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'the multiword token {first}-{last}',
      expected=f'{before + 1}-… before word {before + 1}, not overlapping '
      'another',
    )


def _check_empty_node(node, follows: bool, path, number: int) -> None:
  if not follows:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      number,
      f'the empty node {node[0]}.{node[2]}',
      expected=f'it after word {node[0]}',
    )


def _heads(sentence: _Sentence, path) -> tuple[int, ...] | None:
  """The head of each word; None where the file gives no tree.

  Raises:
    CorpusError: the heads are no tree with one root.
  """
  sentence_words = sentence.words
  if all(word.head is None for word in sentence_words):
    return None
  heads = [
    _head(word, index, len(sentence_words), path)
    for index, word in enumerate(sentence_words, start=1)
  ]
  if heads.count(0) != 1:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      sentence.number,
      f'{heads.count(0)} roots in a sentence',
      expected='one word with head 0',
    )
  cycle = _cycle(heads)
  if cycle:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      sentence_words[cycle[0] - 1].number,
      'the heads form a cycle: ' + ' → '.join(map(str, cycle)),
      expected='a tree',
    )
  return tuple(heads)


def _head(word: _Word, place: int, size: int, path) -> int:
  if word.head is None or not 0 <= word.head <= size or word.head == place:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      word.number,
      f'the head {"_" if word.head is None else word.head} of word {place}',
      expected=f'0 for the root, or another word of the {size}',
    )
  return word.head


def _cycle(heads: Sequence[int]) -> list[int]:
  """Words on a cycle, the first again at the end; [] for a tree."""
  safe = {0}
  for start in range(1, len(heads) + 1):
    path: list[int] = []
    node = start
    while node not in safe:
      if node in path:
        return [*path[path.index(node) :], node]
      path.append(node)
      node = heads[node - 1]
    safe.update(path)
  return []


def _relation(word: _Word, subtypes: Subtypes) -> str:
  if subtypes is Subtypes.DROPPED:
    return word.relation.partition(':')[0]
  return word.relation
