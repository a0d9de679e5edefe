"""Text samples for each language, drawn by any number of parallel jobs.

Each line has a pseudorandom key that depends on the seed, its file and its line
number. A sample of k lines consists of the lines with the k smallest keys,
regardless of which job reads them. A reservoir stores these lines. Reservoirs
drawn from shards of the text can be merged into the reservoir of the complete
text. This is bottom-k sampling (Efraimidis and Spirakis, "Weighted random
sampling with a reservoir", 2006, with equal weights).
"""

import dataclasses
import functools
import itertools
import json
import pathlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xlflax.data.corpus import corpus_files
from xlflax.data.corpus.corpus_directory import (
  TRAIN,
  Corpus,
  handler_of_bad_records,
  read_monolingual,
  read_parallel,
)
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.corpus.line_reader import Span
from xlflax.data.sampling import hashing
from xlflax.data.tokenizers import text_sampling
from xlflax.storage import paths
from xlflax.utils import errors

_SPAN_BYTES = 1 << 26  # size of the spans that jobs read
_BLOCK_LINES = 4096
_ORIGIN_NAME = 'origin'  # name of the array that stores the `Origin`


class Reservoir:
  """Random sample of a language's lines, limited to `capacity` lines.

  Each line has a random key, and the lines with the smallest keys are kept.

  Attributes:
    count: Total number of lines that were added, including lines that were not
      kept.
  """

  def __init__(self, capacity: int):
    self.count = 0
    self._capacity = capacity
    self._keys: list[np.ndarray] = []
    self._texts: list[list[str]] = []

  def add(self, keys: np.ndarray, texts: list[str]) -> None:
    """Adds lines, and keeps only the lines with the smallest random keys.

    Args:
      keys: Random key of each line, uint64 of shape [lines].
      texts: Lines to add, in the same order as `keys`.
    """
    self.count += len(texts)
    self._keys.append(keys)
    self._texts.append(texts)
    if sum(map(len, self._texts)) > 2 * self._capacity + _BLOCK_LINES:
      self._prune()

  def merge(self, other: 'Reservoir') -> None:
    """Adds the lines of another reservoir for the same language."""
    count = self.count + other.count
    for keys, texts in zip(other._keys, other._texts, strict=True):
      self.add(keys, texts)
    self.count = count

  def lines(self) -> tuple[np.ndarray, list[str]]:
    """Returns the sampled lines and their keys, in ascending order of the keys.

    The result is a pair (keys, lines), where the keys are uint64 of shape [n].
    """
    self._prune()
    return self._keys[0], self._texts[0]

  def _prune(self) -> None:
    """Reduces the sample to the `capacity` lines with the smallest keys."""
    keys = np.concatenate([np.zeros(0, np.uint64), *self._keys])
    texts = list(itertools.chain.from_iterable(self._texts))
    order = np.argsort(keys, kind='stable')[: self._capacity]
    self._keys = [keys[order]]
    self._texts = [[texts[index] for index in order.tolist()]]


@dataclasses.dataclass(frozen=True)
class _FileSpan:
  """Unit of text to sample: a byte range of a file, or a complete file.

  Attributes:
    file: Path of the text file.
    number: Index of the span within the file.
    span: Range of bytes to read. If None, the complete file is read.
  """

  file: TextFile
  number: int
  span: Span | None


def draw_reservoirs(
  corpus: Corpus, *, capacity: int, seed: int, shard: tuple[int, int] = (0, 1)
) -> dict[str, Reservoir]:
  """Draws a sample for each language from a shard of the training text.

  Args:
    corpus: Corpus that contains the text. Lines are sampled from monolingual
      text and from both languages of parallel text.
    capacity: Maximum number of lines to keep for each language.
    seed: Random seed that determines the keys by which lines are selected.
    shard: Pair (i, n) to read shard i of n shards, where i is zero-based.

  Returns:
    The reservoir of each language.
  """
  reservoirs: dict[str, Reservoir] = {}
  index, count = shard
  for span in _list_spans(corpus)[index::count]:
    relative_path = span.file.path.relative_to(corpus.directory).as_posix()
    for side, language in enumerate(span.file.languages):
      reservoir = reservoirs.setdefault(language, Reservoir(capacity))
      key = hashing.make_key(seed, 'sample', relative_path, span.number, side)
      first = 0
      for texts in _split_into_blocks(_read_lines(span, side)):
        line_numbers = np.arange(first, first + len(texts))
        reservoir.add(hashing.draw_words(key, line_numbers), texts)
        first += len(texts)
  return reservoirs


