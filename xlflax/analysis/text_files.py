"""Sources of monolingual text that are read line by line in constant memory."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

import pydantic

from xlflax.data.corpus import corpus_directory
from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import text_sources
from xlflax.utils import errors, name_suggestions, validation


class Digest(NamedTuple):
  """Identifier of a text, which serves as the key of stored results.

  Attributes:
    name: First 16 hexadecimal digits of the hash of the text.
    size: Number of lines in the text.
  """

  name: str
  size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(text_sources.TextSource):
  """Base class for sources that yield text line by line."""

  def lines(self, language: str) -> Iterator[str]:
    """Returns a new iterator over the lines of text in a language."""
    raise NotImplementedError

  def load(self, language: str) -> list[str]:
    """Reads all lines of the text in a language."""
    return list(self.lines(language))

  def fingerprint(self) -> str:
    """Returns a hash that identifies the languages and their text.

    A text that cannot be read contributes only its language, so that the other
    languages can be evaluated.
    """
    identities: list[object] = []
    for language in self.languages_found():
      try:
        identities.append([language, digest(self.lines(language)).name])
      except errors.XlflaxError:
        identities.append([language, None])
    return hashlib.sha256(json.dumps(identities).encode()).hexdigest()[:16]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles(Lines):
  """Source of text from files with one sentence per line.

  Attributes:
    files: Map from language to text file. Files that end in .gz or .zst are
      decompressed.
    max_lines: Maximum number of lines per language, from the beginning. If
      None, all lines are used.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'en': 'en.txt'}"
    ),
  ]
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the language codes of the source."""
    return tuple(self.files)

  def lines(self, language: str) -> Iterator[str]:
    """Yields a language's nonblank lines one at a time.

    Raises:
      CorpusError: If there is no file for the language, or if the file does not
        contain text.
    """
    if language not in self.files:
      raise errors.CorpusError(
        'No text file is specified for the requested language',
        got=language,
        expected='one of ' + ', '.join(self.files),
        fix=name_suggestions.suggest_language(language, self.files),
      )
    lines = (
      text
      for _, text in file_reading.read_lines(self.files[language])
      if text.strip()
    )
    is_empty = True
    for text in itertools.islice(lines, self.max_lines):
      is_empty = False
      yield text
    if is_empty:
      raise errors.CorpusError(
        'The text file does not contain any text', where=self.files[language]
      )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusLines(Lines):
  """Source of monolingual text from a corpus directory.

  Attributes:
    directory: Path to the corpus directory.
    split: Data split: 'train', 'validation' or 'test'.
    max_lines: Maximum number of lines per language, from the beginning. If
      None, all lines are used.
  """

  directory: str
  split: str = 'train'
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the language codes of the source."""
    corpus = corpus_directory.Corpus(self.directory)
    return text_sources.chosen_languages(
      corpus.monolingual_languages(self.split),
      None,
      f'the {self.split} split of {self.directory}',
    )

  def lines(self, language: str) -> Iterator[str]:
    """Yields a language's lines one at a time."""
    lines = corpus_directory.Corpus(self.directory).monolingual(
      language, self.split
    )
    return (line.text for line in itertools.islice(lines, self.max_lines))


def lines_of(source: text_sources.TextSource, language: str) -> Iterable[str]:
  """Returns the lines of text in a language.

  The complete text is loaded only if the source cannot yield individual lines.
  """
  return (
    source.lines(language)
    if isinstance(source, Lines)
    else source.load(language)
  )


def digest(lines: Iterable[str]) -> Digest:
  """Computes the identifier of a text from its lines.

  The hash is that of the text's lines as a JSON list.
  """
  text_hash = hashlib.sha256(b'[')
  size = 0
  for size, line in enumerate(lines, 1):
    separator = ', ' if size > 1 else ''
    text_hash.update((separator + json.dumps(line)).encode())
  text_hash.update(b']')
  return Digest(text_hash.hexdigest()[:16], size)
