"""Decoder inputs and labels of sequence-to-sequence objectives.

A target sequence `<s> y </s>` becomes the decoder input `start y` and the
labels `y </s>`. Each token is predicted from the tokens before it.
"""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models import compile_targets
from xlflax.models.linear import dense
from xlflax.objectives import model_calls
from xlflax.objectives.corruption import masking
from xlflax.objectives.cross_entropy.linear_cross_entropy import (
  linear_cross_entropy,
)
from xlflax.utils import errors


class DecoderStart(enum.Enum):
  """Type of the decoder's first input token.

  Attributes:
    LANGUAGE: Language symbol of the target language (mBART).
    BOS: Beginning-of-sequence token.
    PAD: Padding token (T5).
    EOS: End-of-sequence token (Transformers of fairseq, BART).
  """

  LANGUAGE = 'language'
  BOS = 'bos'
  PAD = 'pad'
  EOS = 'eos'


class Target(NamedTuple):
  """Decoder inputs with labels and weights.

  Attributes:
    rows: Mapping from batch keys to the arrays that the decoder reads, of shape
      [B, S]. `token_ids` contains the input tokens.
    labels: Token that follows each input token, int32 of shape [B, S].
    weights: Array that is 1 for labels that contribute to the loss and 0 for
      others, float32 of shape [B, S].
  """

  rows: dict[str, jax.Array]
  labels: jax.Array
  weights: jax.Array


class Score(NamedTuple):
  """Loss and accuracy of each label, float32 arrays of shape [B, S].

  Attributes:
    loss: Cross-entropy with label smoothing, which is the training loss.
    nll: Negative log-likelihood -log p(label), without label smoothing.
    correct: Array that is 1 where the label has the largest logit, and 0
      elsewhere.
  """

  loss: jax.Array
  nll: jax.Array
  correct: jax.Array


def start_ids(
  row_languages: jax.Array, start: DecoderStart, vocabulary: VocabularySpec
) -> jax.Array:
  """Returns the first input token of the decoder.

  Args:
    row_languages: Language ids of the target sequences, of shape [B].
    start: Type of the decoder's first input token.
    vocabulary: Vocabulary specification with the special ids.

  Returns:
    int32 array of shape [B].

  Raises:
    VocabularyError: If the vocabulary has no language symbols.
  """
  if start is DecoderStart.LANGUAGE:
    return language_symbols(row_languages, vocabulary)
  index = {
    DecoderStart.BOS: vocabulary.bos_id,
    DecoderStart.PAD: vocabulary.pad_id,
    DecoderStart.EOS: vocabulary.eos_id,
  }[start]
  return jnp.full(row_languages.shape, index, jnp.int32)


def language_symbols(
  row_languages: jax.Array, vocabulary: VocabularySpec
) -> jax.Array:
  """Returns the language symbol id for each language id.

  Args:
    row_languages: Language ids of shape [B].
    vocabulary: Vocabulary specification with the language symbols.

  Returns:
    int32 array of shape [B].

  Raises:
    VocabularyError: If the vocabulary has no language symbols.
  """
  symbols = vocabulary.language_symbol_ids
  if len(symbols) != len(vocabulary.languages) or not symbols:
    raise errors.VocabularyError(
      'The vocabulary must contain one symbol <lang:xx> for each language, but '
      f'the number of symbols is {len(symbols)} and the number of languages is '
      f'{len(vocabulary.languages)}',
      fix='Train the vocabulary with `xlflax vocab`, or set '
      "decoder_start='bos'.",
    )
  return jnp.asarray(symbols, jnp.int32)[row_languages]


def make_target(
  rows,
  first: jax.Array,
  vocabulary: VocabularySpec,
  scored: jax.Array | None = None,
) -> Target:
  """Converts target sequences to decoder inputs and labels.

  Before: token_ids [[1, 7, 8, 2, 0]] (`<s> y </s>`), first [5]. After:
  input [[5, 7, 8, 0, 0]], labels [[7, 8, 2, 0, 0]], weights [[1, 1, 1, 0, 0]].

  Args:
    rows: Arrays of the target sequences: token_ids, segment_ids, positions and
      language_ids of shape [B, S]. The first position of a sequence is the
      start symbol and is not predicted.
    first: Id of the decoder's first input token in each sequence, int [B].
    vocabulary: Vocabulary specification with the padding id.
    scored: Boolean array of shape [B, S], True for tokens whose prediction
      contributes to the loss. If None, all tokens contribute.

  Returns:
    The decoder input and its labels. The label of a token is at the position of
    the preceding input token.
  """
  token_ids = rows[batch_keys.TOKEN_IDS]

  def shift_left(array):
    return jnp.pad(array[:, 1:], ((0, 0), (0, 1)))

  present = shift_left(masking.is_present(rows, vocabulary))
  weights = present if scored is None else present & shift_left(scored)
  shifted_ids = jnp.concatenate(
    [first[:, None].astype(token_ids.dtype), token_ids[:, 1:]], axis=1
  )
  decoder_rows = {
    batch_keys.TOKEN_IDS: jnp.where(present, shifted_ids, vocabulary.pad_id),
    batch_keys.SEGMENT_IDS: present.astype(jnp.int32),
  }
  for key in (batch_keys.POSITIONS, batch_keys.LANGUAGE_IDS):
    if key in rows:
      decoder_rows[key] = jnp.where(present, rows[key], 0)
  labels = jnp.where(present, shift_left(token_ids), vocabulary.pad_id)
  return Target(decoder_rows, labels, weights.astype(jnp.float32))


