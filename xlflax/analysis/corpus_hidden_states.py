"""States of a corpus, read block by block: memory does not grow with it.

Source: ECS (Wu et al., 2020) section 5.1: a sentence is the mean of its
tokens' states; a word the mean over its tokens and over all places where a
corpus has it (500,000 sentences there), at every layer.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TypeVar

import numpy as np

from xlflax.analysis import word_vectors
from xlflax.data.corpus import language_codes, word_segmentation
from xlflax.data.supervised.featurizers import char_offsets
from xlflax.evaluation import eval_task, hidden_states, word_states
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import errors, progress_reporting

_LOG = logging.getLogger(__name__)
_SAVE_SECONDS = 300.0

_Item = TypeVar('_Item')


def sentence_blocks(
  subject: eval_task.Subject,
  texts: Iterable[str],
  language: str,
  *,
  pooling: Pooling | None = None,
  max_length: int | None = None,
  block: int = 2048,
) -> Iterator[np.ndarray]:
  """Vectors of sentences, in their order.

  Two of these, over translations, side by side are what CKA takes:

      for pair in zip(sentence_blocks(...), sentence_blocks(...), strict=True):
        sums.update(*pair)

  Args:
    subject: the model and its vocabulary.
    texts: sentences of one language; not read further than needed.
    language: its code.
    pooling: how the states of a sentence become one vector; None: as the
      model's own sentence vectors.
    max_length: tokens a sentence, at most; None: as many as these read.
    block: sentences at a time.

  Yields:
    float32 [layers + 1, n, H], n = `block` but for the last.
  """
  index, own = _language_id(subject, language), subject.sentence
  total = len(texts) if isinstance(texts, Sized) else None
  with progress_reporting.Progress('sentence states', total=total) as report:
    for taken in _blocks(texts, block):
      yield hidden_states.layer_vectors(
        subject,
        taken,
        [index] * len(taken),
        own.changed(pooling=pooling, max_length=max_length),
      ).states
      report(len(taken))


def mean_word_states(
  subject: eval_task.Subject,
  texts: Iterable[str],
  language: str,
  words: Sequence[str],
  *,
  store: word_vectors.Store | None = None,
  max_length: int | None = 128,
  block: int = 256,
  total: int | None = None,
) -> word_vectors.WordMeans:
  """The mean vector of every word over a corpus, at every layer.

  Text is encoded as it is written; a word's tokens are those that hold its
  characters and no others (a piece over two words is of neither), and the
  space before it, if that is a token of its own. Words of the text are found
  among `words` as they are written, or else in lower case.

  Args:
    subject: the model and its vocabulary.
    texts: sentences of one language, always the same in the same order where
      a store is given.
    language: its code.
    words: whose means are wanted.
    store: where sums are kept every five minutes, and at the end; what it has
      is gone on from.
    max_length: tokens a sentence, at most; None: as many as the model reads.
    block: sentences at a time.
    total: how many sentences there are, for lines about progress.

  Raises:
    AnalysisError: the store is of other words, or of another `identity`.
  """
  index = _language_id(subject, language)
  config = subject.model.config
  means = word_vectors.WordMeans(
    words,
    layers=config.num_layers + 1,
    dimension=config.hidden_dim,
    language=language,
  )
  if store is not None:
    means = store.restore(means)
  read = _Reader(subject, language, means)
  done = means.sentences
  saved = time.monotonic()
  with progress_reporting.Progress(
    'word states', done=done, total=total
  ) as report:
    for taken in _blocks(itertools.islice(texts, done, None), block):
      readings, rows = read(taken)
      found = word_states.states_of_readings(
        subject, readings, [index] * len(taken), max_length=max_length
      )
      means.update(
        ((rows[one.sentence][one.words], one.states) for one in found),
        sentences=len(taken),
      )
      report(len(taken))
      if store is not None and time.monotonic() - saved > _SAVE_SECONDS:
        store.save(means)
        saved = time.monotonic()
  if store is not None:
    store.save(means)
  return means


class _Reader:
  """Texts of a language to tokens that know the words they are part of."""

  def __init__(
    self,
    subject: eval_task.Subject,
    language: str,
    means: word_vectors.WordMeans,
  ):
    self._vocabulary = subject.vocabulary
    self._language = language
    self._segmenter = word_segmentation.Segmenter(
      language.replace('-', '_'), means.words
    )
    self._find = means.find

  def __call__(
    self, texts: list[str]
  ) -> tuple[list[word_states.Reading], list[np.ndarray]]:
    """(tokens of each text, the row in the means of each of its words)."""
    spans = char_offsets.encode_with_offsets(
      self._vocabulary, texts, self._language
    )
    read = [
      self._read(tokens, self._segmenter.split(text))
      for tokens, text in zip(spans, texts, strict=True)
    ]
    return [reading for reading, _ in read], [rows for _, rows in read]

  def _read(
    self, tokens: char_offsets.TokenSpans, parts: list[str]
  ) -> tuple[word_states.Reading, np.ndarray]:
    """Parts are separators at even places and words at odd ones."""
    words = np.full(len(tokens.token_ids), -1, np.int32)
    rows: list[int] = []
    start = 0
    for place, part in enumerate(parts):
      stop = start + len(part)
      row = self._find(part) if place % 2 else None
      covered = None if row is None else tokens.cover(start, stop)
      if row is not None and covered is not None:
        first, last = covered
        if tokens.starts[first] >= start and tokens.ends[last] <= stop:
          # A mere space before the word is a token of it, too.
          space = first > 0 and (
            tokens.starts[first - 1] == tokens.ends[first - 1] == start
          )
          words[first - space : last + 1] = len(rows)
          rows.append(row)
      start = stop
    return (
      word_states.Reading(tokens.token_ids, words),
      np.array(rows, np.int64),
    )


def _language_id(subject: eval_task.Subject, language: str) -> int:
  notes: list[str] = []
  index = language_codes.language_id(
    subject.vocabulary, language, notes, required=subject.needs_languages
  )
  for note in notes:
    _LOG.warning('%s', note)
  return index


def _blocks(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
  if size < 1:
    raise errors.ConfigError(
      'A block must hold a sentence',
      got=size,
      expected='at least 1',
      where='block',
    )
  iterator = iter(items)
  while taken := list(itertools.islice(iterator, size)):
    yield taken
