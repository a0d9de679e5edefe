"""A sample of every language of a corpus, drawn in one pass by any number.

Each line has a random key that follows from the seed, its file and its place.
The sample of k lines are those with the k smallest keys, whoever reads them:
a reservoir keeps these, and reservoirs of parts of the text merge into that of
all of it. (So-called bottom-k sampling; Efraimidis and Spirakis, "Weighted
random sampling with a reservoir", 2006, with equal weights.)
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
  read_monolingual,
  read_parallel,
)
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.corpus.line_reader import Span
from xlflax.data.sampling import hashing
from xlflax.data.tokenizers import text_sampling
from xlflax.storage import paths
from xlflax.utils import errors

_SPAN = 1 << 26  # bytes of a file that are read at once
_BLOCK = 4096
_ABOUT = 'origin'


class Reservoir:
  """The lines of one language with the smallest keys.

  Attributes:
    count: lines that were seen.
  """

  def __init__(self, capacity: int):
    self.count = 0
    self._capacity = capacity
    self._keys: list[np.ndarray] = []
    self._texts: list[list[str]] = []

  def add(self, keys: np.ndarray, texts: list[str]) -> None:
    """Shows lines to it; `keys` are uint64 [lines]."""
    self.count += len(texts)
    self._keys.append(keys)
    self._texts.append(texts)
    if sum(map(len, self._texts)) > 2 * self._capacity + _BLOCK:
      self._prune()

  def merge(self, other: 'Reservoir') -> None:
    """Shows it what another one was shown."""
    count = self.count + other.count
    for keys, texts in zip(other._keys, other._texts, strict=True):
      self.add(keys, texts)
    self.count = count

  def lines(self) -> tuple[np.ndarray, list[str]]:
    """The keys, rising, uint64 [n], and the lines."""
    self._prune()
    return self._keys[0], self._texts[0]

  def _prune(self) -> None:
    keys = np.concatenate([np.zeros(0, np.uint64), *self._keys])
    texts = [text for part in self._texts for text in part]
    order = np.argsort(keys, kind='stable')[: self._capacity]
    self._keys = [keys[order]]
    self._texts = [[texts[index] for index in order.tolist()]]


@dataclasses.dataclass(frozen=True)
class _Piece:
  """Some lines of a file, numbered from 0."""

  file: TextFile
  number: int  # of the span
  span: Span | None


def draw_reservoirs(
  corpus: Corpus, *, capacity: int, seed: int, share: tuple[int, int] = (0, 1)
) -> dict[str, Reservoir]:
  """The reservoirs of a share of a corpus's training text, by language.

  Args:
    corpus: monolingual lines, and both sides of pairs.
    capacity: lines that are kept of each language.
    seed: of the keys.
    share: (i, n): the i-th share of n.
  """
  out: dict[str, Reservoir] = {}
  for piece in _pieces(corpus)[share[0] :: share[1]]:
    relative_path = piece.file.path.relative_to(corpus.directory).as_posix()
    for side, language in enumerate(piece.file.languages):
      reservoir = out.setdefault(language, Reservoir(capacity))
      key = hashing.make_key(seed, 'sample', relative_path, piece.number, side)
      first = 0
      for texts in _blocks(_lines(piece, side)):
        numbers = np.arange(first, first + len(texts))
        reservoir.add(hashing.draw_words(key, numbers), texts)
        first += len(texts)
  return out


@dataclasses.dataclass(frozen=True)
class Origin:
  """What a sample follows from.

  Attributes:
    capacity: lines that are kept of each language.
    seed: of the keys.
    files: Path, size and digest of the content of each file of training text.
  """

  capacity: int
  seed: int
  files: tuple[tuple[str, int, int], ...]

  @classmethod
  def of(cls, corpus: Corpus, *, capacity: int, seed: int) -> 'Origin':
    """That of a sample of a corpus as it is now."""
    files = corpus.fingerprint(TRAIN)
    return cls(capacity, seed, tuple(map(dataclasses.astuple, files)))

  def problems(self, wanted: 'Origin') -> Iterator[str]:
    """Why a share of this origin is not one of another, a phrase each."""
    if self.seed != wanted.seed:
      yield f'--seed={self.seed}'
    if self.capacity < wanted.capacity:
      yield f'--max_sentences={self.capacity}'
    changed = set(self.files) ^ set(wanted.files)
    if changed:
      names = sorted({name for name, *_ in changed})
      yield 'other text: ' + ', '.join(names[:5])


def write_reservoirs(
  directory,
  share: tuple[int, int],
  drawn: Mapping[str, Reservoir],
  origin: Origin,
) -> None:
  """Writes the reservoirs of a share to a directory that all shares have."""
  about = json.dumps(dataclasses.asdict(origin))
  arrays: dict[str, Any] = {_ABOUT: np.array(about)}
  for language, reservoir in drawn.items():
    keys, texts = reservoir.lines()
    content = [text.encode('utf-8') for text in texts]
    arrays[f'{language}/keys'] = keys
    arrays[f'{language}/count'] = np.array(reservoir.count)
    arrays[f'{language}/sizes'] = np.array(list(map(len, content)), np.int64)
    arrays[f'{language}/text'] = np.frombuffer(b''.join(content), np.uint8)
  paths.write_atomically(
    _file(directory, share), functools.partial(np.savez, **arrays)
  )


def read_reservoirs(directory, origin: Origin) -> dict[str, Reservoir]:
  """The merged reservoirs of all shares.

  Args:
    directory: that the shares were written to.
    origin: what they have to follow from; of a larger capacity, the first
      lines are taken.

  Raises:
    CorpusError: a share is missing, damaged or of another origin, or there
      are shares of two divisions.
  """
  shard_paths = sorted(paths.to_path(directory).glob('share-*-of-*.npz'))
  counts = {int(path.stem.rpartition('-')[2]) for path in shard_paths}
  missing = [
    f'{index}/{count}'
    for count in counts
    for index in range(count)
    if not _file(directory, (index, count)).exists()
  ]
  if len(counts) != 1 or missing:
    raise errors.CorpusError(
      'The sample of the text is not complete',
      got=', '.join(path.name for path in shard_paths[:5]) or 'no share',
      expected='all shares of one division'
      + (f'; missing: {", ".join(missing[:5])}' if missing else ''),
      where=str(directory),
      fix='Run xlflax vocab --corpus=DIR --sample_dir=DIR --shard_index=I '
      '--num_shards=N for them.',
    )
  out: dict[str, Reservoir] = {}
  for path in shard_paths:
    for language, keys, count, texts in _read_share(path, origin):
      part = Reservoir(origin.capacity)
      part.add(keys, texts)
      part.count = count
      out.setdefault(language, Reservoir(origin.capacity)).merge(part)
  return dict(sorted(out.items()))


def sample_reservoirs(
  drawn: Mapping[str, Reservoir], quotas: Mapping[str, text_sampling.Quota]
) -> Iterator[str]:
  """Yields the drawn sentences, as `text_sampling.sample_sentences` does of a corpus.

  Of n sentences and a quota k, each comes k // n times, and those with the
  k % n smallest keys once more.
  """
  for language, quota in quotas.items():
    repeats, remainder = divmod(quota.drawn, quota.available)
    _, texts = drawn[language].lines()
    for index, text in enumerate(texts):
      times = repeats + (index < remainder)
      for part in text_sampling.split_long_text(text) if times else ():
        for _ in range(times):
          yield part


def _file(directory, share: tuple[int, int]) -> pathlib.Path:
  return paths.to_path(directory) / f'share-{share[0]}-of-{share[1]}.npz'


def _pieces(corpus: Corpus) -> list[_Piece]:
  """All training text, in an order that is the same everywhere."""
  out = []
  for file in corpus.files:
    if file.kind is Kind.DICTIONARY or file.split != TRAIN:
      continue
    if corpus_files.is_sequential(file.path):
      out.append(_Piece(file, 0, None))
      continue
    size = file.path.stat().st_size
    out += [
      _Piece(file, start // _SPAN, Span(start, start + _SPAN))
      for start in range(0, size, _SPAN)
    ]
  return out


def _lines(piece: _Piece, side: int) -> Iterator[str]:
  if piece.file.kind is Kind.MONOLINGUAL:
    return (line.text for line in read_monolingual(piece.file.path, piece.span))
  return (pair[side] for pair in read_parallel(piece.file.path, piece.span))


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
  texts = iter(texts)
  while block := list(itertools.islice(texts, _BLOCK)):
    yield block


def _check_origin(path: pathlib.Path, found: Origin, wanted: Origin) -> None:
  problems = list(found.problems(wanted))
  if problems:
    raise errors.CorpusError(
      'A share of the sample was drawn with other settings or from other text',
      got='; '.join(problems),
      expected=f'--seed={wanted.seed}, --max_sentences={wanted.capacity} or '
      'more, and the text as it is now',
      where=str(path),
      fix='write all shares again with the same flags',
    )


def _origin(text: str) -> Origin:
  fields = json.loads(text)
  return Origin(**fields | {'files': tuple(map(tuple, fields['files']))})


def _read_share(path: pathlib.Path, origin: Origin) -> Iterator[tuple]:
  """(language, keys, count, texts) of each language of a share."""
  try:
    with np.load(path, allow_pickle=False) as arrays:
      _check_origin(path, _origin(str(arrays[_ABOUT])), origin)
      names = sorted(
        {name.rpartition('/')[0] for name in arrays.files if name != _ABOUT}
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
      'A share of the sample is damaged',
      got=str(error)[:200],
      where=str(path),
      fix='delete it, and write it again',
    ) from error