@dataclasses.dataclass(frozen=True)
class Origin:
  """Provenance of a text sample: the sampling settings and the training files.

  Attributes:
    capacity: Maximum number of lines to keep for each language.
    seed: Random seed that determines the keys by which lines are selected.
    files: Path, size and content digest of each training file.
  """

  capacity: int
  seed: int
  files: tuple[tuple[str, int, int], ...]

  @classmethod
  def from_corpus(cls, corpus: Corpus, *, capacity: int, seed: int) -> 'Origin':
    """Returns the provenance of a sample that is drawn from a corpus.

    It contains the fingerprints of the current files with training text.
    """
    files = corpus.fingerprint(TRAIN)
    return cls(capacity, seed, tuple(map(dataclasses.astuple, files)))

  def find_differences(self, required: 'Origin') -> Iterator[str]:
    """Yields the settings and files that differ from those in `required`.

    A larger capacity does not count as a difference.
    """
    if self.seed != required.seed:
      yield f'--seed={self.seed}'
    if self.capacity < required.capacity:
      yield f'--max_sentences={self.capacity}'
    changed_files = set(self.files) ^ set(required.files)
    if changed_files:
      names = sorted({name for name, *_ in changed_files})
      yield 'different content of ' + ', '.join(names[:5])


def write_reservoirs(
  directory,
  shard: tuple[int, int],
  reservoirs: Mapping[str, Reservoir],
  origin: Origin,
) -> None:
  """Writes one job's sampled lines as a shard of the text sample.

  If n jobs sample the text in parallel, each job writes one of n shards.

  Args:
    directory: Directory of the sample, which is the same for all shards.
    shard: Pair (i, n) for shard i of n shards, where i is zero-based.
    reservoirs: Mapping from language codes to reservoirs.
    origin: Sampling settings and training files from which the sample was
      drawn.
  """
  serialized_origin = json.dumps(dataclasses.asdict(origin))
  arrays: dict[str, Any] = {_ORIGIN_NAME: np.array(serialized_origin)}
  for language, reservoir in reservoirs.items():
    keys, texts = reservoir.lines()
    content = [text.encode('utf-8') for text in texts]
    arrays[f'{language}/keys'] = keys
    arrays[f'{language}/count'] = np.array(reservoir.count)
    arrays[f'{language}/sizes'] = np.array(list(map(len, content)), np.int64)
    arrays[f'{language}/text'] = np.frombuffer(b''.join(content), np.uint8)
  paths.write_atomically(
    _shard_path(directory, shard), functools.partial(np.savez, **arrays)
  )


def read_reservoirs(directory, origin: Origin) -> dict[str, Reservoir]:
  """Reads and merges the reservoirs of all shards.

  Args:
    directory: Directory to which the shards were written.
    origin: Sampling settings and training files that the shards must have. If
      the shards have a larger capacity, only the lines with the smallest keys
      are used.

  Returns:
    The reservoir of each language, in the order of their codes.

  Raises:
    CorpusError: If a shard is missing, is damaged or has a different origin, or
      if the file names of the shards contain different numbers of shards.
  """
  shard_paths = sorted(paths.to_path(directory).glob('shard-*-of-*.npz'))
  counts = {int(path.stem.rpartition('-')[2]) for path in shard_paths}
  missing = [
    f'{index}/{count}'
    for count in counts
    for index in range(count)
    if not _shard_path(directory, (index, count)).exists()
  ]
  if len(counts) != 1 or missing:
    raise errors.CorpusError(
      'The directory must contain all shards of one text sample, and all '
      'shards must have the same --num_shards. The missing shards are '
      f'{", ".join(missing[:5])}'
      if missing
      else 'The directory must contain all shards of one text sample, and all '
      'shards must have the same --num_shards',
      got=', '.join(path.name for path in shard_paths[:5]) or 'no shard',
      where=str(directory),
      fix='Run `xlflax vocab --corpus=DIR --sample_dir=DIR --shard_index=I '
      '--num_shards=N` for the missing shards.',
    )
  merged: dict[str, Reservoir] = {}
  for path in shard_paths:
    for language, keys, count, texts in _read_shard(path, origin):
      reservoir = Reservoir(origin.capacity)
      reservoir.add(keys, texts)
      reservoir.count = count
      merged.setdefault(language, Reservoir(origin.capacity)).merge(reservoir)
  return dict(sorted(merged.items()))


