"""Writers for corpus directories; see `corpus_directory` for their layout."""

import contextlib
import gzip
import io
import pathlib
from collections.abc import Iterable, Sequence
from typing import IO

import zstandard

from xlflax.data.corpus import corpus_files
from xlflax.data.corpus.corpus_directory import (
  FOLDERS,
  INCOMPLETE_FILE,
  TRAIN,
  check_split,
)
from xlflax.data.corpus.corpus_files import Kind
from xlflax.storage import paths
from xlflax.utils import errors, validation


@validation.validate_call
def write_monolingual(
  directory: validation.FilePath,
  language: str,
  documents: Iterable[Iterable[str]],
  *,
  split: str = TRAIN,
  name: str = '',
  compression: str = '',
) -> pathlib.Path:
  r"""Writes a language's documents to a corpus directory.

  For example, `[['a', 'b'], ['c']]` becomes the file `a\nb\n\nc\n`. White space
  within a line is replaced by single spaces, and empty lines are dropped.

  Args:
    directory: Corpus directory. It is created if it does not exist.
    language: Language code.
    documents: Documents to write, each of which is a sequence of lines.
    split: Name of the split: 'train', 'validation' or 'test'.
    name: Infix of the file name, which distinguishes several files in the same
      language.
    compression: File name extension that selects the compression: '', 'gz' or
      'zst'.

  Returns:
    The path of the file.
  """
  path = _prepare_path(
    directory,
    Kind.MONOLINGUAL,
    (language,),
    split=split,
    name=name,
    compression=compression,
  )
  with open_atomic(path) as stream:
    first = True
    for document in documents:
      lines = [line for line in map(clean_line, document) if line]
      if lines:
        stream.write(('' if first else '\n') + '\n'.join(lines) + '\n')
        first = False
  return path


@validation.validate_call
def write_parallel(
  directory: validation.FilePath,
  languages: Sequence[str],
  pairs: Iterable[tuple[str, str]],
  *,
  split: str = TRAIN,
  name: str = '',
  compression: str = '',
) -> pathlib.Path:
  r"""Writes sentence pairs, and drops pairs in which one sentence is empty.

  For example, `[('a\tb', 'c')]` becomes the line `a b<TAB>c`.

  Args:
    directory: Corpus directory. It is created if it does not exist.
    languages: Codes of the two languages.
    pairs: Pairs of a sentence and its translation.
    split: Name of the split: 'train', 'validation' or 'test'.
    name: Infix of the file name, which distinguishes several files for the same
      language pair.
    compression: File name extension that selects the compression: '', 'gz' or
      'zst'.

  Returns:
    The path of the file.
  """
  path = _prepare_path(
    directory,
    Kind.PARALLEL,
    tuple(languages),
    split=split,
    name=name,
    compression=compression,
  )
  with open_atomic(path) as stream:
    for first, second in pairs:
      first, second = clean_line(first), clean_line(second)
      if first and second:
        stream.write(f'{first}\t{second}\n')
  return path


@validation.validate_call
def write_dictionary(
  directory: validation.FilePath,
  languages: Sequence[str],
  entries: Iterable[tuple],
) -> pathlib.Path:
  """Writes a bilingual dictionary, and drops entries with an empty field.

  Args:
    directory: Corpus directory. It is created if it does not exist.
    languages: Codes of the two languages.
    entries: Tuples (word, translation) or (word, translation, weight).

  Returns:
    The path of the file.
  """
  path = _prepare_path(directory, Kind.DICTIONARY, tuple(languages))
  with open_atomic(path) as stream:
    for entry in entries:
      fields = [clean_line(str(field)) for field in entry]
      if all(fields):
        stream.write('\t'.join(fields) + '\n')
  return path


def clean_line(text: str) -> str:
  r"""Replaces white space with single spaces: `' a\n\tb '` becomes `'a b'`."""
  return ' '.join(text.split())


def _prepare_path(
  directory,
  kind: Kind,
  languages: tuple[str, ...],
  *,
  split: str = TRAIN,
  name: str = '',
  compression: str = '',
) -> pathlib.Path:
  """Returns the path of a new file, and creates its folder."""
  check_split(split)
  suffix = '.txt' if kind is Kind.MONOLINGUAL else '.tsv'
  parts = ['-'.join(languages), name, suffix[1:], compression]
  folder = (
    paths.to_local_path(directory, where='directory of the corpus')
    / FOLDERS[split]
    / kind.value
  )
  path = folder / '.'.join(part for part in parts if part)
  parsed = corpus_files.parse_name(path, kind, split)
  if parsed.languages != languages:
    raise errors.CorpusError(
      'The language code does not have a valid format',
      got='-'.join(languages),
      expected=corpus_files.LANGUAGE_RULE,
    )
  folder.mkdir(parents=True, exist_ok=True)
  return path


def mark_incomplete(directory: pathlib.Path, command: str) -> None:
  """Marks a corpus directory as incomplete, so that `Corpus` rejects it.

  Args:
    directory: Existing corpus directory.
    command: Name of the `xlflax` command that writes the directory.
  """
  paths.write_atomically(directory / INCOMPLETE_FILE, f'{command}\n')


def mark_complete(directory: pathlib.Path) -> None:
  """Removes the mark that `mark_incomplete` created."""
  (directory / INCOMPLETE_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def open_atomic(path: pathlib.Path):
  """Context manager that yields a text stream and creates its file on exit.

  The file is not created if an exception is raised.
  """
  partial = path.with_name(f'.{path.name}.partial')
  try:
    with errors.add_path_to_errors(path), contextlib.ExitStack() as stack:
      file = stack.enter_context(open(partial, 'wb'))
      raw: IO[bytes] | gzip.GzipFile | zstandard.ZstdCompressionWriter = file
      if path.suffix == '.gz':
        raw = stack.enter_context(
          gzip.GzipFile('', 'wb', fileobj=file, mtime=0)
        )
      elif path.suffix == '.zst':
        raw = stack.enter_context(
          zstandard.ZstdCompressor(write_checksum=True).stream_writer(
            file, closefd=False
          )
        )
      yield stack.enter_context(
        io.TextIOWrapper(raw, encoding='utf-8', newline='\n')
      )
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)
