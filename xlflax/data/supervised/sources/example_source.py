"""Base classes for sources of labeled examples, and sources that read files.

A source is divided into language splits (also called parts). A language split
is named after a language, such as 'fr', or after two languages, such as
'es-en': those of context and question, source and target, or two collections
for bitext mining.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, ClassVar

import pydantic

from xlflax.data.corpus import language_codes
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.file_formats import Paths
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.data.supervised.readers import classification_reader, file_reading
from xlflax.data.supervised.readers.file_reading import Reading
from xlflax.storage import content_hash, paths
from xlflax.utils import class_registry, errors, name_suggestions, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSource:
  """Base class for sources of labeled examples."""

  OPENED_BY: ClassVar[str] = (
    "xlflax.data.FileDataset(format=FORMAT, files={{'LANGUAGE': {}}})"
  )

  def languages(self) -> tuple[str, ...]:
    """Returns the names of the language splits, such as 'fr' or 'es-en'."""
    raise NotImplementedError

  def load(self, part: str) -> list[labeled_examples.Example]:
    """Returns all examples of a language split."""
    raise NotImplementedError

  def missing_languages(self) -> tuple[str, ...]:
    """Returns the names of the language splits that have no data.

    Means over languages are marked as incomplete if a language is missing.
    """
    return ()

  def problems(self, part: str) -> tuple[str, ...]:
    """Returns messages about problems with individual examples in a split."""
    del part
    return ()

  def describe(self, part: str) -> str:
    """Returns the files or tasks from which a language split is read.

    By default, the name of the class is returned.
    """
    del part
    return type(self).__name__

  def describe_label_location(self) -> str:
    """Returns a hint on which column contains the labels, or an empty text."""
    return ''

  def find_line(self, part: str, values: Collection[str]) -> str | None:
    """Returns the location of the first line that contains all given values.

    Args:
      part: Name of the language split.
      values: Values to search for. Each value must equal a complete column of
        the line.

    Returns:
      The location of the first such line, such as 'en.conllu:3'. None if the
      source does not read files or if no line contains the values.
    """
    del part, values
    return None

  def fingerprint(self) -> str:
    """Returns a hash of the names and examples of all language splits."""
    return fingerprint_of(self.languages(), self.load)


@class_registry.register('file_dataset')
@dataclasses.dataclass(frozen=True, kw_only=True)
class FileDataset(ExampleSource):
  """Source that reads labeled examples from files in a public format.

  Attributes:
    format: Name of the file format, such as 'conllu'.
      `file_formats.format_names()` lists all formats.
    files: Path or paths for each language split. The examples of several files
      are concatenated. For word alignments, the paths are (text, links) or
      (source, target, links).
    options: Options that are passed to the format's reader
      (`xlflax.data.supervised.readers`), such as columns and labels.
    language_options: Options for individual language splits, which replace all
      `options` for these splits. For example, the files for different languages
      may have different columns.
    max_examples: Maximum number of examples to read from each language split.
      If None, all examples are read.
    missing: Names of the data set's language splits that have no files, such as
      the languages of a benchmark that were not downloaded.
  """

  format: str
  files: Annotated[
    Mapping[str, Paths],
    pydantic.Field(
      description="a mapping of parts to files, such as {'en': 'test-en.tsv'}"
    ),
  ] = class_registry.path_field(content_hash.hash_paths)
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  language_options: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  max_examples: validation.PositiveInt | None = None
  missing: tuple[str, ...] = class_registry.changeable_field(default=())

  def __post_init__(self):
    file_formats.find_of_examples(self.format)
    for options in (self.options, *self.language_options.values()):
      file_formats.check_options(self.format, options)
    if self.files and (unknown := set(self.language_options) - set(self.files)):
      raise errors.ConfigError(
        'The keys of `language_options` must also be keys of `files`',
        got=', '.join(sorted(unknown)),
        expected='some of ' + ', '.join(self.files),
        where=errors.field_location(self, 'language_options'),
      )
    if not self.files:
      raise errors.ConfigError(
        '`files` must not be empty. It must map languages to files, such as '
        "{'en': 'test-en.tsv'}",
        where=errors.field_location(self, 'files'),
      )

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def missing_languages(self) -> tuple[str, ...]:
    return self.missing

  def load(self, part: str) -> list[labeled_examples.Example]:
    return choice_examples.take_first_questions(
      self._read(part).examples, self.max_examples
    )

  def problems(self, part: str) -> tuple[str, ...]:
    return self._read(part).problems

  def describe(self, part: str) -> str:
    part_files = _get_files(self.files, part)
    if isinstance(part_files, str):
      return part_files
    return ', '.join(part_files)

  def describe_label_location(self):
    if self.format != 'tsv':
      return ''
    part = self.languages()[0]
    options = self.language_options.get(part, self.options)
    columns = self.get_columns(part) or classification_reader.TSV_COLUMNS
    if 'label' not in columns:
      return (
        'Name the column of the labels in `columns`. '
        f'{file_reading.OPTION_MACROS}'
      )
    part_files = _get_files(self.files, part)
    path = paths.to_path(
      part_files if isinstance(part_files, str) else part_files[0]
    )
    first_line = next(text for _, text in file_reading.read_lines(path))
    fields = first_line.split('\t')
    if len(fields) == 1 and (
      json_hint := file_reading.suggest_json_format(first_line)
    ):
      return json_hint
    description = (
      f'The labels are read from column {columns["label"]!r}, where columns '
      f'are counted from 0, and the first line of {path} has '
      f'{file_reading.format_column_count(fields)}.'
    )
    if len(fields) == 1:
      return f'{description} Add the labels to the file, separated by tabs.'
    suggested_columns = {'text': 0, 'label': 1}
    if columns == suggested_columns:
      return f'{description} Add the labels to this column of the file.'
    options = {**options, 'columns': suggested_columns}
    return (
      f'{description} Set the columns of the file, such as '
      f'--gin.OPTIONS="{options}". {file_reading.OPTION_MACROS}'
    )

  def get_columns(self, part: str) -> Mapping[str, Any] | None:
    """Returns the mapping from fields of classified texts to columns.

    Args:
      part: Name of the language split.

    Returns:
      The columns or JSON keys from which the fields are read, such as {'text':
      0, 'label': 1}. None if the format has no option `columns`.
    """
    default_columns = {
      'tsv': classification_reader.TSV_COLUMNS,
      'jsonl': classification_reader.JSON_COLUMNS,
    }.get(self.format)
    if default_columns is None:
      return None
    options = self.language_options.get(part, self.options)
    return options.get('columns', default_columns)

  def find_line(self, part, values):
    part_files = _get_files(self.files, part)
    for path in (part_files,) if isinstance(part_files, str) else part_files:
      for number, line in file_reading.read_lines(path):
        if set(values) <= {*line.split(), *map(str.strip, line.split('\t'))}:
          return errors.line_location(path, number)
    return None

  def _read(self, part: str) -> Reading:
    return file_formats.read_files(
      self.format,
      _get_files(self.files, part),
      part,
      **self.language_options.get(part, self.options),
    )


@validation.validate_call
def dataset_in_directory(
  directory: str,
  format: str,
  files: Mapping[str, Paths],
  *,
  options: Mapping[str, Any] | None = None,
  language_options: Mapping[str, Mapping[str, Any]] | None = None,
  max_examples: validation.PositiveInt | None = None,
) -> FileDataset:
  """Creates a `FileDataset` from file paths relative to a directory.

  Args:
    directory: Directory that contains the files.
    format: Name of the file format, such as 'conllu'.
    files: Path or paths in the directory for each language split.
    options: Options that are passed to the format's reader. If None, the
      reader's defaults are used.
    language_options: Options for individual language splits, which replace all
      `options` for these splits.
    max_examples: Maximum number of examples to read from each language split.
      If None, all examples are read.

  Raises:
    CorpusError: If a file does not exist.
  """
  root = paths.to_path(directory)
  joined: dict[str, Any] = {
    part: str(root / names)
    if isinstance(names, str)
    else tuple(str(root / name) for name in names)
    for part, names in files.items()
  }
  for names in joined.values():
    for name in (names,) if isinstance(names, str) else names:
      if not paths.to_path(name).is_file():
        raise errors.CorpusError(
          'The file of labeled examples was not found',
          got=name,
          where=str(directory),
          fix='Download the data set, or pass another directory.',
        )
  return FileDataset(
    format=format,
    files=joined,
    options=options or {},
    language_options=language_options or {},
    max_examples=max_examples,
  )


@validation.validate_call
def find_files(
  directory: str, pattern: str, *, languages: tuple[str, ...] | None = None
) -> dict[str, Paths]:
  """Finds the files that match a pattern, and groups them by language.

  The result can be passed as `files` to a `FileDataset`. For example, the
  pattern 'sib200/{language}/test.tsv' finds `sib200/swh_Latn/test.tsv` for the
  language `sw`, and the pattern 'ud/UD_*/{language}_*-ud-test.conllu' finds all
  treebanks of a language.

  Args:
    directory: Directory that contains the files.
    pattern: Pattern of the paths in the directory. `{language}` stands for a
      language code in any spelling, and `*` for any part of a name.
    languages: Codes of the languages to find. If None, all languages.

  Returns:
    Path or paths by language. The languages have the codes that
    `language_codes.normalize_code` returns.

  Raises:
    CorpusError: If no file is found, or if a language has no file.
  """
  root = paths.to_path(directory)
  expression = re.compile(
    ''.join(
      {'{language}': r'([A-Za-z]{2,3}(?:[_-]\w+?)*?)', '*': '[^/]*'}.get(
        piece, re.escape(piece)
      )
      for piece in re.split(r'(\{language\}|\*)', pattern)
    )
  )
  files_by_language: dict[str, list[str]] = {}
  for path in sorted(root.glob(pattern.replace('{language}', '*'))):
    match = expression.fullmatch(path.relative_to(root).as_posix())
    if match and path.is_file():
      language = language_codes.normalize_code(match.group(1))
      files_by_language.setdefault(language, []).append(str(path))
  selected = languages if languages is not None else tuple(files_by_language)
  missing = [code for code in selected if code not in files_by_language]
  if missing or not files_by_language:
    raise errors.CorpusError(
      f'The directory contains no files that match {pattern!r} for '
      f'{", ".join(missing) or "any language"}',
      where=str(directory),
      fix='Download the data set, or pass another directory.',
    )
  return {
    code: files_by_language[code][0]
    if len(files_by_language[code]) == 1
    else tuple(files_by_language[code])
    for code in selected
  }


@dataclasses.dataclass(frozen=True, kw_only=True)
class BitextMiningSource:
  """Base class for sources of two sentence collections for bitext mining."""

  def languages(self) -> tuple[str, ...]:
    """Returns the names of the language pairs, such as 'fr-en'."""
    raise NotImplementedError

  def missing_languages(self) -> tuple[str, ...]:
    """Returns the names of the language pairs that have no data."""
    return ()

  def load(self, part: str) -> labeled_examples.BitextSentences:
    """Returns the two sentence collections of a language pair."""
    raise NotImplementedError

  def fingerprint(self) -> str:
    """Returns a hash of the names and sentences of all language pairs."""
    return fingerprint_of(self.languages(), self.load)


@class_registry.register('bitext_mining_files')
@dataclasses.dataclass(frozen=True, kw_only=True)
class BitextMiningFiles(BitextMiningSource):
  """Source that reads sentence collections for bitext mining from files.

  Attributes:
    files: Paths for each language pair, such as 'fr-en': (first collection,
      second collection) or (first collection, second collection, gold). The
      gold file contains the pairs that are translations of each other.
    format: Name of the file format. 'bucc' has lines `id<TAB>sentence` and gold
      pairs of ids. 'lines' has one sentence per line. For each line of the
      second file, its gold file contains a zero-based line number in the first
      file.
    missing: Names of the data set's language pairs that have no files.
  """

  files: Annotated[
    Mapping[str, tuple[str, ...]],
    pydantic.Field(
      description="a mapping of pairs to files, such as {'fr-en': ('fr.txt', "
      "'en.txt')}"
    ),
  ] = class_registry.path_field(content_hash.hash_paths)
  format: str = 'bucc'
  missing: tuple[str, ...] = class_registry.changeable_field(default=())

  def __post_init__(self):
    file_formats.find_reader(self.format, file_formats.Takes.COLLECTIONS)

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def missing_languages(self) -> tuple[str, ...]:
    return self.missing

  def load(self, part: str) -> labeled_examples.BitextSentences:
    paths = _get_files(self.files, part)
    read = file_formats.find_reader(
      self.format, file_formats.Takes.COLLECTIONS
    ).read
    languages = file_formats.two_languages(part)
    if isinstance(paths, str) or len(paths) not in (2, 3):
      raise errors.ConfigError(
        f'The language split {part!r} must have two files (first, second) or '
        'three files (first, second, gold), because bitext mining requires '
        'two sentence collections',
        got=repr(paths),
      )
    return read(*paths, languages=languages)


def _get_files(files: Mapping[str, Any], part: str) -> Any:
  """Returns a language split's files. Raises a CorpusError if it has none."""
  if part not in files:
    raise errors.CorpusError(
      'No files are specified for the requested language split',
      got=part,
      expected='one of ' + ', '.join(files),
      fix=name_suggestions.suggest_language(part, files),
    )
  return files[part]


def fingerprint_of(parts: tuple[str, ...], load: Callable[[str], Any]) -> str:
  """Returns a hash of the names and contents of language splits.

  If a language split cannot be loaded, the text of the error is hashed instead.

  Args:
    parts: Names of the language splits.
    load: Function that returns the contents of a language split, given its
      name.
  """
  digest = hashlib.sha256()
  for part in parts:
    try:
      contents = _without_sets(load(part))
    except errors.XlflaxError as error:
      contents = str(error)
    digest.update(repr((part, contents)).encode('utf-8', 'surrogatepass'))
  return digest.hexdigest()[:16]


def _without_sets(value: Any) -> Any:
  """Replaces sets with sorted lists.

  The iteration order of a set differs between processes.
  """
  if isinstance(value, list):
    return [_without_sets(item) for item in value]
  if dataclasses.is_dataclass(value):
    return [
      (f.name, _without_sets(getattr(value, f.name)))
      for f in dataclasses.fields(value)
    ]
  return sorted(value) if isinstance(value, frozenset) else value