def row_languages(rows, vocabulary: VocabularySpec) -> jax.Array:
  """Returns the language id of each sequence's first text token.

  Args:
    rows: Mapping from batch keys to arrays of the sequences, with or without
      language_ids.
    vocabulary: Vocabulary specification with the special ids.

  Returns:
    Integer array of shape [B]. The language is 0 if `rows` has no language_ids.
  """
  if batch_keys.LANGUAGE_IDS not in rows:
    return jnp.zeros(rows[batch_keys.TOKEN_IDS].shape[0], jnp.int32)
  return model_calls.row_languages(rows, vocabulary)


def decode_with_teacher_forcing(
  model,
  source_params,
  params,
  source,
  target: Target,
  *,
  context,
  rng: jax.Array,
) -> tuple[jax.Array, Any]:
  """Computes the decoder's hidden states, with dropout during training.

  Args:
    model: Linen module that has the methods `encode` and `decode`.
    source_params: Model parameters for the language of the source.
    params: Model parameters for the language of the target.
    source: Mapping from batch keys to arrays of the encoder's input sequences,
      of shape [B, T].
    target: Decoder inputs and labels, as returned by `make_target`.
    context: `ObjectiveContext`, whose field `train` determines whether dropout
      is applied.
    rng: Random key for dropout.

  Returns:
    The hidden states of shape [B, S, H], and the parameters to pass to
    `score_labels`.
  """
  encoder_rng, decoder_rng = jax.random.split(rng)
  memory = model_calls.encode_batch(
    model, source_params, source, context=context, rng=encoder_rng
  )
  memory, params = _reduce_head_gradient_first(memory, params)
  states = model_calls.call_model(
    model,
    params,
    'decode',
    target.rows[batch_keys.TOKEN_IDS],
    memory,
    rng=decoder_rng,
    deterministic=not context.train,
    memory_segment_ids=source.get(batch_keys.SEGMENT_IDS),
    **model_calls.model_kwargs(target.rows),
  )
  return states, params


def _reduce_head_gradient_first(memory: jax.Array, params):
  """Schedules the all-reduce of the gradient of T5's output table early.

  With several GPUs, the exchange then overlaps with the decoder's backward pass
  instead of following the encoder's.
  """
  is_multi_device = dense.on_several_accelerators()
  table = params['model'].get('output')
  if (
    table is None
    or not is_multi_device
    or compile_targets.current_target().platform != 'gpu'
  ):
    return memory, params
  memory, table = dense.order_gradients(memory, table)
  return memory, {**params, 'model': {**params['model'], 'output': table}}


def score_labels(
  model,
  params,
  states: jax.Array,
  labels: jax.Array,
  *,
  label_smoothing: float,
  chunk_size: int | None,
  vocab_size: int,
) -> Score:
  """Computes the label-smoothed cross-entropy (Szegedy et al. 2016, section 7).

  With e = label_smoothing, the label has the target probability 1 - e + e / V,
  and each of the other V - 1 tokens has e / V:

  loss = (1 - e) * -log p(label) + e / V * sum_v -log p(v)
       = -log p(label) + e * (z_label - mean_v z_v)

  for logits z. The mean logit is the product of the hidden state with the mean
  row of the output table. The head therefore never stores all logits.

  Args:
    model: Linen module that has the methods `transform` and `output_table`.
    params: Parameters of the model.
    states: Hidden states of the decoder, of shape [B, S, H].
    labels: Correct token ids, an integer array of shape [B, S].
    label_smoothing: Label smoothing factor e in [0, 1).
    chunk_size: See `linear_cross_entropy.linear_cross_entropy`.
    vocab_size: Size V of the vocabulary. All further rows of the output table
      are padding and are ignored.

  Returns:
    Loss, negative log-likelihood and correctness of the labels.
  """
  hidden = model_calls.call_model(model, params, 'transform', states)
  table, bias = model_calls.call_model(model, params, 'output_table')
  hidden = hidden.reshape(-1, hidden.shape[-1])
  flat_labels = labels.reshape(-1)
  result = linear_cross_entropy(
    hidden, table, bias, flat_labels, chunk_size=chunk_size
  )
  loss = result.loss
  if label_smoothing:
    loss += label_smoothing * _logit_above_mean(
      hidden, table, bias, flat_labels, vocab_size
    )
  return Score(
    *(
      value.reshape(labels.shape)
      for value in (loss, result.loss, result.correct)
    )
  )


def _logit_above_mean(
  hidden, table, bias, labels, vocab_size: int
) -> jax.Array:
  """Returns the label's logit minus the mean of all V logits, float32 [N]."""
  table, bias = table.astype(hidden.dtype), bias.astype(jnp.float32)
  counts = (jnp.arange(table.shape[0]) < vocab_size).astype(jnp.float32)
  mean_row = (
    jnp.einsum(
      'v,vh->h',
      counts,
      table.astype(jnp.float32),
      precision=jax.lax.Precision.HIGHEST,
    )
    / vocab_size
  )
  mean_bias = jnp.sum(jnp.where(counts > 0, bias, 0.0)) / vocab_size
  difference = table[labels].astype(jnp.float32) - mean_row[None, :]
  logits = jnp.einsum(
    'nh,nh->n',
    hidden.astype(jnp.float32),
    difference,
    precision=jax.lax.Precision.HIGHEST,
  )
  return logits + bias[labels] - mean_bias
