"""Word vectors at every layer, averaged over the tokens of each word.

Sentences are encoded as `<bos> tokens <eos>`, sorted by length, and evaluated
in batches of a few static shapes, as in `hidden_states`.
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
  """Token ids of a sentence and the word index of each token.

  Attributes:
    token_ids: Int32 array of shape [T], without special tokens.
    words: Int32 array of shape [T] with the index of each token's word, or -1
      if the token does not belong to a word.
  """

  token_ids: np.ndarray
  words: np.ndarray


class WordStates(NamedTuple):
  """Hidden states of a sentence's words.

  Attributes:
    sentence: Index of the sentence among the input sentences.
    states: Hidden states of the words, float32 of shape [layers + 1, W, H]. The
      embedding output comes first.
    words: Int array of shape [W] with the word numbers (see `Reading.words`) in
      ascending order. Words beyond the maximum length are left out.
  """

  sentence: int
  states: np.ndarray
  words: np.ndarray


def word_states(
  eval_model: eval_task.EvalModel,
  sentences: Sequence[Sequence[str]],
  languages: Sequence[tuple[str, int]],
  *,
  max_length: int | None = None,
) -> Iterator[WordStates]:
  """Yields hidden states of words at every layer, sentence by sentence.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    sentences: N sentences, each a list of words.
    languages: Language code and language id of each sentence. The code
      determines the encoding of words (see `word_ids.encode_words`).
    max_length: Maximum number of tokens per sentence, including `<bos>` and
      `<eos>`. It is limited to the model's maximum length, which is also used
      if None.

  Yields:
    Word states of each sentence, as in `states_of_readings`. They contain all
    words before the first word that does not fit.
  """
  encoded_sentences = [
    word_ids.encode_words(eval_model.vocabulary, sentence, code)
    for sentence, (code, _) in zip(sentences, languages, strict=True)
  ]
  return states_of_readings(
    eval_model,
    [
      Reading(sentence.token_ids, sentence.word_of_token)
      for sentence in encoded_sentences
    ],
    [language_id for _, language_id in languages],
    max_length=max_length,
  )


def states_of_readings(
  eval_model: eval_task.EvalModel,
  readings: Sequence[Reading],
  language_ids: Sequence[int],
  *,
  max_length: int | None = None,
) -> Iterator[WordStates]:
  """Yields hidden states of words at every layer, longest sentences first.

  At most two batches are held in memory.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    readings: Tokens and words of N sentences.
    language_ids: N indices into the vocabulary's languages.
    max_length: Maximum number of tokens per sentence; see `word_states`.

  Yields:
    States of each sentence.
  """
  limit = hidden_states.length_limit(eval_model, max_length)
  readings = [_truncate(reading, limit - 2) for reading in readings]
  ids = np.asarray(language_ids, np.int32)
  pending = None
  for indices, rows, length in hidden_states.language_batches(
    eval_model, [reading.token_ids for reading in readings], ids, limit
  ):
    batch = _word_rows(
      [readings[i] for i in indices],
      ids[indices],
      rows,
      length,
      eval_model.vocabulary.spec,
    )
    with batch_sharding.logical_axis_scope(eval_model.partitioner):
      batch_states = _mean_states(
        eval_model.model,
        eval_model.partitioner,
        eval_model.params['model'],
        batch_sharding.shard_batch(batch, eval_model.partitioner),
      )
    if pending is not None:
      yield from _split(*pending, readings)
    pending = indices, batch_states
  if pending is not None:
    yield from _split(*pending, readings)


def _truncate(reading: Reading, limit: int) -> Reading:
  """Returns the first tokens of a sentence, without truncated words."""
  truncated_words = np.unique(reading.words[limit:])
  word_numbers = reading.words[:limit]
  is_truncated = np.isin(word_numbers, truncated_words)
  return Reading(
    reading.token_ids[:limit],
    np.where(is_truncated, -1, word_numbers).astype(np.int32),
  )


def _word_numbers(reading: Reading) -> np.ndarray:
  """Returns the indices of the words that have tokens, in ascending order."""
  return np.unique(reading.words[reading.words >= 0])


def _split(indices, states, readings) -> Iterator[WordStates]:
  """Yields the sentences of a batch of states of shape [L + 1, rows, T, H]."""
  states = np.asarray(states)
  for row, index in enumerate(indices.tolist()):
    numbers = _word_numbers(readings[index])
    yield WordStates(index, states[:, row, : len(numbers)], numbers)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _mean_states(model, partitioner, params, batch) -> jax.Array:
  """Returns the mean states of words, float32 of shape [L + 1, rows, T, H].

  `batch['words']` of shape [rows, T] contains the word of each token, counted
  from 0 in each row, or T if the token does not belong to a word.
  """
  token_states = hidden_states.layer_states(model, params, batch)
  # Shape [rows, T, W], where W is T, the largest possible number of words.
  word_one_hot = jax.nn.one_hot(batch[_WORDS], batch[_WORDS].shape[1])
  num_tokens = jnp.sum(word_one_hot, 1, keepdims=True)
  weights = word_one_hot / jnp.maximum(num_tokens, 1)
  means = jnp.einsum(
    'lbth,btw->lbwh',
    token_states.astype(jnp.float32),
    weights,
    precision=jax.lax.Precision.HIGHEST,
  )
  return batch_sharding.replicate(means, partitioner)


def _word_rows(readings, language_ids, rows, length, spec):
  """Returns a batch of sentences with the word of each token.

  The words of a row are counted from 0. Tokens that do not belong to a word
  have the number `length`.
  """
  word_numbers = np.full((rows, length), length, np.int32)
  for row, reading in enumerate(readings):
    positions = np.searchsorted(_word_numbers(reading), reading.words)
    word_numbers[row, 1 : len(positions) + 1] = np.where(
      reading.words >= 0, positions, length
    )
  return hidden_states.token_rows(
    [reading.token_ids for reading in readings],
    language_ids,
    rows,
    length,
    spec,
  ) | {_WORDS: word_numbers}
