"""Vectors of words at every layer: the mean over each word's tokens.

Sentences are read as `bos tokens eos`, sorted by length, in batches of few
static shapes, as `states` reads whole sentences.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.supervised.featurizers import word_ids
from xlflax.evaluation import batch_sharding, eval_task, hidden_states

_WORDS = 'words'


class Reading(NamedTuple):
  """The T tokens of a sentence, and the word that each is part of.

  Attributes:
    token_ids: int32 [T], without special symbols.
    words: int32 [T], the number of the token's word; -1: of none.
  """

  token_ids: np.ndarray
  words: np.ndarray


class WordStates(NamedTuple):
  """Words of one sentence.

  Attributes:
    sentence: its place among those that were given.
    states: float32 [layers + 1, W, H], the embedding output first.
    words: int [W], the numbers of the words, ascending. Words that are not
      wholly among the tokens that the model reads are left out.
  """

  sentence: int
  states: np.ndarray
  words: np.ndarray


def word_states(
  subject: eval_task.Subject,
  sentences: Sequence[Sequence[str]],
  languages: Sequence[tuple[str, int]],
  *,
  max_length: int | None = None,
) -> Iterator[WordStates]:
  """The words' vectors of every layer, sentence by sentence.

  Args:
    subject: model, parameters, vocabulary, partitioner, batch size.
    sentences: N lists of words.
    languages: for each sentence its language's code, by which words are
      encoded (see `word_ids.encode_words`), and its language id.
    max_length: tokens a sentence, bos and eos included, at most; None, or
      more than the model has positions for: as many as it has.

  Yields:
    As `states_of_readings`; all words up to the first that is left out.
  """
  encoded = [
    word_ids.encode_words(subject.vocabulary, words, code)
    for words, (code, _) in zip(sentences, languages, strict=True)
  ]
  return states_of_readings(
    subject,
    [Reading(words.token_ids, words.word_of_token) for words in encoded],
    [index for _, index in languages],
    max_length=max_length,
  )


def states_of_readings(
  subject: eval_task.Subject,
  readings: Sequence[Reading],
  language_ids: Sequence[int],
  *,
  max_length: int | None = None,
) -> Iterator[WordStates]:
  """The vectors of every layer of the words of sentences.

  Args:
    subject: model, parameters, vocabulary, partitioner, batch size.
    readings: N sentences.
    language_ids: N indices into the vocabulary's languages.
    max_length: as `word_states`.

  Yields:
    Each sentence once, the longest first. The model's memory is that of two
    batches, however many sentences there are.
  """
  limit = hidden_states.length_limit(subject, max_length)
  readings = [_cut(reading, limit - 2) for reading in readings]
  ids = np.asarray(language_ids, np.int32)
  pending = None
  for indices, rows, length in hidden_states.language_batches(
    subject, [reading.token_ids for reading in readings], ids, limit
  ):
    batch = _rows(
      [readings[i] for i in indices],
      ids[indices],
      rows,
      length,
      subject.vocabulary.spec,
    )
    with batch_sharding.logical_axis_scope(subject.partitioner):
      batch_states = _mean_states(
        subject.model,
        subject.partitioner,
        subject.params['model'],
        batch_sharding.shard_batch(batch, subject.partitioner),
      )
    if pending is not None:
      yield from _split(*pending, readings)
    pending = indices, batch_states
  if pending is not None:
    yield from _split(*pending, readings)


def _cut(reading: Reading, limit: int) -> Reading:
  """The first `limit` tokens; words that go on after them are none."""
  lost = np.unique(reading.words[limit:])
  kept_words = reading.words[:limit]
  return Reading(
    reading.token_ids[:limit],
    np.where(np.isin(kept_words, lost), -1, kept_words).astype(np.int32),
  )


def _numbers(reading: Reading) -> np.ndarray:
  """The numbers of the words, ascending."""
  return np.unique(reading.words[reading.words >= 0])


def _split(indices, found, readings) -> Iterator[WordStates]:
  """The sentences of a batch of vectors [L + 1, rows, T, H]."""
  vectors = np.asarray(found)
  for row, index in enumerate(indices.tolist()):
    numbers = _numbers(readings[index])
    yield WordStates(index, vectors[:, row, : len(numbers)], numbers)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _mean_states(model, partitioner, params, batch) -> jax.Array:
  """Means over the tokens of each word: [L + 1, rows, T, H] float32.

  `batch['words']` [rows, T] numbers the words from 0, and is T where a token
  belongs to none.
  """
  token_states = hidden_states.layer_states(model, params, batch)
  word_one_hot = jax.nn.one_hot(
    batch[_WORDS], batch[_WORDS].shape[1]
  )  # [rows, T, W]
  share = word_one_hot / jnp.maximum(jnp.sum(word_one_hot, 1, keepdims=True), 1)
  means = jnp.einsum(
    'lbth,btw->lbwh',
    token_states.astype(jnp.float32),
    share,
    precision=jax.lax.Precision.HIGHEST,
  )
  return batch_sharding.replicate(means, partitioner)


def _rows(readings, language_ids, rows, length, spec):
  """The batch of some sentences, with the word that each token is of.

  The words of a row are counted from 0; a token of none has the number
  `length`.
  """
  word_ids = np.full((rows, length), length, np.int32)
  for row, reading in enumerate(readings):
    places = np.searchsorted(_numbers(reading), reading.words)
    word_ids[row, 1 : len(places) + 1] = np.where(
      reading.words >= 0, places, length
    )
  return hidden_states.token_rows(
    [reading.token_ids for reading in readings],
    language_ids,
    rows,
    length,
    spec,
  ) | {_WORDS: word_ids}
