"""Which bilingual dictionaries are read, and their translations in order."""

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
  """Yields (word, its translation into `language`).

  A file's name begins with the languages of its columns: `en-de.txt` and
  `de-en.0-5000.txt` are MUSE's, `en-de.tsv` a corpus's. Files are read one
  after the other; of the entries of a file, the heaviest come first, those of
  one weight in their order.

  Before: `en-de.txt` with the line `dog hund`, language 'en'; after:
  ('hund', 'dog').

  Args:
    paths: files, or folders, of which the files with `language` in their name
      are read in the order of their names.
    language: that of the translations.

  Raises:
    CorpusError: no such file, no dictionary of the language, or a malformed
      line (file:line).
  """
  files = [file for path in paths for file in _files(path, language)]
  for path, kind in files:
    logging.info('Reading the dictionary %s.', path)
    dictionary = bilingual_dictionary.Dictionary.read(path, format=kind)
    other = dictionary.target_language(language)
    assert other is not None  # its name says so
    entries = sorted(
      dictionary.from_language(other), key=lambda found: -found[2].weight
    )
    yield from ((word, translation) for word, translation, _ in entries)


def _files(
  path: str, language: str
) -> list[tuple[pathlib.Path, bilingual_dictionary.Format]]:
  """(file, its format) of a file, or of those of a folder."""
  local_path = bucket_staging.stage_input(path)
  candidates = (
    sorted(local_path.iterdir()) if local_path.is_dir() else [local_path]
  )
  language_files = [
    (file, _format(file)) for file in candidates if language in _languages(file)
  ]
  supported_files = [
    (file, kind) for file, kind in language_files if kind is not None
  ]
  if not supported_files:
    raise errors.CorpusError(
      f'No bilingual dictionary of the language {language!r}',
      got=path,
      expected=f'a file such as {language}-de.txt or de-{language}.tsv, or a '
      'folder of them',
      where='VocabularyMatching.dictionaries',
      fix='name the file by the languages of its columns, or set '
      'VocabularyMatching.source_language',
    )
  return supported_files


def _languages(path: pathlib.Path) -> list[str]:
  languages = path.name.partition('.')[0].split('-')
  return languages if len(set(languages)) == 2 == len(languages) else []


def _format(path: pathlib.Path) -> bilingual_dictionary.Format | None:
  suffixes = [s for s in path.suffixes if s not in ('.gz', '.zst')]
  return _SUFFIXES.get(suffixes[-1]) if suffixes else None
