"""SeqIO data sources over plain text files. This module imports TensorFlow.

The same readers as everywhere else (`xlflax.data.corpus.directory`) feed `tf.data` in
blocks of lines, so blank lines, encodings and errors mean the same in every
loader.
"""

import collections
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import seqio
import tensorflow as tf

from xlflax import errors
from xlflax.data.corpus.directory import Corpus, read_monolingual, read_parallel

_BLOCK = 1024
_raised: collections.deque = collections.deque(maxlen=16)


class TextSource(seqio.FunctionDataSource):
  """A source whose examples come from Python rows, in order.

  Attributes:
    rows: function of a split that gives the rows as tuples, without tf.data.
    features: names and types of the columns.
    fingerprint: function of a split that gives (path, size, time) of its
      files, for caches to notice changed text.
    files: function of a split that gives the paths of its files, in the order
      of `fingerprint`; None where the rows are not those of the files, one
      after the other.
    read_file: function of a path and of the part of it to read (None: all),
      where `files` is given.
    origins: function of a split that gives the paths of `fingerprint`.
  """

  def __init__(
    self,
    read: Callable[[str], Iterable],
    *,
    features: Mapping[str, tf.DType],
    splits: Sequence[str],
    count: Callable[[str], int],
    fingerprint: Callable[[str], tuple],
    files: Callable[[str], Sequence[pathlib.Path]] | None = None,
    read_file: Callable[..., Iterable] | None = None,
    origins: Callable[[str], Sequence[pathlib.Path]] | None = None,
  ):
    """Makes a source of `features` (one per column of the rows).

    Args:
      read: split -> rows; may raise an XlflaxError, which `numpy_examples`
        passes on.
      features: names and types of the columns.
      splits: names of the splits.
      count: split -> number of rows, asked only when it is needed.
      fingerprint: see the class.
      files: see the class.
      read_file: see the class.
      origins: see the class; None: as `fingerprint` names them.
    """
    self.rows = read
    self.features = dict(features)
    self._count = count
    self.fingerprint = fingerprint
    self.files, self.read_file = files, read_file
    self.origins = origins or (
      lambda split: [pathlib.Path(file.path) for file in fingerprint(split)]
    )
    super().__init__(self._make_dataset, splits=tuple(splits))

  def num_input_examples(self, split: str) -> int:
    """Sentences or pairs of a split."""
    return self._count(split)

  def _make_dataset(
    self, split: str, shuffle_files: bool, seed: int | None = None
  ) -> tf.data.Dataset:
    del shuffle_files, seed  # The rows of a text come in its order.
    dataset = tf.data.Dataset.from_generator(
      lambda: _blocks(self.rows(split), list(self.features)),
      output_signature={
        name: tf.TensorSpec([None], dtype)
        for name, dtype in self.features.items()
      },
    )
    return dataset.unbatch()


def monolingual_source(corpus: Corpus, language: str) -> TextSource:
  """Lines of one language: `text` and `starts_document`."""
  return TextSource(
    lambda split: corpus.monolingual(language, split),
    features={'text': tf.string, 'starts_document': tf.bool},
    splits=corpus.splits(language),
    count=lambda split: corpus.count(language, split=split),
    fingerprint=lambda split: corpus.group_fingerprint(language, split=split),
    files=lambda split: corpus.text_files(language, split=split),
    origins=lambda split: corpus.text_files(language, split=split),
    read_file=read_monolingual,
  )


def parallel_source(corpus: Corpus, languages: tuple[str, str]) -> TextSource:
  """Pairs of two languages: `inputs` and `targets`."""

  def files(split: str) -> tuple[pathlib.Path, ...]:
    return corpus.text_files(*languages, split=split)

  return TextSource(
    lambda split: corpus.parallel(*languages, split=split),
    features={'inputs': tf.string, 'targets': tf.string},
    splits=corpus.splits(*languages),
    count=lambda split: corpus.count(*languages, split=split),
    fingerprint=lambda split: corpus.group_fingerprint(*languages, split=split),
    files=files if tuple(languages) in corpus.pairs else None,
    origins=files,
    read_file=read_parallel,
  )


def numpy_examples(dataset: tf.data.Dataset) -> Iterator:
  """Iterates over a dataset as numpy; errors of the sources come through.

  TensorFlow wraps what a source raises; here a malformed line is the
  CorpusError with file and line that it was.
  """
  iterator = dataset.as_numpy_iterator()
  while True:
    try:
      yield next(iterator)
    except StopIteration:
      return
    except tf.errors.OpError as error:
      raise original_error(error) from None


def original_error(error: tf.errors.OpError) -> Exception:
  """The XlflaxError behind a TensorFlow error, or the error itself."""
  message = str(error)
  for raised in reversed(_raised):
    if str(raised) in message:
      return raised
  return error


def with_errors_kept(rows: Iterable) -> Iterator:
  """The rows; what they raise is kept for `original_error`."""
  try:
    yield from rows
  except errors.XlflaxError as error:
    _raised.append(error)
    raise


def _blocks(rows: Iterable[tuple], names: list[str]) -> Iterator[dict]:
  rows = with_errors_kept(rows)
  while block := list(itertools.islice(rows, _BLOCK)):
    yield dict(zip(names, map(list, zip(*block, strict=True)), strict=True))
