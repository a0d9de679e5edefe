"""The formats of files of examples: each reader registers its own.

A reader is a function in a module of `xlflax.data.supervised.readers`, or in any
other module that has been imported, under the decorator `register_reader`.
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
  """What a reader is called with.

  FILE: (path, language), once for each file of a part.
  FILES: (paths, (first language, second language)), all files of a part.
  COLLECTIONS: (*paths, languages=(first, second)), all files of a part. The
    reader returns `MinedSentences`; the others return a `Reading`.
  """

  FILE = 'file'
  FILES = 'files'
  COLLECTIONS = 'collections'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
  """A format and its reader.

  Attributes:
    name: such as 'conllu'.
    read: the reader; its keyword-only arguments are the format's options.
    example: class of the examples.
    takes: what the reader is called with.
  """

  name: str
  read: Callable[..., Any]
  example: type[labeled_examples.Example]
  takes: Takes

  @property
  def options(self) -> tuple[str, ...]:
    """The names of the reader's options."""
    return tuple(
      name
      for name, parameter in inspect.signature(self.read).parameters.items()
      if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )

  @property
  def second_language(self) -> str | None:
    """The option with the code of the second text's language, if any.

    A part of such a format may name two languages.
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
  """Registers a function as the reader of a format.

  Args:
    name: of the format.
    example: class of the examples that the reader returns.
    takes: what it is called with.
    **defaults: of its options, where the format's differ from the function's.

  Raises:
    ConfigError: another function has this name.
  """

  def register(function: _Reader) -> _Reader:
    registered = _formats.get(name)
    if registered is not None and _origin(registered.read) != _origin(function):
      raise errors.ConfigError(
        'Two readers have the same format name',
        got='.'.join(_origin(function)),
        expected=f'another name than {name!r} of '
        + '.'.join(_origin(registered.read)),
      )
    read = functools.partial(function, **defaults) if defaults else function
    _formats[name] = Format(name=name, read=read, example=example, takes=takes)
    return function

  return register


def format_names(*takes: Takes) -> tuple[str, ...]:
  """The names of the formats whose readers take this; all without any."""
  _import_readers()
  return tuple(
    name
    for name, file_format in _formats.items()
    if not takes or file_format.takes in takes
  )


def find_reader(name: str, *takes: Takes) -> Format:
  """The format of a name.

  Args:
    name: such as 'conllu'.
    *takes: what its reader may take; anything if not given.

  Raises:
    ConfigError: there is none whose reader takes this.
  """
  names = format_names(*takes)
  if name not in names:
    raise errors.ConfigError(
      'There is no such format of files',
      got=repr(name),
      expected='one of ' + ', '.join(map(repr, names)),
      fix='import the module of its reader',
    )
  return _formats[name]


def find_of_examples(name: str) -> Format:
  """The format of files of examples; see `find_reader`."""
  return find_reader(name, Takes.FILE, Takes.FILES)


def read_files(format: str, paths: Paths, part: str, **options) -> Reading:
  """Reads the files of one part; see `FileExamples`.

  Examples of later files whose id an earlier one has get their file's name
  before it.

  Raises:
    ConfigError: no such format or option, or a part of too many languages.
    CorpusError: see the readers.
  """
  file_format = find_of_examples(format)
  check_options(format, options)
  languages = _languages(part, file_format)
  path_list = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
  if file_format.takes is Takes.FILES:
    return file_format.read(path_list, languages, **options)
  if len(languages) == 2:
    options = {str(file_format.second_language): languages[1]} | options
  readings = [
    file_format.read(path, languages[0], **options) for path in path_list
  ]
  return Reading(
    _with_own_ids(path_list, readings),
    tuple(
      itertools.chain.from_iterable(reading.problems for reading in readings)
    ),
  )


def check_options(format: str, options: Mapping[str, Any]) -> None:
  """Raises a ConfigError for an option that the format's reader lacks."""
  options_of_format = find_reader(format).options
  unknown = sorted(set(options) - set(options_of_format))
  if unknown:
    raise errors.ConfigError(
      f'Files of the format {format!r} have no such option',
      got=', '.join(unknown),
      expected=', '.join(options_of_format) or 'none',
    )


def two_languages(part: str) -> tuple[str, str]:
  """('fr', 'en') of 'fr-en'; a ConfigError for another name of a part."""
  languages = part.split('-')
  if len(languages) != 2 or not all(languages):
    raise errors.ConfigError(
      'A part of a source is named wrongly',
      got=part,
      expected='two codes such as fr-en',
    )
  return languages[0], languages[1]


def _languages(part: str, format: Format) -> tuple[str, ...]:
  if format.takes is not Takes.FILE:
    return two_languages(part)
  two = format.second_language is not None
  languages = tuple(part.split('-'))
  if not all(languages) or len(languages) > 1 + two:
    raise errors.ConfigError(
      'A part of a source is named wrongly',
      got=part,
      expected="a language's code such as fr or zh_Hans"
      + (', or two such as es-en' if two else ''),
    )
  return languages


def _with_own_ids(paths, readings) -> list[labeled_examples.Example]:
  """The examples of several files; ids that occur again get the file's name."""
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
  """Module and name of a reader."""
  function = getattr(function, 'func', function)
  return function.__module__, function.__qualname__


@functools.cache
def _import_readers() -> None:
  """Imports the package's own readers, which registers them."""
  for module in pkgutil.iter_modules(readers.__path__):
    importlib.import_module(f'{readers.__name__}.{module.name}')
