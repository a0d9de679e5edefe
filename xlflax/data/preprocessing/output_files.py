"""Functions that list and write the files of a preprocessed corpus."""

import collections
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from xlflax.data.corpus import (
  corpus_directory,
  corpus_files,
  corpus_writer,
  record_formats,
)
from xlflax.data.corpus.bad_records import BadRecords
from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing import (
  language_id,
  markup,
  text_processing,
  worker_pool,
)
from xlflax.data.preprocessing.provenance import BAD_RECORD, Prepared
from xlflax.data.preprocessing.worker_pool import Chunk, Counts, Lines, Workers
from xlflax.utils import plurals

_LINES_PER_CHUNK = 1024

# Callback with the number of lines of a file that have been read, and the
# number of bytes since the previous call.
Report = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Output:
  """Output file of a preprocessed corpus.

  Attributes:
    path: Path relative to the output directory.
    source: Corpus file to preprocess.
    copy: Index of the code-switched copy of the source file, counted from 0. It
      is 0 if the file is not code-switched.
  """

  path: str
  source: TextFile
  copy: int


def list_outputs(corpus, languages, code_switching) -> list[Output]:
  """Lists the output files for the text of a corpus, sorted by path.

  Args:
    corpus: Corpus to preprocess.
    languages: Languages of the files to write. If None, the files in all
      languages are written.
    code_switching: Settings for code-switching. If None, there is one copy of
      each file.
  """
  switched = (
    code_switching.sources(f.languages for f in corpus.dictionaries)
    if code_switching
    else ()
  )
  outputs: list[Output] = []
  for file in corpus.files:
    if file.kind is Kind.DICTIONARY or not has_languages(file, languages):
      continue
    path = record_formats.text_file_path(
      pathlib.Path(corpus_directory.relative_path(file)), file.languages
    )
    copies = 1
    if (
      file.kind is Kind.MONOLINGUAL
      and file.split == TRAIN
      and file.languages[0] in switched
    ):
      copies = code_switching.num_copies
    outputs += [
      Output(_copy_path(path, copy), file, copy) for copy in range(copies)
    ]
  return sorted(outputs, key=lambda output: output.path)


def has_languages(file: TextFile | Dictionary, languages) -> bool:
  """Returns whether all languages of a file are among the selected ones."""
  return languages is None or set(file.languages) <= set(languages)


def _copy_path(path: pathlib.Path, copy: int) -> str:
  """Returns the path of a code-switched copy of a file.

  For example, for copy 2, `mono/en.a.txt.gz` becomes `mono/en.a.copy2.txt.gz`.
  """
  if copy:
    stem, extension, compression = path.name.rpartition('.txt')
    path = path.with_name(f'{stem}.copy{copy}{extension}{compression}')
  return path.as_posix()


def write_output(
  file: Output,
  output: pathlib.Path,
  workers: Workers,
  code_switching: CodeSwitching | None,
  dropped: dict[str, np.ndarray],
  report: Report,
) -> Prepared:
  """Preprocesses and writes a file, or removes it if no lines remain.

  Args:
    file: Output file to write, with the corpus file from which it is created.
    output: Output directory.
    workers: Pool of workers that process the lines.
    code_switching: Code-switching settings of the workers.
    dropped: Sorted, zero-based indices of the lines to drop, by reason. Lines
      without text are not counted.
    report: Function that is called repeatedly while the file is read. Its
      arguments are the number of the last line that was read and the number of
      bytes read since the previous call.

  Returns:
    Statistics of the written file.
  """
  path = output / file.path
  path.parent.mkdir(parents=True, exist_ok=True)
  total = Counts()
  is_switchable = (
    file.source.kind is Kind.MONOLINGUAL and file.source.split == TRAIN
  )
  size = code_switching.group_lines if code_switching else _LINES_PER_CHUNK
  priors = None
  if workers.filters.min_language_probability:
    priors = language_id.file_priors(file.source)
  bad_records = BadRecords()
  dropped_records: collections.Counter[str] = collections.Counter()
  chunks = (
    Chunk(
      file.source.languages,
      lines,
      file.path if is_switchable else None,
      number * size,
      _reasons_in_chunk(dropped, number * size, size) | reasons,
      priors,
    )
    for number, (lines, reasons) in enumerate(
      _read_chunks(
        file.source,
        size,
        report,
        bad_records,
        dropped_records,
        strip_markup=workers.processing.strip_markup,
      )
    )
  )
  with corpus_writer.open_atomic(path) as stream:
    for text, counts in workers.map(chunks):
      stream.write(text)
      total += counts
  if not total.lines:  # Files without text are not valid in a corpus.
    path.unlink()
  dropped_counts = dict(total.dropped) | dropped_records
  if bad_records.total:
    dropped_counts[BAD_RECORD] = bad_records.total
  return Prepared(
    file.path,
    total.lines,
    total.words,
    total.changed,
    dict(sorted(dropped_counts.items())),
    bad_records=bad_records.problems,
  )


