"""Text of one language each, read line by line: memory does not grow with it."""

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
  """What a text is told by.

  Attributes:
    name: 16 hexadecimal digits of its hash.
    size: how many lines it has.
  """

  name: str
  size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(text_sources.TextSource):
  """Base of sources that need not hold a text."""

  def lines(self, language: str) -> Iterator[str]:
    """Yields the lines of a language, anew with each call."""
    raise NotImplementedError

  def load(self, language: str) -> list[str]:
    """All lines of a language."""
    return list(self.lines(language))

  def fingerprint(self) -> str:
    """Hash of languages and text; text that cannot be read counts as none."""
    found: list[object] = []
    for language in self.languages_found():
      try:
        found.append([language, digest(self.lines(language)).name])
      except errors.XlflaxError as error:
        found.append([language, str(error)])
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles(Lines):
  """Files of one sentence a line.

  Attributes:
    files: language -> file; .gz and .zst are read, too.
    max_lines: the first so many of a language; None: all.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'en': 'en.txt'}"
    ),
  ]
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the languages of the source."""
    return tuple(self.files)

  def lines(self, language: str) -> Iterator[str]:
    """Yields the lines of a language that are not blank.

    Raises:
      CorpusError: there is no file of it, or no text in it.
    """
    if language not in self.files:
      raise errors.CorpusError(
        'There is no text of a language',
        got=language,
        expected='some of ' + ', '.join(self.files),
        fix=name_suggestions.suggest_language(language, self.files),
      )
    lines = (
      text
      for _, text in file_reading.read_lines(self.files[language])
      if text.strip()
    )
    empty = True
    for text in itertools.islice(lines, self.max_lines):
      empty = False
      yield text
    if empty:
      raise errors.CorpusError(
        'A file of text is empty', where=self.files[language]
      )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusLines(Lines):
  """The monolingual text of a corpus directory.

  Attributes:
    directory: the corpus directory.
    split: 'train', 'validation' or 'test'.
    max_lines: the first so many lines of a language; None: all.
  """

  directory: str
  split: str = 'train'
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the languages of the source."""
    found = corpus_directory.Corpus(self.directory).monolingual_languages(
      self.split
    )
    return text_sources.chosen_languages(
      found, None, f'the {self.split} split of {self.directory}'
    )

  def lines(self, language: str) -> Iterator[str]:
    """Yields the lines of a language."""
    lines = corpus_directory.Corpus(self.directory).monolingual(
      language, self.split
    )
    return (line.text for line in itertools.islice(lines, self.max_lines))


def lines_of(source: text_sources.TextSource, language: str) -> Iterable[str]:
  """The lines of a language, held only by sources that know no other way."""
  return (
    source.lines(language)
    if isinstance(source, Lines)
    else source.load(language)
  )


def digest(lines: Iterable[str]) -> Digest:
  """The hash of a text: that of the JSON list of its lines."""
  found, size = hashlib.sha256(b'['), 0
  for size, line in enumerate(lines, 1):
    found.update(((', ' if size > 1 else '') + json.dumps(line)).encode())
  found.update(b']')
  return Digest(found.hexdigest()[:16], size)
