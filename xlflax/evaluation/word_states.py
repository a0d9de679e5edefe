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

from xlflax.data import batch as batch_lib
from xlflax.data.labelled import words as words_lib
from xlflax.evaluation import base, placement, states
from xlflax.models import sharing
from xlflax.objectives import inputs

_WORDS = 'words'


class WordStates(NamedTuple):
  """The words of one sentence.

  Attributes:
    sentence: its place among those that were given.
    states: float32 [layers + 1, W, H], the embedding output first. Words that
      are not wholly among the tokens that the model reads are left out, so
      that W may be less than the sentence's number of words.
  """

  sentence: int
  states: np.ndarray


def word_states(
    subject: base.Subject, sentences: Sequence[Sequence[str]],
    languages: Sequence[tuple[str, int]], *, max_length: int | None = None
) -> Iterator[WordStates]:
  """The words' vectors of every layer, sentence by sentence.

  Args:
    subject: model, parameters, vocabulary, partitioner, batch size.
    sentences: N lists of words.
    languages: for each sentence its language's code, by which words are
      encoded (see `words.encode_words`), and its language id.
    max_length: tokens a sentence, bos and eos included, at most; None, or
      more than the model has positions for: as many as it has.

  Yields:
    Each sentence once, the longest first. The model's memory is that of two
    batches, however many sentences there are.
  """
  limit = min(max_length or subject.model.config.max_length,
              subject.model.config.max_length)
  encoded = [_cut(words_lib.encode_words(subject.vocabulary, words, code),
                  limit - 2)
             for words, (code, _) in zip(sentences, languages, strict=True)]
  ids = np.array([index for _, index in languages], np.int32)
  pending = None
  for indices, rows, length in states.language_batches(
      subject, [words.token_ids for words in encoded], ids, limit):
    batch = _rows([encoded[i] for i in indices], ids[indices], rows, length,
                  subject.vocabulary.spec)
    with placement.scope(subject.partitioner):
      found = _mean_states(
          subject.model, subject.partitioner, subject.params['model'],
          placement.put(batch, subject.partitioner))
    if pending is not None:
      yield from _split(*pending, encoded)
    pending = indices, found
  if pending is not None:
    yield from _split(*pending, encoded)


def _cut(words: words_lib.EncodedWords, limit: int) -> words_lib.EncodedWords:
  """The words all of whose tokens are among the first `limit`."""
  ends = np.cumsum(words.lengths)
  kept = int(np.searchsorted(ends, limit, side='right'))
  return words_lib.EncodedWords(
      words.token_ids[:ends[kept - 1] if kept else 0], words.lengths[:kept])


def _split(indices, found, encoded) -> Iterator[WordStates]:
  """The sentences of a batch of vectors [L + 1, rows, T, H]."""
  vectors = np.asarray(found)
  for row, index in enumerate(indices.tolist()):
    count = len(encoded[index].lengths)
    yield WordStates(index, vectors[:, row, :count])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _mean_states(model, partitioner, params, batch) -> jax.Array:
  """Means over the tokens of each word: [L + 1, rows, T, H] float32.

  `batch['words']` [rows, T] numbers the words from 0, and is T where a token
  belongs to none.
  """
  params = sharing.select(sharing.plan_of(model), params,
                          inputs.language_of(batch))
  found = model.apply(
      {'params': params}, batch[batch_lib.TOKEN_IDS],
      segment_ids=batch[batch_lib.SEGMENT_IDS],
      positions=batch[batch_lib.POSITIONS],
      language_ids=batch[batch_lib.LANGUAGE_IDS],
      method='encode_layers')
  words = jax.nn.one_hot(batch[_WORDS], batch[_WORDS].shape[1])  # [rows, T, W]
  share = words / jnp.maximum(jnp.sum(words, 1, keepdims=True), 1)
  means = jnp.einsum('lbth,btw->lbwh', found.astype(jnp.float32), share,
                     precision=jax.lax.Precision.HIGHEST)
  return placement.replicated(means, partitioner)


def _rows(encoded, language_ids, rows, length, spec):
  """The batch of some sentences, with the word that each token is of."""
  words = np.full((rows, length), length, np.int32)
  for row, sentence in enumerate(encoded):
    words[row, 1:len(sentence.token_ids) + 1] = sentence.word_of_token
  return states.token_rows(
      [sentence.token_ids for sentence in encoded], language_ids, rows,
      length, spec) | {_WORDS: words}
