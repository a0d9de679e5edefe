"""SeqIO data sources over plain text files. This module imports TensorFlow.

The same readers as everywhere else (`xlflax.data.corpus.corpus_directory`) feed `tf.data` in
blocks of lines, so blank lines, encodings and errors mean the same in every
loader.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping

import seqio
import tensorflow as tf

from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.plain_text import text_source as text_rows
from xlflax.utils import errors, validation

_BLOCK = 1024
_raised: collections.deque = collections.deque(maxlen=16)


class TextSource(seqio.FunctionDataSource):
  """A source whose examples come from Python rows, in order.

  Attributes:
    text: the rows, which can be read without tf.data.
    types: of their columns, by name.
  """

  def __init__(
    self, text: text_rows.TextRows, *, types: Mapping[str, tf.DType]
  ):
    """Makes a source of rows.

    Args:
      text: what they raise, `numpy_examples` passes on.
      types: of their columns, by name.
    """
    self.text, self.types = text, dict(types)
    super().__init__(self._make_dataset, splits=tuple(text.splits))

  def num_input_examples(self, split: str) -> int:
    """Sentences or pairs of a split."""
    return self.text.count(split)

  def _make_dataset(
    self, split: str, shuffle_files: bool, seed: int | None = None
  ) -> tf.data.Dataset:
    del shuffle_files, seed  # The rows of a text come in its order.
    dataset = tf.data.Dataset.from_generator(
      lambda: text_rows.iterate_blocks(
        with_errors_kept(self.text.read(split)), list(self.types), _BLOCK
      ),
      output_signature={
        name: tf.TensorSpec([None], dtype) for name, dtype in self.types.items()
      },
    )
    return dataset.unbatch()


def of_rows(text: text_rows.TextRows) -> TextSource:
  """A source of texts and marks."""
  return TextSource(
    text,
    types={
      name: tf.bool if name == text_rows.STARTS else tf.string
      for name in text.columns
    },
  )


@validation.validate_call
def monolingual_source(corpus: Corpus, language: str) -> TextSource:
  """Lines of one language: `text` and `starts_document`."""
  return of_rows(text_rows.monolingual_rows(corpus, language))


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
