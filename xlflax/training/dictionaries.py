"""Entries of bilingual dictionaries, in MUSE's format or a corpus's."""

import logging
import pathlib
from collections.abc import Iterator, Sequence

from xlflax import errors
from xlflax.data import corpus_files

_SUFFIXES = ('.txt', '.tsv', '.gz', '.zst')


def read(paths: Sequence[str], language: str) -> Iterator[tuple[str, str]]:
  """Yields (word, its translation into `language`).

  A file's name begins with the languages of its columns: `en-de.txt`,
  `de-en.0-5000.txt` (MUSE), `en-de.tsv` (a corpus's `dictionaries/`). Columns
  are separated by a tab or, as MUSE has it, one run of spaces. Entries come in
  the order of the files; where there are weights, those of one word from the
  heaviest.

  Before: `en-de.txt` with lines `dog hund` and language 'en'; after:
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
  for path, column in files:
    logging.info('Reading the dictionary %s.', path)
    yield from _entries(path, column)


def _files(path: str, language: str) -> list[tuple[pathlib.Path, int]]:
  """(file, the column of `language`) of a file or folder."""
  place = pathlib.Path(path)
  candidates = sorted(place.iterdir()) if place.is_dir() else [place]
  found = [(file, _column(file, language)) for file in candidates]
  known = [(file, column) for file, column in found if column is not None]
  if not known:
    raise errors.CorpusError(
        f'No bilingual dictionary of the language {language!r}', got=path,
        expected=f'a file such as {language}-de.txt or de-{language}.tsv, or a '
        'folder of them', where='VocabularyMatching.dictionaries',
        fix='name the file by the languages of its columns, or set '
        'VocabularyMatching.source_language')
  return known


def _column(path: pathlib.Path, language: str) -> int | None:
  languages = path.name.split('.')[0].split('-')
  good = (len(languages) == 2 and path.suffix in _SUFFIXES
          and languages[0] != languages[1] and language in languages)
  return languages.index(language) if good else None


def _entries(path: pathlib.Path, column: int) -> Iterator[tuple[str, str]]:
  """(word, translation) of a file; by weight, if it has weights."""
  weighted: list[tuple[float, str, str]] = []
  for number, line in corpus_files.read_lines(path):
    text = corpus_files.decode(line, path, number)
    if not text:
      continue
    fields = [f.strip() for f in (
        text.split('\t') if '\t' in text else text.split())]
    if len(fields) not in (2, 3) or not all(fields):
      raise _malformed(text, path, number)
    word, translation = fields[1 - column], fields[column]
    if len(fields) == 2:
      yield word, translation
    else:
      weighted.append((_weight(text, fields[2], path, number), word,
                       translation))
  weighted.sort(key=lambda entry: -entry[0])
  yield from ((word, translation) for _, word, translation in weighted)


def _weight(text: str, field: str, path, number: int) -> float:
  try:
    return float(field)
  except ValueError as error:
    raise _malformed(text, path, number) from error


def _malformed(text: str, path, number: int) -> errors.CorpusError:
  return errors.CorpusError(
      'Malformed line in a dictionary', got=repr(text[:60]),
      expected='a word and its translation, separated by a tab or a space, '
      'and no more than a weight after them', where=f'{path}:{number}',
      fix='correct or delete the line')
