"""Dependency trees and parts of speech from CoNLL-U files.

The words are the syntactic ones, as in the CoNLL 2018 shared task on gold
segmentation: multiword tokens (`1-2`) and empty nodes (`3.1`) are passed over.

Zeman et al. 2018, "CoNLL 2018 Shared Task"; universaldependencies.org/format.
"""

import enum
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlflax import enums
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.readers import files

_COLUMNS = 10
_KIND = 'CoNLL-U'


class Subtypes(enum.Enum):
  """Language-specific parts of relations: `acl:relcl` is kept, or `acl`."""

  KEPT = 'kept'
  DROPPED = 'dropped'


class _Word(NamedTuple):
  number: int  # of its line
  form: str
  tag: str
  head: str
  relation: str


class _Sentence(NamedTuple):
  number: int  # of its last line
  id: str | None
  words: list[_Word]


def read_trees(
  path: str | os.PathLike,
  language: str,
  *,
  subtypes: Subtypes | str = Subtypes.KEPT,
) -> files.Reading:
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
  subtypes = enums.of_value(subtypes, Subtypes, where='subtypes')
  examples: list[examples_lib.Example] = []
  for sentence in _sentences(path):
    heads = _heads(sentence, path)
    relations = tuple(_relation(word, subtypes) for word in sentence.words)
    examples.append(
      examples_lib.ParsedSentence(
        id=sentence.id or str(len(examples)),
        language=language,
        words=tuple(word.form for word in sentence.words),
        tags=tuple(word.tag for word in sentence.words),
        heads=heads,
        relations=relations if heads else None,
      )
    )
  files.check_any(examples, path)
  return files.Reading(examples)


def read_tags(path: str | os.PathLike, language: str) -> files.Reading:
  """Reads sentences with their universal parts of speech; no tree is needed.

  Sentences whose tags are all `_` have none.

  Raises:
    CorpusError: see `read_trees`; a word without a tag among others with one.
  """
  examples: list[examples_lib.Example] = []
  for sentence in _sentences(path):
    tags = tuple(word.tag for word in sentence.words)
    if '_' in tags and set(tags) != {'_'}:
      word = sentence.words[tags.index('_')]
      raise files.malformed(
        _KIND,
        path,
        word.number,
        f'no part of speech of {word.form!r}',
        expected='all words of a sentence have one, or none',
      )
    examples.append(
      examples_lib.TaggedSentence(
        id=sentence.id or str(len(examples)),
        language=language,
        words=tuple(word.form for word in sentence.words),
        tags=None if '_' in tags else tags,
      )
    )
  files.check_any(examples, path)
  return files.Reading(examples)


def _sentences(path) -> Iterator[_Sentence]:
  name: str | None = None
  words: list[_Word] = []
  number = last = covered = 0
  for number, line in files.read_lines(path):
    if not line.strip():
      if words:
        yield _Sentence(last, name, words)
      name, words, covered = None, [], 0
    elif line.startswith('#'):
      match = re.fullmatch(r'#\s*sent_id\s*=\s*(.*\S)\s*', line)
      name = match[1] if match else name
    else:
      last = number
      fields = _fields(line, path, number)
      if '-' in fields[0]:
        covered = _check_range(fields[0], len(words), covered, path, number)
      elif '.' in fields[0]:
        _check_empty_node(fields[0], len(words), path, number)
      else:
        words.append(_word(fields, len(words), path, number))
  if words:
    yield _Sentence(last, name, words)


def _fields(line: str, path, number: int) -> list[str]:
  fields = line.split('\t')
  if len(fields) != _COLUMNS:
    raise files.malformed(
      _KIND,
      path,
      number,
      f'{len(fields)} columns: {files.shorten(line)}',
      expected=f'{_COLUMNS} columns separated by tabs, a comment after #, '
      'or an empty line between sentences',
    )
  empty = [i for i, field in enumerate(fields, start=1) if not field.strip()]
  if empty:
    raise files.malformed(
      _KIND,
      path,
      number,
      f'column {empty[0]} is empty',
      expected='text, or _ for what is not told',
    )
  return fields


def _word(fields: list[str], before: int, path, number: int) -> _Word:
  if fields[0] != str(before + 1):
    raise files.malformed(
      _KIND,
      path,
      number,
      f'the word number {fields[0]!r}',
      expected=f'{before + 1}: words are numbered from 1 in each sentence, '
      'and an empty line parts sentences',
    )
  return _Word(number, fields[1], fields[3], fields[6], fields[7])


def _check_range(
  text: str, before: int, covered: int, path, number: int
) -> int:
  """The last word that the multiword token covers."""
  match = re.fullmatch(r'(\d+)-(\d+)', text)
  if (
    not match
    or int(match[1]) != before + 1
    or not (covered < int(match[1]) <= int(match[2]))
  ):
    raise files.malformed(
      _KIND,
      path,
      number,
      f'the multiword token {text!r}',
      expected=f'{before + 1}-… before word {before + 1}, not overlapping '
      'another',
    )
  return int(match[2])


def _check_empty_node(text: str, before: int, path, number: int) -> None:
  if not re.fullmatch(rf'{before}\.[1-9]\d*', text):
    raise files.malformed(
      _KIND,
      path,
      number,
      f'the empty node {text!r}',
      expected=f'{before}.1 and so on after word {before}',
    )


def _heads(sentence: _Sentence, path) -> tuple[int, ...] | None:
  words = sentence.words
  if all(word.head == '_' for word in words):
    return None
  heads = []
  for place, word in enumerate(words, start=1):
    if (
      not re.fullmatch(r'\d+', word.head)
      or not (0 <= int(word.head) <= len(words))
      or int(word.head) == place
    ):
      raise files.malformed(
        _KIND,
        path,
        word.number,
        f'the head {word.head!r} of word {place}',
        expected=f'0 for the root, or another word of the {len(words)}',
      )
    heads.append(int(word.head))
  roots = [place for place, head in enumerate(heads, start=1) if head == 0]
  if len(roots) != 1:
    raise files.malformed(
      _KIND,
      path,
      sentence.number,
      f'{len(roots)} roots in a sentence',
      expected='one word with head 0',
    )
  cycle = _cycle(heads)
  if cycle:
    raise files.malformed(
      _KIND,
      path,
      words[cycle[0] - 1].number,
      'the heads form a cycle: ' + ' → '.join(map(str, cycle)),
      expected='a tree',
    )
  return tuple(heads)


def _cycle(heads: Sequence[int]) -> list[int]:
  """Words on a cycle, the first again at the end; [] for a tree."""
  safe = {0}
  for start in range(1, len(heads) + 1):
    path: list[int] = []
    place = start
    while place not in safe:
      if place in path:
        return [*path[path.index(place) :], place]
      path.append(place)
      place = heads[place - 1]
    safe.update(path)
  return []


def _relation(word: _Word, subtypes: Subtypes) -> str:
  if subtypes is Subtypes.DROPPED:
    return word.relation.partition(':')[0]
  return word.relation