def _reasons_in_chunk(
  dropped: dict[str, np.ndarray], first: int, size: int
) -> dict[int, str]:
  """Returns the reasons for dropping lines of a chunk, by line index.

  The keys of the result are line indices relative to `first`.
  """
  reasons: dict[int, str] = {}
  for reason, indices in dropped.items():
    start, stop = np.searchsorted(indices, [first, first + size])
    reasons |= dict.fromkeys((indices[start:stop] - first).tolist(), reason)
  return reasons


def _read_chunks(
  file: TextFile,
  size: int,
  report: Report,
  bad_records: BadRecords,
  dropped_records: collections.Counter[str],
  *,
  strip_markup: bool,
) -> Iterator[tuple[Lines, dict[int, str]]]:
  """Yields chunks of lines, each with `size` lines that contain text.

  Args:
    file: File to read. If its `skips_bad_records` is True, bad records are
      skipped and counted.
    size: Number of lines with text in a chunk.
    report: Function that is called with the progress of reading the file.
    bad_records: Counter of the bad records.
    dropped_records: Counter of the valid records without text, by reason.
    strip_markup: Whether to remove HTML markup.

  Yields:
    The lines of the chunk, and a mapping from the zero-based indices of lines
    that contain only markup or NUL characters to the reason for dropping them.
    Lines without text are not counted.
  """
  chunk: Lines = []
  reasons: dict[int, str] = {}
  num_texts = number = num_bytes = 0
  remaining_bytes = file.path.stat().st_size
  is_compressed = corpus_files.is_sequential(file.path)
  # Files of held-out lines are parts of a training file, whose records are
  # counted.
  is_part = file.line_splits is not None and file.split != TRAIN
  on_bad_record = None
  if file.skips_bad_records and not is_part:
    on_bad_record = bad_records.add

  def count_dropped_record(reason: str) -> None:
    dropped_records[reason] += 1

  lines = corpus_directory.read_texts(
    file, on_bad_record, None if is_part else count_dropped_record
  )
  remover = markup.MarkupRemover()
  num_with_nulls = 0
  for number, texts in enumerate(lines, start=1):
    num_bytes += sum(len(text.encode()) + 1 for text in texts)
    without_nulls = text_processing.remove_nulls(texts)
    if without_nulls != texts:
      num_with_nulls += 1
      if all(without_nulls):
        texts = without_nulls
      else:
        reasons[num_texts] = worker_pool.NUL_CHARACTERS
    if strip_markup:
      stripped = _strip_markup(texts, remover)
      if texts[0] and not all(stripped):
        reasons[num_texts] = worker_pool.MARKUP
      else:
        texts = stripped
    chunk.append(texts)
    num_texts += bool(texts[0])
    if num_texts == size:
      # The number of compressed bytes that have been read is unknown.
      chunk_bytes = 0 if is_compressed else min(num_bytes, remaining_bytes)
      report(number, chunk_bytes)
      yield chunk, reasons
      chunk, reasons = [], {}
      num_texts = num_bytes = 0
      remaining_bytes -= chunk_bytes
  report(number, remaining_bytes)
  if num_with_nulls:
    logging.warning(
      '%s: Removed NUL characters from %s.',
      corpus_directory.relative_path(file),
      plurals.format_count(num_with_nulls, 'line'),
    )
  if chunk:
    yield chunk, reasons


def _strip_markup(
  texts: tuple[str, ...], remover: markup.MarkupRemover
) -> tuple[str, ...]:
  """Removes HTML markup from a line, or from source and target of a pair."""
  if len(texts) == 1:
    if not texts[0]:
      remover.start_document()
    return (remover.remove(texts[0]),)
  stripped = []
  for text in texts:
    remover.start_document()
    stripped.append(remover.remove(text))
  return tuple(stripped)
