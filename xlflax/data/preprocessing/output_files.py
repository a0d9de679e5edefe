"""The files of a prepared corpus: which there are, whose they are, their text."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from xlflax.data.corpus import corpus_files, corpus_writer, record_formats
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing import language_id
from xlflax.data.preprocessing.provenance import Prepared
from xlflax.data.preprocessing.worker_pool import Chunk, Counts, Lines, Workers

_CHUNK = 1024

# Called with the lines of a file that were read, and with further bytes of it.
Report = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Output:
  """A file to write.

  Attributes:
    path: below the output directory.
    source: the file of the corpus that it is made of.
    copy: which copy of it, from 0.
  """

  path: str
  source: TextFile
  copy: int


def of_corpus(corpus, languages, code_switching) -> list[Output]:
  """The files of text to be written, by path."""
  switched = (
    code_switching.sources(f.languages for f in corpus.dictionaries)
    if code_switching
    else ()
  )
  outputs: list[Output] = []
  for file in corpus.files:
    if file.kind is Kind.DICTIONARY or not is_wanted(file, languages):
      continue
    path = record_formats.text_file_path(
      file.path.relative_to(corpus.directory), file.languages
    )
    copies = 1
    if (
      file.kind is Kind.MONOLINGUAL
      and file.split == TRAIN
      and file.languages[0] in switched
    ):
      copies = code_switching.copies
    outputs += [Output(_copy_path(path, k), file, k) for k in range(copies)]
  return sorted(outputs, key=lambda file: file.path)


def is_wanted(file: TextFile | Dictionary, languages) -> bool:
  """Whether a file is of some languages, of which None are all."""
  return languages is None or set(file.languages) <= set(languages)


def _copy_path(path: pathlib.Path, copy: int) -> str:
  """`mono/en.a.txt.gz` of copy 2 is `mono/en.a.copy2.txt.gz`."""
  if copy:
    stem, dot, ending = path.name.rpartition('.txt')
    path = path.with_name(f'{stem}.copy{copy}{dot}{ending}')
  return path.as_posix()


def write_output(
  file: Output,
  output: pathlib.Path,
  workers: Workers,
  code_switching: CodeSwitching | None,
  dropped: dict[str, np.ndarray],
  report: Report,
) -> Prepared:
  """Writes a file, or none where no line is left.

  Args:
    file: which.
    output: the directory.
    workers: process the lines.
    code_switching: as the workers have it.
    dropped: why -> numbers of lines with text that are left out, sorted.
    report: called as the file is read.
  """
  path = output / file.path
  path.parent.mkdir(parents=True, exist_ok=True)
  total = Counts()
  switch = file.source.kind is Kind.MONOLINGUAL and file.source.split == TRAIN
  size = code_switching.group_lines if code_switching else _CHUNK
  priors = None
  if workers.filters.min_language_probability:
    priors = language_id.of_file(file.source)
  chunks = (
    Chunk(
      file.source.languages,
      lines,
      file.path if switch else None,
      number * size,
      _within(dropped, number * size, size),
      priors,
    )
    for number, lines in enumerate(_read(file.source, size, report))
  )
  with corpus_writer.open_atomic(path) as stream:
    for text, counts in workers.map(chunks):
      stream.write(text)
      total += counts
  if not total.lines:  # a corpus has no files without text
    path.unlink()
  return Prepared(
    file.path,
    total.lines,
    total.words,
    total.changed,
    dict(sorted(total.dropped.items())),
  )


def _within(
  dropped: dict[str, np.ndarray], first: int, size: int
) -> dict[int, str]:
  """Places first .. first + size - 1, counted from there -> why they go."""
  reasons: dict[int, str] = {}
  for why, places in dropped.items():
    begin, end = np.searchsorted(places, [first, first + size])
    reasons |= dict.fromkeys((places[begin:end] - first).tolist(), why)
  return reasons


def _read(file: TextFile, size: int, report: Report) -> Iterator[Lines]:
  """Runs of lines with `size` that are not blank; blank ones count to them."""
  run: Lines = []
  full = number = length = 0
  remaining_bytes = file.path.stat().st_size
  packed = corpus_files.is_sequential(file.path)
  for number, line in corpus_lines.read_text(file.path):
    if file.kind is Kind.MONOLINGUAL:
      run.append((corpus_lines.decode_line(line, file.path, number),))
    else:
      run.append(corpus_lines.split_columns(line, file.path, number))
    full += bool(line)
    length += len(line) + 1
    if full == size:
      read = 0 if packed else min(length, remaining_bytes)
      report(number, read)
      yield run
      run, full, length, remaining_bytes = [], 0, 0, remaining_bytes - read
  report(number, remaining_bytes)
  if run:
    yield run
