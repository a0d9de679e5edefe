"""Registry of file formats for labeled examples.

The reader of a file format is a function decorated with `register_reader`. It
is defined in a module in `xlflax.data.supervised.readers`, or in any other
imported module.
"""

import dataclasses
import enum
import functools
import importlib
import inspect
import itertools
import os
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from xlflax.data.supervised import labeled_examples, readers
from xlflax.data.supervised.readers.file_reading import Reading
from xlflax.utils import errors

Paths = str | tuple[str, ...] | list[str]
_Reader = TypeVar('_Reader', bound=Callable)
_formats: dict[str, 'Format'] = {}


class Takes(enum.Enum):
  """Positional arguments with which the reader of a file format is called.

  FILE: (path, language), to read one file at a time. FILES: (paths, (first
  language, second language)), to read all files of a language split together.
  COLLECTIONS: (*paths, languages=(first, second)), to read both collections for
  bitext mining together. COLLECTIONS readers return `BitextSentences`, and the
  others return a `Reading`.
  """

  FILE = 'file'
  FILES = 'files'
  COLLECTIONS = 'collections'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
  """File format for labeled examples, with its reader.

  Attributes:
    name: Name of the format, such as 'conllu'.
    read: Function that reads the files. Its keyword-only arguments are the
      options of the format.
    example: Class of the examples that the reader returns.
    takes: Positional arguments that the reader accepts.
  """

  name: str
  read: Callable[..., Any]
  example: type[labeled_examples.Example]
  takes: Takes

  @property
  def options(self) -> tuple[str, ...]:
    """Names of the reader's options."""
    return tuple(
      name
      for name, parameter in inspect.signature(self.read).parameters.items()
      if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )

  @property
  def second_language(self) -> str | None:
    """Name of the reader option that sets the language of the second text.

    If a format has this option, a language split may be named after two
    languages.
    """
    name = self.example.second_language()
    return name if name in self.options else None


def register_reader(
  name: str,
  *,
  example: type[labeled_examples.Example],
  takes: Takes = Takes.FILE,
  **defaults: Any,
) -> Callable[[_Reader], _Reader]:
  """Registers a function as the reader of a file format.

  Args:
    name: Name of the format.
    example: Class of the examples that the reader returns.
    takes: Positional arguments that the reader accepts.
    **defaults: Default values of options, in place of the function's own
      defaults.

  Raises:
    ConfigError: If a different function is registered under this name.
  """

  def register(function: _Reader) -> _Reader:
    registered = _formats.get(name)
    if registered is not None and _origin(registered.read) != _origin(function):
      raise errors.ConfigError(
        f'The name {name!r} cannot be used for this file format, because the '
        f'reader {".".join(_origin(registered.read))} is already registered '
        'with it',
        got='.'.join(_origin(function)),
        fix='Register the reader with a different name.',
      )
    read = functools.partial(function, **defaults) if defaults else function
    _formats[name] = Format(name=name, read=read, example=example, takes=takes)
    return function

  return register


def format_names(*takes: Takes) -> tuple[str, ...]:
  """Returns the names of formats whose readers accept given argument types.

  Args:
    *takes: Types of reader arguments to select. If empty, all formats are
      returned.
  """
  _import_readers()
  return tuple(
    name
    for name, file_format in _formats.items()
    if not takes or file_format.takes in takes
  )


def find_reader(name: str, *takes: Takes) -> Format:
  """Returns a file format by name.

  Args:
    name: Name of the format, such as 'conllu'.
    *takes: Accepted kinds of reader arguments. If empty, all are accepted.

  Raises:
    ConfigError: If the format is not registered, or if its reader takes other
      arguments.
  """
  names = format_names(*takes)
  if name not in names:
    raise errors.ConfigError(
      'No file format is registered with the requested name',
      got=repr(name),
      expected='one of ' + ', '.join(map(repr, names)),
      fix="Import the module that defines the format's reader.",
    )
  return _formats[name]


