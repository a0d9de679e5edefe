"""Bilingual dictionaries: file formats and lookup of translations.

A dictionary can be used in both directions. These file formats are supported:

- `tsv`: `word<TAB>translation[<TAB>weight]`, as in a corpus directory
- `muse`: `word translation`, separated by white space, as in the dictionaries
  of MUSE (Conneau et al., 2018)

In both formats, a word can have several translations, on separate lines.
"""

import dataclasses
import enum
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from xlflax.data.corpus import bad_records, line_reader
from xlflax.storage import bucket_staging
from xlflax.utils import errors, validation


class Format(enum.Enum):
  """Format of a dictionary file, as described in the module's docstring."""

  TSV = 'tsv'
  MUSE = 'muse'


class Entry(NamedTuple):
  """Dictionary entry: a word and one of its translations.

  Attributes:
    word: Word in the first language.
    translation: Translation in the second language.
    weight: Weight of the translation, relative to the word's other
      translations.
  """

  word: str
  translation: str
  weight: float


class Translation(NamedTuple):
  """Translation of a word into one language.

  Attributes:
    text: Translated text.
    language: Language code of the text.
    probability: Probability of drawing this translation when its word is
      replaced.
  """

  text: str
  language: str
  probability: float


@dataclasses.dataclass(frozen=True)
class Dictionary:
  """Bilingual dictionary: its two languages and its entries.

  Attributes:
    languages: Languages of the words and of their translations.
    entries: Dictionary entries, in the order in which the file contains them.
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
    on_bad_record: bad_records.OnBadRecord | None = None,
  ) -> 'Dictionary':
    """Reads a dictionary file, which may be compressed (.gz, .zst).

    Args:
      path: Path of the file.
      languages: Language codes of the two columns. If None, they are taken from
        the file name `<l1>-<l2>[.…]`.
      format: Format of the dictionary file.
      on_bad_record: Function that is called with the error of each malformed
        line. If None, the error is raised.

    Raises:
      CorpusError: If a line is malformed, if the file has no entries, or if the
        file name does not specify the languages.
      ConfigError: If the format is unknown.
    """
    path = bucket_staging.stage_input(path)
    if languages is None:
      languages = _parse_languages(path)
    format = validation.validate(format, Format, name='Dictionary.read: format')
    read_entries = (
      line_reader.read_dictionary if format is Format.TSV else _read_muse
    )
    entries = tuple(
      Entry(word, translation, 1.0 if weight is None else weight)
      for word, translation, weight in read_entries(path, on_bad_record)
    )
    if len(languages) != 2 or languages[0] == languages[1]:
      raise errors.CorpusError(
        'A bilingual dictionary must have two different languages',
        got=', '.join(languages),
        where=str(path),
      )
    return cls((languages[0], languages[1]), entries)

  def from_language(self, language: str) -> Iterator[tuple[str, str, Entry]]:
    """Yields (word, translation, entry), where the word is in `language`.

    The entries are in the order of the file. If the dictionary does not contain
    `language`, nothing is yielded.
    """
    if language == self.languages[0]:
      for entry in self.entries:
        yield entry.word, entry.translation, entry
    elif language == self.languages[1]:
      for entry in self.entries:
        yield entry.translation, entry.word, entry

  def target_language(self, language: str) -> str | None:
    """Returns the language into which the dictionary translates `language`.

    If the dictionary does not contain `language`, the result is None.
    """
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
  """Returns all words in a language and their translations.

  The probability of a translation assumes that one of the languages into which
  the word can be translated is drawn uniformly, and that a translation into
  this language is then drawn in proportion to the weights. A translation that
  occurs several times is counted once, with its largest weight.

  For example, if the en-de dictionary has `cat Katze 3` and `cat Kater 1`, and
  the en-fr dictionary has `cat chat`, the probabilities for `cat` are Katze
  3/8, Kater 1/8 and chat 1/2.

  Args:
    language: Language code of the words.
    dictionaries: Dictionaries that contain the language, in either direction.
      All other dictionaries are ignored.
    into: Languages into which words are translated. If None, all languages are
      used.

  Returns:
    The translations of each word, whose probabilities sum to 1.
  """
  # Word -> target language -> translation -> weight.
  weights_by_word: dict[str, dict[str, dict[str, float]]] = {}
  for dictionary in dictionaries:
    target = dictionary.target_language(language)
    if target is None or (into is not None and target not in into):
      continue
    for word, translation, entry in dictionary.from_language(language):
      weights_by_target = weights_by_word.setdefault(word, {})
      weights = weights_by_target.setdefault(target, {})
      weights[translation] = max(entry.weight, weights.get(translation, 0.0))
  return {
    word: tuple(_normalize_weights(weights_by_target))
    for word, weights_by_target in sorted(weights_by_word.items())
  }


def _normalize_weights(
  weights_by_target: dict[str, dict[str, float]],
) -> Iterator[Translation]:
  """Yields the translations of a word with their probabilities.

  Args:
    weights_by_target: Weight of each translation, by target language and
      translation.
  """
  for target, weights in sorted(weights_by_target.items()):
    total = sum(weights.values()) * len(weights_by_target)
    for text, weight in sorted(weights.items()):
      yield Translation(text, target, weight / total)


def _parse_languages(path: pathlib.Path) -> list[str]:
  """Returns the languages in the name of a dictionary file."""
  languages = path.name.partition('.')[0].split('-')
  if len(languages) != 2:
    raise errors.CorpusError(
      'The name of a dictionary file must specify its two languages in the '
      'format <l1>-<l2>.<anything>',
      got=path.name,
      where=str(path),
      fix='Rename the file, or pass the argument `languages`.',
    )
  return languages


def _read_muse(
  path: pathlib.Path, on_bad_record: bad_records.OnBadRecord | None
) -> Iterator[tuple[str, str, None]]:
  """Yields (word, translation, None) for each line of a MUSE dictionary."""
  num_entries = 0
  parse = bad_records.skip_bad_records(_parse_muse_entry, on_bad_record)
  for number, line in line_reader.read_lines(path):
    entry = parse(line, path, number)
    if entry is not None:
      yield entry
      num_entries += 1
  if not num_entries:
    raise errors.CorpusError(
      'The dictionary file contains no entries',
      where=str(path),
      fix='Add entries to the file, or delete it.',
    )


def _parse_muse_entry(
  line: bytes, path: pathlib.Path, number: int
) -> tuple[str, str, None]:
  text = line_reader.decode_line(line, path, number)
  fields = line_reader.split_tokens(text)
  if len(fields) != 2:
    raise errors.BadRecordError(
      'Each line of a MUSE dictionary must consist of a word, white space and '
      'the translation of the word',
      got=repr(' '.join(fields)[:60]),
      where=errors.line_location(path, number),
      fix='Correct or delete the line.',
    )
  return fields[0], fields[1], None
