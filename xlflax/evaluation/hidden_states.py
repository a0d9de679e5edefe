"""Sentence vectors of every layer, in batches of few static shapes.

Sentences are sorted by length, cut into batches and padded to the next length
of a short list, so that one jitted function is compiled at most once for each
length in the list, whatever the text. The order is restored at the end.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.evaluation import batch_sharding, eval_task, sentence_embedding
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import model_calls
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import errors, progress_reporting

_SHORTEST = 16  # rows are never padded to less
_FULL_BATCH_LENGTH = 128  # longer rows come in smaller batches

_WEIGHTS = 'weights'

Tokens = Sequence[int] | np.ndarray


class SentenceStates(NamedTuple):
  """Vectors of N sentences.

  Attributes:
    states: float32 [layers + 1, N, H], the embedding output first; or
      [chosen layers, N, H].
    truncated: how many sentences were longer than the model reads.
  """

  states: np.ndarray
  truncated: int


class SentenceVectors(NamedTuple):
  """Vectors [N, D] of N sentences, and how many sentences were cut."""

  vectors: np.ndarray
  truncated: int


def sentence_vectors(
  subject: eval_task.Subject,
  texts: Sequence[str],
  language_ids: Sequence[int],
  encoding: sentence_embedding.SentenceEncoding | None = None,
  *,
  prompt: str | None = None,
) -> SentenceVectors:
  """The vector of each sentence, as a model's own definition says.

  Args:
    subject: the model and the definition.
    texts: N sentences.
    language_ids: N indices into the vocabulary's languages.
    encoding: another definition.
    prompt: stands before each text; None: the definition's default.
  """
  sentence_encoding = subject.sentence if encoding is None else encoding
  layers = [
    layer_index(subject, layer, where='sentence vector')
    for layer in sentence_encoding.layers
  ]
  result = layer_vectors(
    subject,
    texts,
    language_ids,
    sentence_encoding,
    prompt=prompt,
    layers=layers,
  )
  heads = subject.params.get('heads', {})
  return SentenceVectors(
    sentence_encoding.apply(heads, result.states.mean(0)), result.truncated
  )


def layer_vectors(
  subject: eval_task.Subject,
  texts: Sequence[str],
  language_ids: Sequence[int],
  encoding: sentence_embedding.SentenceEncoding,
  *,
  prompt: str | None = None,
  layers: Sequence[int] | None = None,
) -> SentenceStates:
  """What `sentence_vectors` maps by dense layers, of every layer or of some."""
  before = encoding.prompt() if prompt is None else prompt
  return sentence_states(
    subject,
    [before + text for text in texts] if before else texts,
    language_ids,
    pooling=encoding.pooling,
    max_length=encoding.max_length,
    layers=layers,
  )


def sentence_states(
  subject: eval_task.Subject,
  texts: Sequence[str],
  language_ids: Sequence[int],
  *,
  pooling: Pooling = Pooling.MEAN,
  max_length: int | None = None,
  layers: Sequence[int] | None = None,
) -> SentenceStates:
  """Pooled states of every layer, or of some.

  A sentence is read as `bos pieces eos`. `Pooling.MEAN` averages over the
  tokens that are not special (over all if there is no other); `MEAN_ALL` over
  all tokens; `FIRST` takes the state of bos.

  Args:
    subject: model, parameters, vocabulary, partitioner, batch size.
    texts: N sentences.
    language_ids: N indices into the vocabulary's languages.
    pooling: how the states of a sentence become one vector.
    max_length: tokens a sentence, bos and eos included, at most and if the
      model has as many positions; None: as many as it has.
    layers: those to return, the embedding output being 0; None: all.

  Returns:
    The states in the order of `texts`, and how many texts were cut.
  """
  return token_states(
    subject,
    subject.vocabulary.encode_each(list(texts), language_ids),
    language_ids,
    pooling=pooling,
    max_length=max_length,
    layers=layers,
  )


def token_states(
  subject: eval_task.Subject,
  token_ids: Sequence[Sequence[int]],
  language_ids: Sequence[int],
  *,
  pooling: Pooling = Pooling.MEAN,
  max_length: int | None = None,
  layers: Sequence[int] | None = None,
) -> SentenceStates:
  """`sentence_states` of N lists of ids, without special symbols."""
  limit = length_limit(subject, max_length)
  truncated = sum(len(ids) > limit - 2 for ids in token_ids)
  token_ids = [ids[: limit - 2] for ids in token_ids]
  config = subject.model.config
  count = config.num_layers + 1 if layers is None else len(layers)
  states = np.empty((count, len(token_ids), config.hidden_dim), np.float32)
  for indices, pooled in _run(
    subject, token_ids, np.asarray(language_ids, np.int32), pooling, limit
  ):
    pooled = pooled if layers is None else pooled[np.asarray(layers)]
    states[:, indices] = np.asarray(pooled)[:, : len(indices)]
  return SentenceStates(states, truncated)


def length_limit(subject: eval_task.Subject, max_length: int | None) -> int:
  """Tokens that are read of a sentence at most, bos and eos included.

  Args:
    subject: its model has so many positions.
    max_length: what is asked for; None: as many as there are.

  Raises:
    ConfigError: there would be no room for text.
  """
  model_limit = subject.model.config.max_length
  limit = model_limit if max_length is None else min(max_length, model_limit)
  if limit < 3:
    raise errors.ConfigError(
      'There is no room for text between bos and eos',
      got=limit,
      expected='3 tokens or more',
      where='max_length',
      fix='give a greater max_length, or None for all that the model reads',
    )
  return limit


def layer_index(subject: eval_task.Subject, layer: int, *, where: str) -> int:
  """A layer counted from 0, where negative numbers count from the end.

  Raises:
    ConfigError: the model has no such layer.
  """
  num_layers = subject.model.config.num_layers
  if not -num_layers - 1 <= layer <= num_layers:
    raise errors.ConfigError(
      'The model has no such layer',
      got=layer,
      expected=f'0 (embeddings) to {num_layers}, or counted from the end',
      where=f'{where}.layer',
    )
  return layer % (num_layers + 1)


def bucket_lengths(max_length: int) -> tuple[int, ...]:
  """The lengths rows are padded to: 16, 24, 32, 48, 64, … and `max_length`.

  With powers of two alone, a tenth more time went into padding.
  """
  lengths = []
  length = _SHORTEST
  while length < max_length:
    lengths += [length, length * 3 // 2]
    length *= 2
  return (*(n for n in lengths if n < max_length), max_length)


def plan_batches(
  lengths: Sequence[int], *, max_length: int, batch_size: int, multiple: int = 1
) -> Iterator[tuple[np.ndarray, int, int]]:
  """Cuts sentences, longest first, into batches of static shapes.

  Args:
    lengths: tokens of each sentence, bos and eos included.
    max_length: the longest possible sentence.
    batch_size: rows a batch, fewer where rows exceed 128 tokens.
    multiple: every batch has a multiple of this many rows.

  Yields:
    (indices [n] of the sentences, rows >= n, row length): the shape
    (rows, row length) takes no more values than there are bucket lengths.
  """
  buckets = bucket_lengths(max_length)
  order = np.argsort(-np.asarray(lengths), kind='stable')
  start = 0
  progress_name = progress_reporting.current_progress_name()
  with progress_reporting.Progress(
    progress_name, unit='rows', total=len(order)
  ) as report:
    while start < len(order):
      length = next(b for b in buckets if b >= lengths[order[start]])
      rows = max(1, min(batch_size, batch_size * _FULL_BATCH_LENGTH // length))
      rows = -(-rows // multiple) * multiple
      yield order[start : start + rows], rows, length
      report(min(rows, len(order) - start))
      start += rows


def _run(subject, token_ids, language_ids, pooling, limit):
  """Yields (indices, pooled [L + 1, rows, H]), one batch ahead of the reader.

  The next batch is dispatched before the last is handed out, so that the
  device works while the host copies.
  """
  params = subject.params['model']
  pending = None
  for indices, rows, length in language_batches(
    subject, token_ids, language_ids, limit
  ):
    batch = _rows(
      [token_ids[i] for i in indices],
      language_ids[indices],
      rows,
      length,
      subject.vocabulary.spec,
      pooling,
    )
    with batch_sharding.logical_axis_scope(subject.partitioner):
      pooled = pooled_states(
        subject.model,
        subject.partitioner,
        params,
        batch_sharding.shard_batch(batch, subject.partitioner),
      )
    if pending is not None:
      yield pending
    pending = indices, pooled
  if pending is not None:
    yield pending


def language_batches(
  subject: eval_task.Subject,
  token_ids: Sequence[Tokens],
  language_ids: np.ndarray,
  limit: int,
) -> Iterator[tuple[np.ndarray, int, int]]:
  """Plans batches, each of one language where languages have their own parts.

  Args:
    subject: the model; its sharing plan decides.
    token_ids: N sentences.
    language_ids: int [N].
    limit: tokens a sentence, at most.

  Yields:
    What `plan_batches` yields.
  """
  lengths = np.array([len(ids) + 2 for ids in token_ids], np.int64)
  groups = [np.arange(len(lengths))]
  if subject.sharing is not None:
    groups = [
      np.flatnonzero(language_ids == language)
      for language in np.unique(language_ids)
    ]
  for group in groups:
    for indices, rows, length in plan_batches(
      lengths[group].tolist(),
      max_length=limit,
      batch_size=subject.batch_size,
      multiple=batch_sharding.row_multiple(subject.partitioner),
    ):
      yield group[indices], rows, length


def layer_states(model, params, batch) -> jax.Array:
  """States of a batch's tokens at every layer: [L + 1, rows, T, H]."""
  params = parameter_sharing.select_language_params(
    parameter_sharing.plan_of(model), params, model_calls.language_of(batch)
  )
  return model.apply(
    {'params': params},
    batch[batch_keys.TOKEN_IDS],
    segment_ids=batch[batch_keys.SEGMENT_IDS],
    positions=batch[batch_keys.POSITIONS],
    language_ids=batch[batch_keys.LANGUAGE_IDS],
    method='encode_layers',
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def pooled_states(model, partitioner, params, batch) -> jax.Array:
  """Weighted sums of the states of each row: [L + 1, rows, H] float32."""
  states = layer_states(model, params, batch)
  pooled = jnp.einsum(  # [L + 1, rows, T, H], [rows, T] -> [L + 1, rows, H]
    'lbth,bt->lbh',
    states.astype(jnp.float32),
    batch[_WEIGHTS],
    precision=jax.lax.Precision.HIGHEST,
  )
  return batch_sharding.replicate(pooled, partitioner)


def _rows(token_ids, language_ids, rows, length, spec, pooling):
  """The batch of some sentences, with the weights of their tokens."""
  batch = token_rows(token_ids, language_ids, rows, length, spec)
  return batch | {
    _WEIGHTS: _weights(
      batch[batch_keys.TOKEN_IDS],
      batch[batch_keys.SEGMENT_IDS] > 0,
      spec,
      pooling,
    )
  }


def token_rows(
  token_ids: Sequence[Tokens],
  language_ids: np.ndarray,
  rows: int,
  length: int,
  spec,
) -> batch_keys.Batch:
  """The batch of some sentences: arrays [rows, length].

  Rows without a sentence hold `bos eos`: no row is all padding, which an
  attention mask could not be made for.

  Args:
    token_ids: of n <= rows sentences, without special symbols.
    language_ids: of each of them, [n].
    rows: number of rows.
    length: their length.
    spec: special symbols.
  """
  tokens = np.full((rows, length), spec.pad_id, np.int32)
  segments = np.zeros((rows, length), np.int32)
  languages = np.zeros((rows, length), np.int32)
  for row in range(rows):
    ids = token_ids[row] if row < len(token_ids) else ()
    end = len(ids) + 2
    tokens[row, :end] = (spec.bos_id, *ids, spec.eos_id)
    segments[row, :end] = 1
    if row < len(token_ids):
      languages[row, :end] = language_ids[row]
  positions = np.broadcast_to(np.arange(length, dtype=np.int32), tokens.shape)
  return {
    batch_keys.TOKEN_IDS: tokens,
    batch_keys.SEGMENT_IDS: segments,
    batch_keys.POSITIONS: positions,
    batch_keys.LANGUAGE_IDS: languages,
  }


def _weights(tokens, present, spec, pooling) -> np.ndarray:
  """What each token counts for in the sentence's vector: [rows, length]."""
  if pooling is Pooling.FIRST:
    counted = np.arange(tokens.shape[1])[None, :] < np.ones((len(tokens), 1))
  elif pooling is Pooling.MEAN_ALL:
    counted = present
  else:
    counted = present & ~np.isin(tokens, spec.special_ids)
    counted = np.where(counted.any(-1, keepdims=True), counted, present)
  return (counted / counted.sum(-1, keepdims=True)).astype(np.float32)