def find_of_examples(name: str) -> Format:
  """Returns a file format for labeled examples by name; see `find_reader`.

  Formats of sentence collections for bitext mining are not accepted.
  """
  return find_reader(name, Takes.FILE, Takes.FILES)


def read_files(format: str, paths: Paths, part: str, **options) -> Reading:
  """Reads the labeled examples of a language or language pair from files.

  If an example in a later file repeats an id from an earlier file, the name of
  its file is prepended to its id.

  Args:
    format: Name of the format.
    paths: Path of the file, or paths of several files.
    part: Name of the language split: a language code, or two codes such as
      'es-en'.
    **options: Options of the format's reader.

  Raises:
    ConfigError: If the format or an option does not exist, or if the name of
      the language split is invalid.
    CorpusError: If a file is invalid, as documented by its reader.
  """
  file_format = find_of_examples(format)
  check_options(format, options)
  languages = _parse_languages(part, file_format)
  path_list = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
  if file_format.takes is Takes.FILES:
    return file_format.read(path_list, languages, **options)
  if len(languages) == 2:
    options = {str(file_format.second_language): languages[1]} | options
  readings = [
    file_format.read(path, languages[0], **options) for path in path_list
  ]
  return Reading(
    _with_unique_ids(path_list, readings),
    tuple(
      itertools.chain.from_iterable(reading.problems for reading in readings)
    ),
  )


def check_options(format: str, options: Mapping[str, Any]) -> None:
  """Raises a ConfigError if a format's reader does not support an option."""
  available_options = find_reader(format).options
  unknown = sorted(set(options) - set(available_options))
  if unknown:
    raise errors.ConfigError(
      'All options must be supported by the reader of the file format '
      f'{format!r}',
      got=', '.join(unknown),
      expected=', '.join(available_options) or 'no options',
    )


def two_languages(part: str) -> tuple[str, str]:
  """Splits a language pair such as 'fr-en' into two language codes.

  Raises:
    ConfigError: If the name does not consist of two language codes.
  """
  languages = part.split('-')
  if len(languages) != 2 or not all(languages):
    raise errors.ConfigError(
      'The key of the files must consist of two language codes, such as '
      "'fr-en'",
      got=part,
    )
  return languages[0], languages[1]


def _parse_languages(part: str, format: Format) -> tuple[str, ...]:
  """Returns the one or two language codes of a language split."""
  if format.takes is not Takes.FILE:
    return two_languages(part)
  allows_two = format.second_language is not None
  languages = tuple(part.split('-'))
  if not all(languages) or len(languages) > (2 if allows_two else 1):
    raise errors.ConfigError(
      f'The key of files in the format {format.name!r} must be a language '
      "code, such as 'fr', or two language codes, such as 'es-en'"
      if allows_two
      else f'The key of files in the format {format.name!r} must be a single '
      "language code, such as 'fr' or 'zh_Hans'",
      got=part,
    )
  return languages


def _with_unique_ids(paths, readings) -> list[labeled_examples.Example]:
  """Combines the examples of several files. Adds file names to repeated ids."""
  examples: list[labeled_examples.Example] = []
  seen_ids: set[str] = set()
  for path, reading in zip(paths, readings, strict=True):
    for example in reading.examples:
      if example.id in seen_ids and len(paths) > 1:
        example = dataclasses.replace(
          example, id=f'{os.path.basename(path)}:{example.id}'
        )
      seen_ids.add(example.id)
      examples.append(example)
  return examples


def _origin(function: Callable) -> tuple[str, str]:
  """Returns the module and the qualified name of a reader."""
  function = getattr(function, 'func', function)
  return function.__module__, function.__qualname__


@functools.cache
def _import_readers() -> None:
  """Imports the readers of this package, which registers them."""
  for module in pkgutil.iter_modules(readers.__path__):
    importlib.import_module(f'{readers.__name__}.{module.name}')
