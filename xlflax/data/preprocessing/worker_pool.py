"""Worker pool that processes chunks of lines and preserves their order."""

import collections
import concurrent.futures
import dataclasses
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching import Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing import text_filters, text_processing
from xlflax.data.preprocessing.language_id import Prior
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.data.preprocessing.text_processing import Processor, TextProcessing
from xlflax.utils import process_pool

# Reasons for dropping lines that contain no text. Filters of the text do not
# apply to these lines.
MARKUP = 'markup'
NUL_CHARACTERS = 'NUL characters'
_NO_TEXT = (MARKUP, NUL_CHARACTERS)

# Sides of each line: one text, or the two texts of a pair. A blank line is
# ('',).
Lines = list[tuple[str, ...]]


class Chunk(NamedTuple):
  """Chunk of consecutive lines in a file.

  Attributes:
    languages: Language code of each column: one code for monolingual text, or
      the codes of source and target.
    lines: Columns of each line: one text, or the texts of source and target.
    name: Name that is part of the random seed for code-switching. If None, the
      lines are not code-switched.
    first: Number of lines in the file before the chunk, counting only lines
      with text.
    left_out: Lines to drop, as a mapping from the zero-based index of each line
      to the reason for dropping it. An index counts only lines with text, from
      the start of the chunk.
    priors: Prior distribution over languages for each column. If None, the
      priors depend only on `languages`.
  """

  languages: tuple[str, ...]
  lines: Lines
  name: str | None
  first: int
  left_out: Mapping[int, str] = types.MappingProxyType({})
  priors: Sequence[Prior | None] | None = None


@dataclasses.dataclass(frozen=True)
class Counts:
  """Statistics of processed lines. Lines without text are not counted.

  Attributes:
    lines: Number of lines that were written.
    words: Number of words that could have been code-switched, counted in the
      written lines.
    changed: Number of words that were code-switched.
    dropped: Number of dropped lines, by reason.
  """

  lines: int = 0
  words: int = 0
  changed: int = 0
  dropped: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )

  def __add__(self, other: 'Counts') -> 'Counts':
    """Returns the combined statistics of two sets of lines."""
    return Counts(
      self.lines + other.lines,
      self.words + other.words,
      self.changed + other.changed,
      self.dropped + other.dropped,
    )


class Workers:
  """Pool of worker processes that process chunks of lines.

  The pool is a context manager that stops the processes when it exits.
  """

  def __init__(
    self,
    processing: TextProcessing,
    code_switching: CodeSwitching | None,
    dictionaries: Sequence[Dictionary],
    *,
    filters: TextFilters = TextFilters(),  # noqa: B008
    num_processes: int = 1,
  ):
    """Starts the worker processes, unless only one process is requested.

    Args:
      processing: Settings for processing each line.
      code_switching: Settings for code-switching. If None, text is not
        code-switched.
      dictionaries: Processed dictionaries for code-switching.
      filters: Line filters, which are applied before the lines are processed.
      num_processes: Number of worker processes. If 1, chunks are processed in
        the current process.
    """
    self.filters = filters
    self.processing = processing
    self._max_pending = 3 * num_processes
    self._pool: concurrent.futures.Executor | None = None
    arguments = (processing, code_switching, tuple(dictionaries), filters)
    if num_processes == 1:
      self._process = _ChunkProcessor(*arguments)
    else:
      self._pool = process_pool.start_process_pool(
        num_processes, _start_worker, *arguments
      )

  def __enter__(self) -> 'Workers':
    return self

  def __exit__(self, *error):
    if self._pool:
      self._pool.shutdown(cancel_futures=True)

  def map(self, chunks: Iterable[Chunk]) -> Iterator[tuple[str, Counts]]:
    """Yields the processed text and the statistics of each chunk, in order."""
    if not self._pool:
      yield from map(self._process, chunks)
      return
    pending: collections.deque = collections.deque()
    for chunk in chunks:
      pending.append(self._pool.submit(_process_in_worker, chunk))
      if len(pending) > self._max_pending:
        yield process_pool.get_result(pending.popleft())
    while pending:
      yield process_pool.get_result(pending.popleft())


