"""Computation of sentence vectors in batches with a few static shapes.

Sentences are sorted by length, divided into batches and padded to one of a few
lengths (see `bucket_lengths`). A jitted function is therefore compiled at most
once per length, independent of the text. The original order is restored at the
end.
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

_MIN_LENGTH = 16  # minimum length of padded sequences
# Batches of sequences with more tokens than this have fewer sequences.
_FULL_BATCH_LENGTH = 128

_WEIGHTS = 'weights'

Tokens = Sequence[int] | np.ndarray


class SentenceStates(NamedTuple):
  """Pooled hidden states of N sentences.

  Attributes:
    states: Float32 array of shape [layers + 1, N, H], the embedding output
      first, or of shape [selected layers, N, H].
    truncated: Number of sentences that exceeded the maximum length.
  """

  states: np.ndarray
  truncated: int


class SentenceVectors(NamedTuple):
  """Vectors of N sentences and the number of truncated sentences.

  Attributes:
    vectors: Float32 array of shape [N, D].
    truncated: Number of sentences that exceeded the maximum length.
  """

  vectors: np.ndarray
  truncated: int


def sentence_vectors(
  eval_model: eval_task.EvalModel,
  texts: Sequence[str],
  language_ids: Sequence[int],
  encoding: sentence_embedding.SentenceEmbedding | None = None,
  *,
  prompt: str | None = None,
) -> SentenceVectors:
  """Computes sentence vectors with the pooling that the model defines.

  Args:
    eval_model: Model with its sentence-vector definition.
    texts: N sentences.
    language_ids: N indices into the vocabulary's languages.
    encoding: Definition of sentence vectors to use. If None, the model's own
      definition is used.
    prompt: Text that is prepended to each sentence. If None, the default prompt
      of the sentence-vector definition is used.

  Returns:
    The vectors in the order of `texts`, and the number of truncated texts.
  """
  sentence_encoding = eval_model.sentence if encoding is None else encoding
  layers = [
    layer_index(eval_model, layer, where='sentence vector')
    for layer in sentence_encoding.layers
  ]
  result = layer_vectors(
    eval_model,
    texts,
    language_ids,
    sentence_encoding,
    prompt=prompt,
    layers=layers,
  )
  heads = eval_model.params.get('heads', {})
  return SentenceVectors(
    sentence_encoding.apply(heads, result.states.mean(0)), result.truncated
  )


def layer_vectors(
  eval_model: eval_task.EvalModel,
  texts: Sequence[str],
  language_ids: Sequence[int],
  encoding: sentence_embedding.SentenceEmbedding,
  *,
  prompt: str | None = None,
  layers: Sequence[int] | None = None,
) -> SentenceStates:
  """Pools hidden states of each layer, without layer averaging or dense layers.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    texts: N sentences.
    language_ids: N indices into the vocabulary's languages.
    encoding: Sentence-vector definition with pooling, prompts and maximum
      length.
    prompt: Text that is prepended to each sentence. If None, the default prompt
      of the sentence-vector definition is used.
    layers: Layers to return, where 0 is the embedding output. If None, all
      layers are returned.

  Returns:
    The states in the order of `texts`, and the number of truncated texts.
  """
  prefix = encoding.prompt() if prompt is None else prompt
  return sentence_states(
    eval_model,
    [prefix + text for text in texts] if prefix else texts,
    language_ids,
    pooling=encoding.pooling,
    max_length=encoding.max_length,
    layers=layers,
  )


def sentence_states(
  eval_model: eval_task.EvalModel,
  texts: Sequence[str],
  language_ids: Sequence[int],
  *,
  pooling: Pooling = Pooling.MEAN,
  max_length: int | None = None,
  layers: Sequence[int] | None = None,
) -> SentenceStates:
  """Computes the pooled hidden states of sentences at all or selected layers.

  A sentence is encoded as `<bos> tokens <eos>`. `Pooling.MEAN` averages over
  the tokens that are not special (or over all tokens if all are special),
  `Pooling.MEAN_ALL` averages over all tokens, and `Pooling.FIRST` takes the
  state of `<bos>`.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    texts: N sentences.
    language_ids: N indices into the vocabulary's languages.
    pooling: Method that reduces a sentence's hidden states to one vector.
    max_length: Maximum number of tokens per sentence, including `<bos>` and
      `<eos>`. It is limited to the model's maximum length, which is also used
      if None.
    layers: Layers to return, where 0 is the embedding output. If None, all
      layers are returned.

  Returns:
    The states in the order of `texts`, and the number of truncated texts.
  """
  return token_states(
    eval_model,
    eval_model.vocabulary.encode_each(list(texts), language_ids),
    language_ids,
    pooling=pooling,
    max_length=max_length,
    layers=layers,
  )


def token_states(
  eval_model: eval_task.EvalModel,
  token_ids: Sequence[Sequence[int]],
  language_ids: Sequence[int],
  *,
  pooling: Pooling = Pooling.MEAN,
  max_length: int | None = None,
  layers: Sequence[int] | None = None,
) -> SentenceStates:
  """Computes the pooled hidden states of N token sequences.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    token_ids: Token ids of N sentences, without special tokens.
    language_ids: N indices into the vocabulary's languages.
    pooling: Method that reduces a sentence's hidden states to one vector.
    max_length: Maximum number of tokens per sentence; see `sentence_states`.
    layers: Layers to return, where 0 is the embedding output. If None, all
      layers are returned.
  """
  limit = length_limit(eval_model, max_length)
  truncated = sum(len(ids) > limit - 2 for ids in token_ids)
  token_ids = [ids[: limit - 2] for ids in token_ids]
  config = eval_model.model.config
  num_states = config.num_layers + 1 if layers is None else len(layers)
  states = np.empty((num_states, len(token_ids), config.hidden_dim), np.float32)
  for indices, pooled in _pooled_batches(
    eval_model, token_ids, np.asarray(language_ids, np.int32), pooling, limit
  ):
    pooled = pooled if layers is None else pooled[np.asarray(layers)]
    states[:, indices] = np.asarray(pooled)[:, : len(indices)]
  return SentenceStates(states, truncated)


def length_limit(
  eval_model: eval_task.EvalModel, max_length: int | None
) -> int:
  """Returns the maximum number of tokens per sentence.

  The number includes `<bos>` and `<eos>`.

  Args:
    eval_model: Model whose maximum sequence length must not be exceeded.
    max_length: Requested maximum. If None, the model's maximum length is used.

  Raises:
    ConfigError: If special tokens alone would fill `max_length`.
  """
  model_limit = eval_model.model.config.max_position_embeddings
  limit = model_limit if max_length is None else min(max_length, model_limit)
  if limit < 3:
    raise errors.ConfigError(
      '`max_length` must be at least 3 tokens, because <bos> and <eos> take up '
      'two positions',
      got=limit,
      fix='Increase `max_length`, or set it to None to use the maximum length '
      'of the model.',
    )
  return limit


def layer_index(
  eval_model: eval_task.EvalModel, layer: int, *, where: str
) -> int:
  """Converts a layer number, which may be negative, to a zero-based index.

  Args:
    eval_model: Model that contains the layer.
    layer: Layer number. Negative numbers count from the last layer.
    where: Location that the error message reports, such as the name of a task.

  Raises:
    ConfigError: If the model does not have the layer.
  """
  num_layers = eval_model.model.config.num_layers
  if not -num_layers - 1 <= layer <= num_layers:
    raise errors.ConfigError(
      f'`layer` must be an integer from 0 (the embeddings) to {num_layers} '
      '(the last layer), or a negative integer that counts from the last layer',
      got=layer,
      where=where,
    )
  return layer % (num_layers + 1)


def bucket_lengths(max_length: int) -> tuple[int, ...]:
  """Returns the padded lengths 16, 24, 32, 48, 64, … and `max_length`.

  If only powers of two were used, padding would take about a tenth more time.
  """
  lengths = []
  length = _MIN_LENGTH
  while length < max_length:
    lengths += [length, length * 3 // 2]
    length *= 2
  return (*(n for n in lengths if n < max_length), max_length)


def plan_batches(
  lengths: Sequence[int], *, max_length: int, batch_size: int, multiple: int = 1
) -> Iterator[tuple[np.ndarray, int, int]]:
  """Divides sentences into batches with static shapes, longest sentences first.

  Args:
    lengths: Number of tokens in each sentence, including `<bos>` and `<eos>`.
    max_length: Maximum number of tokens per sentence.
    batch_size: Number of sequences per batch. Batches of sequences with more
      than 128 tokens have fewer rows.
    multiple: Number by which the number of rows in each batch must be
      divisible.

  Yields:
    Indices of n sentences of shape [n], the number of rows (at least n), and
    the row length. The number of distinct shapes (rows, row length) does not
    exceed the number of bucket lengths.
  """
  buckets = bucket_lengths(max_length)
  order = np.argsort(-np.asarray(lengths), kind='stable')
  start = 0
  progress_name = progress_reporting.current_progress_name()
  with progress_reporting.Progress(
    progress_name, unit='rows', total=len(order)
  ) as report:
    while start < len(order):
      length = next(
        bucket for bucket in buckets if bucket >= lengths[order[start]]
      )
      rows = max(1, min(batch_size, batch_size * _FULL_BATCH_LENGTH // length))
      rows = -(-rows // multiple) * multiple
      yield order[start : start + rows], rows, length
      report(min(rows, len(order) - start))
      start += rows


def _pooled_batches(eval_model, token_ids, language_ids, pooling, limit):
  """Yields sentence indices and pooled states of shape [L + 1, rows, H].

  Each batch is dispatched before the previous one is yielded, so that the
  device computes while the host copies.
  """
  params = eval_model.params['model']
  pending = None
  for indices, rows, length in language_batches(
    eval_model, token_ids, language_ids, limit
  ):
    batch = _weighted_token_rows(
      [token_ids[i] for i in indices],
      language_ids[indices],
      rows,
      length,
      eval_model.vocabulary.spec,
      pooling,
    )
    with batch_sharding.logical_axis_scope(eval_model.partitioner):
      pooled = pooled_states(
        eval_model.model,
        eval_model.partitioner,
        params,
        batch_sharding.shard_batch(batch, eval_model.partitioner),
      )
    if pending is not None:
      yield pending
    pending = indices, pooled
  if pending is not None:
    yield pending


def language_batches(
  eval_model: eval_task.EvalModel,
  token_ids: Sequence[Tokens],
  language_ids: np.ndarray,
  limit: int,
) -> Iterator[tuple[np.ndarray, int, int]]:
  """Plans batches of token sequences in one or more languages.

  Each batch contains one language if the model has language-specific
  parameters. The batch shapes are those of `plan_batches`.

  Args:
    eval_model: Model to evaluate. If it has language-specific parameters, every
      batch contains a single language.
    token_ids: Token ids of N sentences, without special tokens.
    language_ids: Language id of each sentence, an int array of shape [N].
    limit: Maximum number of tokens per sentence, including special tokens.

  Yields:
    Indices, number of rows and row length, as in `plan_batches`.
  """
  lengths = np.array([len(ids) + 2 for ids in token_ids], np.int64)
  groups = [np.arange(len(lengths))]
  if eval_model.sharing is not None:
    groups = [
      np.flatnonzero(language_ids == language)
      for language in np.unique(language_ids)
    ]
  for group in groups:
    for indices, rows, length in plan_batches(
      lengths[group].tolist(),
      max_length=limit,
      batch_size=eval_model.batch_size,
      multiple=batch_sharding.row_multiple(eval_model.partitioner),
    ):
      yield group[indices], rows, length


def layer_states(model, params, batch) -> jax.Array:
  """Returns the hidden states of all layers, of shape [L + 1, rows, T, H]."""
  params = parameter_sharing.select_language_params(
    parameter_sharing.get_sharing_plan(model),
    params,
    model_calls.language_of(batch),
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
  """Returns a weighted sum of hidden states for each sequence.

  The result is a float32 array of shape [L + 1, rows, H].
  """
  states = layer_states(model, params, batch)
  pooled = jnp.einsum(  # [L + 1, rows, T, H], [rows, T] -> [L + 1, rows, H]
    'lbth,bt->lbh',
    states.astype(jnp.float32),
    batch[_WEIGHTS],
    precision=jax.lax.Precision.HIGHEST,
  )
  return batch_sharding.replicate(pooled, partitioner)


def _weighted_token_rows(token_ids, language_ids, rows, length, spec, pooling):
  """Adds the tokens' pooling weights to the batch that `token_rows` returns."""
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
  """Returns a batch of sentences with arrays of shape [rows, length].

  Rows without a sentence contain `<bos> <eos>`, because the attention mask of a
  row must not be empty.

  Args:
    token_ids: Token ids of at most `rows` sentences, without special tokens.
    language_ids: Language id of each sentence.
    rows: Number of sequences in the batch, including padding.
    length: Padded number of tokens per sequence.
    spec: Vocabulary specification that defines the special tokens.
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
  """Returns the pooling weight of each token, of shape [rows, length]."""
  if pooling is Pooling.FIRST:
    is_pooled = np.zeros(tokens.shape, bool)
    is_pooled[:, 0] = True
  elif pooling is Pooling.MEAN_ALL:
    is_pooled = present
  else:
    is_pooled = present & ~np.isin(tokens, spec.special_ids)
    is_pooled = np.where(is_pooled.any(-1, keepdims=True), is_pooled, present)
  return (is_pooled / is_pooled.sum(-1, keepdims=True)).astype(np.float32)
