"""Check whether several languages of a source have identical files."""

import filecmp
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from xlflax.data.supervised import file_formats
from xlflax.data.supervised.sources import (
  code_switched_source,
  concatenated_source,
  example_source,
)
from xlflax.storage import paths
from xlflax.utils import logs


class _Files(NamedTuple):
  """Files of a language split that are read together.

  Attributes:
    part: Name of the language split.
    paths: Paths of the files.
    reading: Format and options with which the files are read.
  """

  part: str
  paths: tuple[str, ...]
  reading: tuple[str, Any]


def warn_of_identical_files(sources: Iterable[Any]) -> None:
  """Logs a warning for each group of languages with identical files.

  Args:
    sources: Sources of examples. Sources that do not read files are ignored.
  """
  for message in describe_identical_files(sources):
    logging.warning('%s', message, extra=logs.ONCE)


def describe_identical_files(sources: Iterable[Any]) -> Iterator[str]:
  """Yields a message for each group of languages with identical files.

  Files are identical if they have the same path or, for local files, the same
  content. Files in which the options select a language by its column, and files
  that are read with different options, may contain several languages.

  Args:
    sources: Sources of examples. The languages of each source are compared with
      each other. Sources that do not read files are ignored.
  """
  for source in sources:
    groups: list[list[_Files]] = []
    for files in _list_files(source):
      group = next(
        (group for group in groups if _are_identical(group[0], files)), None
      )
      if group is None:
        groups.append([files])
      else:
        group.append(files)
    for group in groups:
      parts = list(dict.fromkeys(files.part for files in group))
      if len(parts) < 2:
        continue
      names = dict.fromkeys(', '.join(files.paths) for files in group)
      yield (
        f'The files of the languages {", ".join(parts[:-1])} and {parts[-1]} '
        f'are identical ({"; ".join(names)}), so these languages have the same '
        'examples. Correct the paths in `files`.'
      )


def find_copies(
  source: Any, other_paths: Collection[str]
) -> Iterator[tuple[str, str]]:
  """Yields the files of a source that are identical to other files.

  Args:
    source: Source of examples. The result is empty if it does not read files.
    other_paths: Paths of the files with which the source's files are compared.

  Yields:
    Path of a file, and the path of the first identical file.
  """
  for files in _list_files(source):
    for path in files.paths:
      for other in other_paths:
        if _have_same_content(path, other):
          yield path, other
          break


def _list_files(source: Any) -> Iterator[_Files]:
  """Yields the files of a source that contain a single language or pair."""
  if isinstance(source, concatenated_source.ConcatDataset):
    for inner in source.sources:
      yield from _list_files(inner)
  elif isinstance(source, concatenated_source.TranslatedDataset):
    yield from _list_files(source.source)
  elif isinstance(source, code_switched_source.CodeSwitched):
    yield from _list_files(source.translations)
  elif isinstance(source, example_source.FileDataset):
    takes = file_formats.find_of_examples(source.format).takes
    for part, names in source.files.items():
      options = source.language_options.get(part, source.options)
      if 'language' in (options.get('columns') or ()):
        continue
      part_paths = (names,) if isinstance(names, str) else tuple(names)
      for paths_read_together in (
        [part_paths]
        if takes is file_formats.Takes.FILES
        else [(path,) for path in part_paths]
      ):
        yield _Files(part, paths_read_together, (source.format, options))


def _are_identical(first: _Files, second: _Files) -> bool:
  """Returns whether files are read in the same way and have equal content."""
  return (
    first.reading == second.reading
    and len(first.paths) == len(second.paths)
    and all(map(_have_same_content, first.paths, second.paths))
  )


def _have_same_content(first: str, second: str) -> bool:
  """Returns whether paths are equal, or local files have identical bytes."""
  if first == second:
    return True
  first_path, second_path = paths.to_path(first), paths.to_path(second)
  is_local = '://' not in f'{first} {second}'
  if not is_local or not (first_path.is_file() and second_path.is_file()):
    return False
  # `filecmp` compares the sizes before the content.
  try:
    return os.path.samefile(first_path, second_path) or filecmp.cmp(
      first_path, second_path, shallow=False
    )
  except OSError:  # The reader reports it.
    return False