def processor_factory(processing: TextProcessing) -> Callable[[str], Processor]:
  """Returns a cached function that creates the `Processor` of a language."""
  return functools.cache(lambda language: Processor(language, processing))


class _ChunkProcessor:
  """Callable that filters, processes and code-switches a chunk of lines.

  The processor and the code-switcher for each language are created only once.
  """

  def __init__(self, processing, code_switching, dictionaries, filters):
    self._filters = filters
    self._split_sentences = processing.split_sentences
    self._get_processor = processor_factory(processing)
    self._switchable_languages = (
      code_switching.sources(
        dictionary.languages for dictionary in dictionaries
      )
      if code_switching
      else ()
    )
    self._get_switcher = functools.cache(
      lambda language: Switcher(language, dictionaries, code_switching)
    )

  def __call__(self, chunk: Chunk) -> tuple[str, Counts]:
    chunk, dropped = self._filter(self._split(chunk))
    text_indices = [i for i, line in enumerate(chunk.lines) if line[0]]
    # Without any line of text, there are no sides.
    sides = zip(*(chunk.lines[i] for i in text_indices), strict=True)
    processed_sides = [
      list(map(self._get_processor(language), texts))
      for language, texts in zip(chunk.languages, sides, strict=False)
    ]

    num_words = num_changed = 0
    language = chunk.languages[0]
    if (
      chunk.name is not None
      and text_indices
      and language in self._switchable_languages
    ):
      switched = self._get_switcher(language).switch(
        processed_sides[0], name=chunk.name, first=chunk.first
      )
      processed_sides[0] = switched.lines
      num_words, num_changed = switched.words, switched.changed

    lines = [''] * len(chunk.lines)
    for index, *texts in zip(text_indices, *processed_sides, strict=True):
      lines[index] = '\t'.join(texts)
    text = ''.join(f'{line}\n' for line in lines)
    return text, Counts(len(text_indices), num_words, num_changed, dropped)

  def _split(self, chunk: Chunk) -> Chunk:
    """Splits the lines of a monolingual chunk into sentences.

    If a line is dropped, all of its sentences are dropped.
    """
    if not self._split_sentences or len(chunk.languages) > 1:
      return chunk
    lines: Lines = []
    left_out: dict[int, str] = {}
    line_index = num_sentences = 0
    for (text,) in chunk.lines:
      if not text:
        lines.append(('',))
        continue
      sentences = text_processing.split_sentences(text, chunk.languages[0])
      stop = num_sentences + len(sentences)
      if reason := chunk.left_out.get(line_index):
        left_out |= dict.fromkeys(range(num_sentences, stop), reason)
      lines += [(sentence,) for sentence in sentences]
      line_index += 1
      num_sentences = stop
    return chunk._replace(lines=lines, left_out=left_out)

  def _filter(self, chunk: Chunk) -> tuple[Chunk, collections.Counter]:
    """Drops the lines of a chunk that do not pass the filters.

    Returns:
      The remaining lines, and the number of dropped lines by reason.
    """
    dropped: collections.Counter = collections.Counter()
    if self._filters.does_nothing and not chunk.left_out:
      return chunk, dropped
    remaining_lines = []
    text_index = 0
    for line in chunk.lines:
      if line[0]:
        reason = chunk.left_out.get(text_index)
        if reason not in _NO_TEXT:
          filter_reason = text_filters.find_drop_reason(
            line, chunk.languages, self._filters, chunk.priors
          )
          reason = filter_reason or reason
        text_index += 1
        if reason:
          dropped[reason] += 1
          continue
      remaining_lines.append(line)
    return chunk._replace(lines=remaining_lines), dropped


# Chunk processor of a worker process.
_worker: dict[str, _ChunkProcessor] = {}


def _start_worker(*arguments):
  _worker['processor'] = _ChunkProcessor(*arguments)


def _process_in_worker(chunk: Chunk) -> tuple[str, Counts]:
  return _worker['processor'](chunk)