def sample_reservoirs(
  reservoirs: Mapping[str, Reservoir], quotas: Mapping[str, text_sampling.Quota]
) -> Iterator[str]:
  """Yields the required number of sentences from each language's reservoir.

  For n available sentences and a quota of k, each sentence is yielded k // n
  times, and the sentences with the k % n smallest keys once more.

  Args:
    reservoirs: Mapping from language codes to reservoirs.
    quotas: Number of sentences to yield for each language.
  """
  for language, quota in quotas.items():
    repeats, remainder = divmod(quota.drawn, quota.available)
    _, texts = reservoirs[language].lines()
    for index, text in enumerate(texts):
      copies = repeats + (index < remainder)
      if not copies:
        continue
      for segment in text_sampling.split_long_text(text):
        for _ in range(copies):
          yield segment


def _shard_path(directory, shard: tuple[int, int]) -> pathlib.Path:
  return paths.to_path(directory) / f'shard-{shard[0]}-of-{shard[1]}.npz'


def _list_spans(corpus: Corpus) -> list[_FileSpan]:
  """Lists the spans of all training text, in the same order for every job."""
  spans = []
  for file in corpus.files:
    if file.kind is Kind.DICTIONARY or file.split != TRAIN:
      continue
    if corpus_files.is_sequential(file.path):
      spans.append(_FileSpan(file, 0, None))
      continue
    size = file.path.stat().st_size
    spans += [
      _FileSpan(file, start // _SPAN_BYTES, Span(start, start + _SPAN_BYTES))
      for start in range(0, size, _SPAN_BYTES)
    ]
  return spans


def _read_lines(span: _FileSpan, side: int) -> Iterator[str]:
  """Reads a span's texts in one of its languages."""
  arguments = span.file.path, span.span, handler_of_bad_records(span.file)
  if span.file.kind is Kind.MONOLINGUAL:
    return (line.text for line in read_monolingual(*arguments))
  return (pair[side] for pair in read_parallel(*arguments))


def _split_into_blocks(texts: Iterable[str]) -> Iterator[list[str]]:
  texts = iter(texts)
  while block := list(itertools.islice(texts, _BLOCK_LINES)):
    yield block


def _check_origin(path: pathlib.Path, actual: Origin, required: Origin) -> None:
  """Raises a CorpusError if a shard does not have the required origin."""
  differences = list(actual.find_differences(required))
  if differences:
    raise errors.CorpusError(
      'All shards of a text sample must be drawn from the current text with '
      f'--seed={required.seed} and --max_sentences={required.capacity} or more',
      got='; '.join(differences),
      where=str(path),
      fix='Write all shards again with the same flags.',
    )


def _parse_origin(text: str) -> Origin:
  fields = json.loads(text)
  return Origin(**fields | {'files': tuple(map(tuple, fields['files']))})


def _read_shard(path: pathlib.Path, origin: Origin) -> Iterator[tuple]:
  """Yields (language, keys, count, texts) for each language of a shard."""
  try:
    with np.load(path, allow_pickle=False) as arrays:
      _check_origin(path, _parse_origin(str(arrays[_ORIGIN_NAME])), origin)
      names = sorted(
        {
          name.rpartition('/')[0]
          for name in arrays.files
          if name != _ORIGIN_NAME
        }
      )
      for language in names:
        ends = np.cumsum(arrays[f'{language}/sizes']).tolist()
        content = arrays[f'{language}/text'].tobytes()
        texts = [
          content[start:end].decode('utf-8')
          for start, end in zip([0, *ends[:-1]], ends, strict=False)
        ]
        yield (
          language,
          arrays[f'{language}/keys'],
          int(arrays[f'{language}/count']),
          texts,
        )
  except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
    raise errors.CorpusError(
      'A shard of the text sample is damaged',
      got=str(error)[:200],
      where=str(path),
      fix='Delete the file and write the shard again.',
    ) from error
