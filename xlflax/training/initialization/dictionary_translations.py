"""Word translations into a language, read from bilingual dictionaries."""

import logging
import pathlib
from collections.abc import Iterator, Sequence

from xlflax.data.dictionaries import bilingual_dictionary
from xlflax.storage import bucket_staging
from xlflax.utils import errors

_SUFFIXES = {
  '.txt': bilingual_dictionary.Format.MUSE,
  '.tsv': bilingual_dictionary.Format.TSV,
}


def read_translations(
  paths: Sequence[str], language: str
) -> Iterator[tuple[str, str]]:
  """Yields words and their translations into a language.

  The name of a file starts with the languages of its columns: `en-de.txt` and
  `de-en.0-5000.txt` have the format of MUSE, `en-de.tsv` the format of a
  corpus. Files are read one after the other. The entries of a file are sorted
  by descending weight, and entries of the same weight keep their order.

  For example, `en-de.txt` with the line `dog hund` and the language 'en' yield
  ('hund', 'dog').

  Args:
    paths: Files or directories. In a directory, the files with `language` in
      their name are read in the order of their names.
    language: Language code of the translations.

  Raises:
    CorpusError: If a file does not exist, no dictionary contains the language,
      or a line is malformed (file:line).
  """
  files = [file for path in paths for file in _find_files(path, language)]
  for path, file_format in files:
    logging.info('Reading the dictionary %s.', path)
    dictionary = bilingual_dictionary.Dictionary.read(path, format=file_format)
    other = dictionary.target_language(language)
    assert other is not None  # The name of the file contains the language.
    entries = sorted(
      dictionary.from_language(other), key=lambda entry: -entry[2].weight
    )
    for word, translation, _ in entries:
      yield word, translation


def _find_files(
  path: str, language: str
) -> list[tuple[pathlib.Path, bilingual_dictionary.Format]]:
  """Returns the dictionaries of a language with their formats.

  Args:
    path: Dictionary file, or directory with dictionaries.
    language: Language that the dictionaries must contain.

  Raises:
    CorpusError: If there is no dictionary for the language.
  """
  local_path = bucket_staging.stage_input(path)
  candidates = (
    sorted(local_path.iterdir()) if local_path.is_dir() else [local_path]
  )
  files = []
  for file in candidates:
    file_format = _detect_format(file)
    if language in _parse_languages(file) and file_format is not None:
      files.append((file, file_format))
  if not files:
    raise errors.CorpusError(
      f'No bilingual dictionary for the language {language!r} was found. '
      '`EmbeddingTransfer.dictionaries` must be a file such as '
      f'{language}-de.txt or de-{language}.tsv, or a directory that contains '
      'such files',
      got=path,
      fix='Include the languages of the columns in the file name, or set '
      'EmbeddingTransfer.source_language.',
    )
  return files


def _parse_languages(path: pathlib.Path) -> list[str]:
  """Returns the two languages in the name of a file, or []."""
  languages = path.name.partition('.')[0].split('-')
  return languages if len(set(languages)) == 2 == len(languages) else []


def _detect_format(path: pathlib.Path) -> bilingual_dictionary.Format | None:
  """Returns the format of a dictionary by its suffix, or None."""
  suffixes = [s for s in path.suffixes if s not in ('.gz', '.zst')]
  return _SUFFIXES.get(suffixes[-1]) if suffixes else None
