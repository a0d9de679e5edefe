"""Where labelled examples come from.

A part of a source is a language, 'fr', or two, 'es-en': context and question,
source and target, or the two collections that are mined.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pydantic

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.file_formats import Paths
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.data.supervised.readers.file_reading import Reading
from xlflax.storage import content_hash
from xlflax.utils import class_registry, errors, name_suggestions, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSource:
  """Base of sources of labelled examples."""

  def languages(self) -> tuple[str, ...]:
    """The parts there are, such as 'fr', or 'es-en' for two languages."""
    raise NotImplementedError

  def load(self, part: str) -> list[labeled_examples.Example]:
    """All examples of a part."""
    raise NotImplementedError

  def problems(self, part: str) -> tuple[str, ...]:
    """What is wrong with single examples that were read all the same."""
    del part
    return ()

  def fingerprint(self) -> str:
    """Hash of parts and examples; what cannot be read counts as its error."""
    return fingerprint_of(self.languages(), self.load)


@class_registry.register('file_examples')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FileExamples(ExampleSource):
  """Examples in files of a public format.

  Attributes:
    format: of the files, such as 'conllu'; `file_formats.format_names()` has them.
    files: part to its file, or to several that are joined; for word alignments
      to the (text, links) or (source, target, links) that belong together.
    options: arguments of the format's reader (`xlflax.data.supervised.readers`),
      such as columns and labels.
    language_options: Options of single parts, which replace `options` there:
      files of different languages may have different columns.
    max_examples: the first so many of a part; None: all.
  """

  format: str
  files: Annotated[
    Mapping[str, Paths],
    pydantic.Field(
      description="a mapping of parts to files, such as {'en': 'test-en.tsv'}"
    ),
  ] = class_registry.known_by_content(content_hash.hash_paths)
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  language_options: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  max_examples: validation.PositiveInt | None = None

  def __post_init__(self):
    file_formats.find_of_examples(self.format)
    for options in (self.options, *self.language_options.values()):
      file_formats.check_options(self.format, options)
    if self.files and (unknown := set(self.language_options) - set(self.files)):
      raise errors.ConfigError(
        'A language with options has no file',
        got=', '.join(sorted(unknown)),
        expected='some of ' + ', '.join(self.files),
        where='FileExamples.language_options',
      )
    if not self.files:
      raise errors.ConfigError(
        'A source of examples has no files',
        where='FileExamples.files',
        expected="such as {'en': 'test-en.tsv'}",
      )

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def load(self, part: str) -> list[labeled_examples.Example]:
    return choice_examples.take_first_questions(
      self._read(part).examples, self.max_examples
    )

  def problems(self, part: str) -> tuple[str, ...]:
    return self._read(part).problems

  def _read(self, part: str) -> Reading:
    return file_formats.read_files(
      self.format,
      _of_part(self.files, part),
      part,
      **self.language_options.get(part, self.options),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedSource:
  """Base of sources of collections in which translations are to be found."""

  def languages(self) -> tuple[str, ...]:
    """The parts there are, such as 'fr-en'."""
    raise NotImplementedError

  def load(self, part: str) -> labeled_examples.MinedSentences:
    """The two collections of a part."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Hash of parts and sentences; what cannot be read counts as its error."""
    return fingerprint_of(self.languages(), self.load)


@class_registry.register('mined_files')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MinedFiles(MinedSource):
  """Collections in files.

  Attributes:
    files: part, such as 'fr-en', to (first, second) or, with the pairs that
      are translations, (first, second, gold).
    format: of the files: 'bucc', `id<TAB>sentence` and pairs of ids, or
      'lines', one sentence a line; gold then has a line of the first file for
      each of the second, from 0.
  """

  files: Annotated[
    Mapping[str, tuple[str, ...]],
    pydantic.Field(
      description="a mapping of pairs to files, such as {'fr-en': ('fr.txt', 'en.txt')}"
    ),
  ] = class_registry.known_by_content(content_hash.hash_paths)
  format: str = 'bucc'

  def __post_init__(self):
    file_formats.find_reader(self.format, file_formats.Takes.COLLECTIONS)

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def load(self, part: str) -> labeled_examples.MinedSentences:
    paths = _of_part(self.files, part)
    read = file_formats.find_reader(
      self.format, file_formats.Takes.COLLECTIONS
    ).read
    languages = file_formats.two_languages(part)
    if isinstance(paths, str) or len(paths) not in (2, 3):
      raise errors.ConfigError(
        'The files of two collections are wrong',
        got=repr(paths),
        where=f'part {part}',
        expected='(first, second) or (first, second, gold)',
      )
    return read(*paths, languages=languages)


def _of_part(files_: Mapping[str, Any], part: str) -> Any:
  if part not in files_:
    raise errors.CorpusError(
      'A source has no file of a language',
      got=part,
      expected='one of ' + ', '.join(files_),
      fix=name_suggestions.suggest_language(part, files_),
    )
  return files_[part]


def fingerprint_of(parts: tuple[str, ...], load: Callable[[str], Any]) -> str:
  """Hash of parts and what they hold; an error counts as its text."""
  digest = hashlib.sha256()
  for part in parts:
    try:
      held = _stable(load(part))
    except errors.XlflaxError as error:
      held = str(error)
    digest.update(repr((part, held)).encode('utf-8', 'surrogatepass'))
  return digest.hexdigest()[:16]


def _stable(value: Any) -> Any:
  """The same value without sets, whose order is another in each process."""
  if isinstance(value, list):
    return [_stable(item) for item in value]
  if dataclasses.is_dataclass(value):
    return [
      (f.name, _stable(getattr(value, f.name)))
      for f in dataclasses.fields(value)
    ]
  return sorted(value) if isinstance(value, frozenset) else value
