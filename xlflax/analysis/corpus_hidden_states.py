"""Hidden states for a corpus, computed block by block in constant memory.

Source: ECS (Wu et al., 2020) section 5.1. The vector of a sentence is the mean
of its tokens' states. The vector of a word is the mean over its tokens and
over all of its occurrences in a corpus (500,000 sentences in the paper), at
every layer.
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
from xlflax.utils import errors, logs, progress_reporting

_LOG = logging.getLogger(__name__)
_SAVE_SECONDS = 300.0

_Item = TypeVar('_Item')


def sentence_blocks(
  eval_model: eval_task.EvalModel,
  texts: Iterable[str],
  language: str,
  *,
  pooling: Pooling | None = None,
  max_length: int | None = None,
  block: int = 2048,
) -> Iterator[np.ndarray]:
  """Yields sentence vectors block by block, in the order of the sentences.

  The blocks of translations are the input of CKA:

      for pair in zip(sentence_blocks(...), sentence_blocks(...), strict=True):
        sums.update(*pair)

  Args:
    eval_model: Model that encodes the sentences, with its vocabulary.
    texts: Iterable of sentences in one language, which is read block by block.
    language: Language code for the sentences.
    pooling: Method that pools hidden states. If None, the pooling of the
      model's own sentence vectors.
    max_length: Maximum number of tokens per sentence. If None, the limit of the
      model's own sentence vectors.
    block: Number of sentences to process at a time.

  Yields:
    States of shape [layers + 1, n, H], float32. n equals `block`, except in the
    last block.
  """
  language_id = _language_id(eval_model, language)
  encoding = eval_model.sentence.changed(pooling=pooling, max_length=max_length)
  total = len(texts) if isinstance(texts, Sized) else None
  with progress_reporting.Progress('sentence states', total=total) as report:
    for block_texts in _blocks(texts, block):
      yield hidden_states.layer_vectors(
        eval_model, block_texts, [language_id] * len(block_texts), encoding
      ).states
      report(len(block_texts))


def mean_word_states(
  eval_model: eval_task.EvalModel,
  texts: Iterable[str],
  language: str,
  words: Sequence[str],
  *,
  store: word_vectors.Store | None = None,
  max_length: int | None = 128,
  block: int = 256,
  total: int | None = None,
) -> word_vectors.WordMeans:
  """Computes each word's mean vector over a corpus, at every layer.

  Text is encoded without splitting it into words. The tokens of a word are the
  tokens that cover only characters of the word, and the token of the preceding
  space if the space is a separate token. A token that spans two words belongs
  to neither. Words of the text are looked up in `words` as they are, and
  otherwise in lower case.

  Args:
    eval_model: Model that encodes the sentences, with its vocabulary.
    texts: Sentences in one language. If a store is given, every call must pass
      the same sentences in the same order.
    language: Language code for the sentences.
    words: Words for which mean vectors are computed.
    store: Storage for the sums of hidden states, which are saved every five
      minutes and at the end. The computation resumes from stored sums.
    max_length: Maximum number of tokens per sentence. If None, the model's
      maximum length is used.
    block: Number of sentences to process at a time.
    total: Total number of sentences, for reporting progress.

  Raises:
    AnalysisError: If the store contains sums for different words or with a
      different `identity`.
  """
  language_id = _language_id(eval_model, language)
  config = eval_model.model.config
  means = word_vectors.WordMeans(
    words,
    layers=config.num_layers + 1,
    dimension=config.hidden_dim,
    language=language,
  )
  if store is not None:
    means = store.restore(means)
  tokenizer = _WordTokenizer(eval_model, language, means)
  num_done = means.sentences
  last_save_time = time.monotonic()
  with progress_reporting.Progress(
    'word states', done=num_done, total=total
  ) as report:
    for block_texts in _blocks(itertools.islice(texts, num_done, None), block):
      readings, mean_rows = tokenizer.tokenize(block_texts)
      sentences = word_states.states_of_readings(
        eval_model,
        readings,
        [language_id] * len(block_texts),
        max_length=max_length,
      )
      means.update(
        (
          (mean_rows[sentence.sentence][sentence.words], sentence.states)
          for sentence in sentences
        ),
        sentences=len(block_texts),
      )
      report(len(block_texts))
      if (
        store is not None and time.monotonic() - last_save_time > _SAVE_SECONDS
      ):
        store.save(means)
        last_save_time = time.monotonic()
  if store is not None:
    store.save(means)
  return means


class _WordTokenizer:
  """Tokenizer that assigns each token of a text to its word."""

  def __init__(
    self,
    eval_model: eval_task.EvalModel,
    language: str,
    means: word_vectors.WordMeans,
  ):
    self._vocabulary = eval_model.vocabulary
    self._language = language
    self._segmenter = word_segmentation.Segmenter(
      language.replace('-', '_'), means.words
    )
    self._find_row = means.find

  def tokenize(
    self, texts: list[str]
  ) -> tuple[list[word_states.Reading], list[np.ndarray]]:
    """Tokenizes N texts and assigns each token to its word.

    Returns:
      The tokens of each text, and, for each text, the rows of its words in the
      array of word means.
    """
    token_spans = char_offsets.encode_with_offsets(
      self._vocabulary, texts, self._language
    )
    readings = []
    mean_rows = []
    for tokens, text in zip(token_spans, texts, strict=True):
      reading, rows = self._assign_words(tokens, self._segmenter.split(text))
      readings.append(reading)
      mean_rows.append(rows)
    return readings, mean_rows

  def _assign_words(
    self, tokens: char_offsets.TokenSpans, segments: list[str]
  ) -> tuple[word_states.Reading, np.ndarray]:
    """Assigns tokens to the words of a text.

    Args:
      tokens: The text's tokens with their character offsets.
      segments: Segments of the text. Separators have even indices, and words
        have odd indices.

    Returns:
      The tokens with the numbers of their words, and the row of each word in
      the array of word means.
    """
    word_of_token = np.full(len(tokens.token_ids), -1, np.int32)
    rows: list[int] = []
    start = 0
    for index, segment in enumerate(segments):
      stop = start + len(segment)
      row = self._find_row(segment) if index % 2 else None
      token_range = None if row is None else tokens.cover(start, stop)
      if row is not None and token_range is not None:
        first, last = token_range
        if tokens.starts[first] >= start and tokens.ends[last] <= stop:
          # A token that only covers the preceding space belongs to the word.
          has_space = first > 0 and (
            tokens.starts[first - 1] == tokens.ends[first - 1] == start
          )
          word_of_token[first - has_space : last + 1] = len(rows)
          rows.append(row)
      start = stop
    return (
      word_states.Reading(tokens.token_ids, word_of_token),
      np.array(rows, np.int64),
    )


def _language_id(eval_model: eval_task.EvalModel, language: str) -> int:
  """Returns a language's id, and logs warnings on how the id was chosen."""
  notes: list[str] = []
  language_id = language_codes.language_id(
    eval_model.vocabulary, language, notes, required=eval_model.needs_languages
  )
  for note in notes:
    _LOG.warning('%s', note, extra=logs.ONCE)
  return language_id


def _blocks(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
  """Yields lists of `size` items. The last one may be shorter."""
  if size < 1:
    raise errors.ConfigError(
      '`block` must be a positive number of sentences', got=size
    )
  iterator = iter(items)
  while block := list(itertools.islice(iterator, size)):
    yield block
