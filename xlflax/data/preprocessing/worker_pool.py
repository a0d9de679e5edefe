"""Processes chunks of lines, in this process or in others; order is kept."""

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

# The sides of each line: one, or two of a pair; a blank line is ('',).
Lines = list[tuple[str, ...]]


class Chunk(NamedTuple):
  """Some lines of a file.

  Attributes:
    languages: of the sides.
    lines: the lines.
    name: on which the draws of code-switching depend; None: do not switch.
    first: lines of text before these, in the file.
    left_out: which of the lines with text are not written, counted from 0,
      and why.
    priors: which languages are expected, of each side; None: as the names say.
  """

  languages: tuple[str, ...]
  lines: Lines
  name: str | None
  first: int
  left_out: Mapping[int, str] = types.MappingProxyType({})
  priors: Sequence[Prior | None] | None = None


@dataclasses.dataclass(frozen=True)
class Counts:
  """What became of lines with text.

  Attributes:
    lines: that were written.
    words: of these, that could have been switched.
    changed: words that were.
    dropped: reason -> lines that were not written.
  """

  lines: int = 0
  words: int = 0
  changed: int = 0
  dropped: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )

  def __add__(self, other: 'Counts') -> 'Counts':
    """The counts of both."""
    return Counts(
      self.lines + other.lines,
      self.words + other.words,
      self.changed + other.changed,
      self.dropped + other.dropped,
    )


class Workers:
  """Turns chunks into text; a context manager, which ends its processes."""

  def __init__(
    self,
    processing: TextProcessing,
    code_switching: CodeSwitching | None,
    dictionaries: Sequence[Dictionary],
    *,
    filters: TextFilters = TextFilters(),  # noqa: B008
    num_processes: int = 1,
  ):
    """Starts processes, if more than one is asked for."""
    self.filters = filters
    self._ahead = 3 * num_processes
    self._pool: concurrent.futures.Executor | None = None
    arguments = (processing, code_switching, tuple(dictionaries), filters)
    if num_processes == 1:
      self._process = _Lines(*arguments)
    else:
      self._pool = process_pool.start_process_pool(
        num_processes, _start, *arguments
      )

  def __enter__(self) -> 'Workers':
    return self

  def __exit__(self, *error):
    if self._pool:
      self._pool.shutdown(cancel_futures=True)

  def map(self, chunks: Iterable[Chunk]) -> Iterator[tuple[str, Counts]]:
    """Yields the text of each chunk, in order, and its counts."""
    if not self._pool:
      yield from map(self._process, chunks)
      return
    pending: collections.deque = collections.deque()
    for chunk in chunks:
      pending.append(self._pool.submit(_work, chunk))
      if len(pending) > self._ahead:
        yield process_pool.get_result(pending.popleft())
    while pending:
      yield process_pool.get_result(pending.popleft())


def processor_factory(processing: TextProcessing) -> Callable[[str], Processor]:
  """Function from a language to its `Processor`, made once."""
  return functools.cache(lambda language: Processor(language, processing))


class _Lines:
  """Processes chunks by processors and switchers that are made once."""

  def __init__(self, processing, code_switching, dictionaries, filters):
    self._filters = filters
    self._splits = processing.split_sentences
    self._processor = processor_factory(processing)
    self._switched = (
      code_switching.sources(d.languages for d in dictionaries)
      if code_switching
      else ()
    )
    self._switcher = functools.cache(
      lambda language: Switcher(language, dictionaries, code_switching)
    )

  def __call__(self, chunk: Chunk) -> tuple[str, Counts]:
    chunk, dropped = self._filtered(self._split(chunk))
    places = [i for i, line in enumerate(chunk.lines) if line[0]]
    sides = [
      list(map(self._processor(language), texts))
      for language, texts in zip(
        chunk.languages,
        zip(*(chunk.lines[i] for i in places), strict=True),
        strict=False,
      )
    ]
    num_words = changed = 0
    if (
      chunk.name is not None and places and chunk.languages[0] in self._switched
    ):
      switched = self._switcher(chunk.languages[0]).switch(
        sides[0], name=chunk.name, first=chunk.first
      )
      sides[0] = switched.lines
      num_words, changed = switched.words, switched.changed
    out = [''] * len(chunk.lines)
    for index, *texts in zip(places, *sides, strict=True):
      out[index] = '\t'.join(texts)
    text = ''.join(f'{line}\n' for line in out)
    return text, Counts(len(places), num_words, changed, dropped)

  def _split(self, chunk: Chunk) -> Chunk:
    """Monolingual text with a line for each sentence.

    Lines of the file are left out, so their sentences go with them.
    """
    if not self._splits or len(chunk.languages) > 1:
      return chunk
    lines: Lines = []
    left_out: dict[int, str] = {}
    read = written = 0
    for (text,) in chunk.lines:
      if not text:
        lines.append(('',))
        continue
      sentences = text_processing.sentences_of(text, chunk.languages[0])
      if why := chunk.left_out.get(read):
        left_out |= dict.fromkeys(range(written, written + len(sentences)), why)
      lines += [(sentence,) for sentence in sentences]
      read += 1
      written += len(sentences)
    return chunk._replace(lines=lines, left_out=left_out)

  def _filtered(self, chunk: Chunk) -> tuple[Chunk, collections.Counter]:
    """Without the lines that are dropped, and how many for which reason."""
    dropped: collections.Counter = collections.Counter()
    if self._filters.does_nothing and not chunk.left_out:
      return chunk, dropped
    kept_lines, number = [], 0
    for line in chunk.lines:
      if line[0]:
        why = text_filters.find_drop_reason(
          line, chunk.languages, self._filters, chunk.priors
        )
        why = why or chunk.left_out.get(number)
        number += 1
        if why:
          dropped[why] += 1
          continue
      kept_lines.append(line)
    return chunk._replace(lines=kept_lines), dropped


_worker: dict[str, _Lines] = {}  # What a worker process was started with.


def _start(*arguments):
  _worker['process'] = _Lines(*arguments)


def _work(chunk: Chunk) -> tuple[str, Counts]:
  return _worker['process'](chunk)
