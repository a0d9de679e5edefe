"""Writes corpus directories; see `xlflax.data.corpus.corpus_directory` for their layout."""

import contextlib
import gzip
import io
import pathlib
from collections.abc import Iterable, Sequence
from typing import IO

import zstandard

from xlflax.data.corpus import corpus_files
from xlflax.data.corpus.corpus_directory import FOLDERS, TRAIN, check_split
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
  """Writes the documents of a language, each a sequence of lines.

  Before: `[['a', 'b'], ['c']]`; after: the file `a\\nb\\n\\nc\\n`. White space
  inside a line is made single spaces; empty lines are left out.

  Args:
    directory: the corpus directory; made if need be.
    language: language code.
    documents: documents of lines.
    split: 'train', 'validation' or 'test'.
    name: distinguishes several files of one language.
    compression: '', 'gz' or 'zst'.

  Returns:
    The path of the file.
  """
  path = _path(
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
  """Writes sentence pairs; pairs with an empty side are left out.

  Before: `[('a\\tb', 'c')]`; after: the line `a b<TAB>c`. Arguments as those
  of `write_monolingual`, but two languages.
  """
  path = _path(
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
  """Writes (word, translation) or (word, translation, weight) entries."""
  path = _path(directory, Kind.DICTIONARY, tuple(languages))
  with open_atomic(path) as stream:
    for entry in entries:
      fields = [clean_line(str(field)) for field in entry]
      if all(fields):
        stream.write('\t'.join(fields) + '\n')
  return path


def clean_line(text: str) -> str:
  """One line: `' a\\n\\tb '` becomes `'a b'`."""
  return ' '.join(text.split())


def _path(
  directory,
  kind: Kind,
  languages: tuple[str, ...],
  *,
  split: str = TRAIN,
  name: str = '',
  compression: str = '',
) -> pathlib.Path:
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
      'Not a language code',
      got='-'.join(languages),
      expected=corpus_files.LANGUAGE_RULE,
    )
  folder.mkdir(parents=True, exist_ok=True)
  return path


@contextlib.contextmanager
def open_atomic(path: pathlib.Path):
  """A text stream whose file appears under `path` only when it is complete."""
  partial = path.with_name(f'.{path.name}.partial')
  try:
    with errors.naming_path(path), contextlib.ExitStack() as stack:
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
