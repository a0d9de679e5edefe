"""Bilingual dictionaries, and the translations out of one language.

A dictionary serves both directions. Files:

- `tsv`: `word<TAB>translation[<TAB>weight]`, those of a corpus directory
- `muse`: `word translation`, separated by white space, as the dictionaries
  of MUSE (Conneau et al., 2018)

Both may hold several translations of a word, one in a line.
"""

import dataclasses
import enum
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.storage import bucket_staging
from xlflax.utils import errors, validation


class Format(enum.Enum):
  """How the lines of a dictionary are laid out; see the module."""

  TSV = 'tsv'
  MUSE = 'muse'


class Entry(NamedTuple):
  """A word, one of its translations and how good that is."""

  word: str
  translation: str
  weight: float


class Translation(NamedTuple):
  """A translation into a language.

  Attributes:
    text: the translation.
    language: of the text.
    probability: that it is drawn for its word.
  """

  text: str
  language: str
  probability: float


@dataclasses.dataclass(frozen=True)
class Dictionary:
  """The entries of a dictionary of two languages.

  Attributes:
    languages: of the words and of their translations.
    entries: in the order of the file.
  """

  OPENED_BY: ClassVar[str] = 'Dictionary.read({})'

  languages: tuple[str, str]
  entries: tuple[Entry, ...]

  @classmethod
  @validation.validate_call
  def read(
    cls,
    path: validation.FilePath,
    *,
    languages: Sequence[str] | None = None,
    format: Format | str = Format.TSV,
  ) -> 'Dictionary':
    """Reads a dictionary file; it may be compressed (.gz, .zst).

    Args:
      path: of the file.
      languages: of the two columns; None: from the name, `<l1>-<l2>[.…]`.
      format: of the lines.

    Raises:
      CorpusError: a malformed line (file:line), no entry, or languages that
        the name does not tell.
      ConfigError: no such format.
    """
    path = bucket_staging.stage_input(path)
    if languages is None:
      languages = _languages_of_name(path)
    kind = validation.validate(format, Format, name='Dictionary.read: format')
    read = corpus_lines.read_dictionary if kind is Format.TSV else _read_muse
    entries = tuple(
      Entry(word, translation, 1.0 if weight is None else weight)
      for word, translation, weight in read(path)
    )
    if len(languages) != 2 or languages[0] == languages[1]:
      raise errors.CorpusError(
        'A dictionary is of two different languages',
        got=', '.join(languages),
        where=str(path),
      )
    return cls((languages[0], languages[1]), entries)

  def from_language(self, language: str) -> Iterator[tuple[str, str, Entry]]:
    """Yields (word of `language`, translation, entry) in file order.

    Nothing, if the dictionary is of other languages.
    """
    if language == self.languages[0]:
      for entry in self.entries:
        yield entry.word, entry.translation, entry
    elif language == self.languages[1]:
      for entry in self.entries:
        yield entry.translation, entry.word, entry

  def other(self, language: str) -> str | None:
    """The language that `language` is translated into; None: it's absent."""
    if language not in self.languages:
      return None
    return self.languages[self.languages.index(language) == 0]


@validation.validate_call
def translations_by_word(
  language: str,
  dictionaries: Iterable[Dictionary],
  *,
  into: Sequence[str] | None = None,
) -> dict[str, tuple[Translation, ...]]:
  """Every word of a language with its translations, as they are drawn.

  One of the languages that have the word is drawn, each alike, then one of
  the translations into it in proportion to their weights. A translation that
  occurs several times counts once, with its largest weight.

  With en-de `cat Katze 3`, `cat Kater 1` and en-fr `cat chat`, the
  probabilities of `cat` are Katze 3/8, Kater 1/8 and chat 1/2.

  Args:
    language: of the words.
    dictionaries: any number, in either direction; others are passed over.
    into: languages to translate into; None: all.

  Returns:
    Words as they are spelt; their translations' probabilities add up to 1.
  """
  pools: dict[str, dict[str, dict[str, float]]] = {}
  for dictionary in dictionaries:
    target = dictionary.other(language)
    if target is None or (into is not None and target not in into):
      continue
    for word, translation, entry in dictionary.from_language(language):
      pool = pools.setdefault(word, {}).setdefault(target, {})
      pool[translation] = max(entry.weight, pool.get(translation, 0.0))
  return {
    word: tuple(_shares(by_target)) for word, by_target in sorted(pools.items())
  }


def _shares(by_target: dict[str, dict[str, float]]) -> Iterator[Translation]:
  for target, pool in sorted(by_target.items()):
    total = sum(pool.values()) * len(by_target)
    for text, weight in sorted(pool.items()):
      yield Translation(text, target, weight / total)


def _languages_of_name(path: pathlib.Path) -> list[str]:
  languages = path.name.partition('.')[0].split('-')
  if len(languages) != 2:
    raise errors.CorpusError(
      'The name of a dictionary does not tell its languages',
      got=path.name,
      expected='<l1>-<l2>.<anything>',
      where=str(path),
      fix='rename the file, or give the languages',
    )
  return languages


def _read_muse(path: pathlib.Path) -> Iterator[tuple[str, str, None]]:
  count = 0
  for number, line in corpus_lines.read_lines(path):
    fields = corpus_lines.decode_line(line, path, number).split()
    if len(fields) != 2:
      raise errors.CorpusError(
        'Malformed line in a dictionary',
        got=repr(' '.join(fields)[:60]),
        expected='a word, white space and its translation',
        where=f'{path}:{number}',
        fix='correct or delete the line',
      )
    yield fields[0], fields[1], None
    count += 1
  if not count:
    raise errors.CorpusError(
      'A dictionary without entries',
      where=str(path),
      fix='fill or delete the file',
    )
