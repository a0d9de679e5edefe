"""The decoder's side of sequence-to-sequence objectives.

A target row `<s> y </s>` becomes the decoder's input `start y` and its labels
`y </s>`: at each position the next token is predicted from those before it.
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
  """The decoder's first input."""

  LANGUAGE = 'language'  # the symbol of the target's language (mBART)
  BOS = 'bos'
  PAD = 'pad'  # T5
  EOS = 'eos'  # fairseq's Transformers, BART


class Target(NamedTuple):
  """The input and the labels of a decoder.

  Attributes:
    rows: the model's arrays, [B, S] each: token_ids are the decoder's input.
    labels: int32 [B, S], the token that follows each input.
    weights: float32 [B, S], 1 where a label counts.
  """

  rows: dict[str, jax.Array]
  labels: jax.Array
  weights: jax.Array


class Score(NamedTuple):
  """Scores of labels, float32 [B, S] each.

  Attributes:
    loss: the cross-entropy with smoothed labels, which is trained.
    nll: -log p(label).
    correct: 1 where the label has the largest logit.
  """

  loss: jax.Array
  nll: jax.Array
  correct: jax.Array


def start_ids(
  row_languages: jax.Array, start: DecoderStart, vocabulary: VocabularySpec
) -> jax.Array:
  """Returns the decoder's first input for rows of languages [B]: int32 [B].

  Raises:
    VocabularyError: the vocabulary has no symbols of languages.
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
  """Returns the ids of languages' symbols, [B] -> int32 [B].

  Raises:
    VocabularyError: the vocabulary has no symbols of languages.
  """
  symbols = vocabulary.language_symbol_ids
  if len(symbols) != len(vocabulary.languages) or not symbols:
    raise errors.VocabularyError(
      'The vocabulary has no symbol for each language',
      got=f'{len(symbols)} symbols for {len(vocabulary.languages)} languages',
      expected='one <lang:xx> per language',
      fix="train it with `xlflax vocab`, or set decoder_start to 'bos'",
    )
  return jnp.asarray(symbols, jnp.int32)[row_languages]


def make_target(
  rows,
  first: jax.Array,
  vocabulary: VocabularySpec,
  scored: jax.Array | None = None,
) -> Target:
  """Makes the decoder's input and labels from target rows.

  Before: token_ids [[1, 7, 8, 2, 0]] (`<s> y </s>`), first [5]; after:
  input [[5, 7, 8, 0, 0]], labels [[7, 8, 2, 0, 0]], weights [[1, 1, 1, 0, 0]].

  Args:
    rows: token_ids, segment_ids, positions, language_ids [B, S]; the first
      position of a row stands for the start and is not predicted.
    first: int [B], the decoder's first input.
    vocabulary: has the padding.
    scored: bool [B, S], the tokens whose prediction counts; None for all.

  Returns:
    The target; labels are in the row of the input, one place earlier.
  """
  token_ids = rows[batch_keys.TOKEN_IDS]

  def earlier(array):
    return jnp.pad(array[:, 1:], ((0, 0), (0, 1)))

  present = earlier(masking.is_present(rows, vocabulary))
  weights = present if scored is None else present & earlier(scored)
  shifted_ids = jnp.concatenate(
    [first[:, None].astype(token_ids.dtype), token_ids[:, 1:]], axis=1
  )
  moved = {
    batch_keys.TOKEN_IDS: jnp.where(present, shifted_ids, vocabulary.pad_id),
    batch_keys.SEGMENT_IDS: present.astype(jnp.int32),
  }
  for key in (batch_keys.POSITIONS, batch_keys.LANGUAGE_IDS):
    if key in rows:
      moved[key] = jnp.where(present, rows[key], 0)
  labels = jnp.where(present, earlier(token_ids), vocabulary.pad_id)
  return Target(moved, labels, weights.astype(jnp.float32))


def row_languages(rows, vocabulary: VocabularySpec) -> jax.Array:
  """Language of each row's first token of text, int [B]; 0 if unknown."""
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
  """Computes the decoder's states, with dropout in training.

  Args:
    model: a module with `encode` and `decode_with_teacher_forcing`.
    source_params: parameters bound to the source's language.
    params: parameters bound to the target's language.
    source: the encoder's rows [B, T].
    target: of `make_target`.
    context: says whether dropout is on.
    rng: key of dropout.

  Returns:
    The states [B, S, H], and the parameters for `score_labels`: `params`.
  """
  encoder_rng, decoder_rng = jax.random.split(rng)
  memory = model_calls.encode_batch(
    model, source_params, source, context=context, rng=encoder_rng
  )
  memory, params = _head_first(memory, params)
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


def _head_first(memory: jax.Array, params):
  """Has devices sum the gradient of T5's output table early in the step.

  Several GPUs exchange it while they compute the decoder's gradients, and not
  after the encoder's.
  """
  is_multi_device = dense.on_several_accelerators()
  table = params['model'].get('output')
  if (
    table is None
    or not is_multi_device
    or compile_targets.current_target().platform != 'gpu'
  ):
    return memory, params
  memory, table = dense.gradients_in_turn(memory, table)
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
  """Computes the smoothed cross-entropy (Szegedy et al. 2016, section 7).

  With e = label_smoothing, the label has the target probability 1 - e + e / V
  and each other of the V entries e / V:

  loss = (1 - e) * -log p(label) + e / V * sum_v -log p(v)
       = -log p(label) + e * (z_label - mean_v z_v)

  for logits z. The mean logit is the product with the mean row of the output
  table, so that the head never holds all logits.

  Args:
    model: a module with `transform` and `output_table`.
    params: its parameters.
    states: [B, S, H].
    labels: int [B, S].
    label_smoothing: e in [0, 1).
    chunk_size: see `linear_cross_entropy.linear_cross_entropy`.
    vocab_size: V; rows of the table beyond it do not count.
  """
  hidden = model_calls.call_model(model, params, 'transform', states)
  table, bias = model_calls.call_model(model, params, 'output_table')
  hidden = hidden.reshape(-1, hidden.shape[-1])
  flat = labels.reshape(-1)
  result = linear_cross_entropy(
    hidden, table, bias, flat, chunk_size=chunk_size
  )
  loss = result.loss
  if label_smoothing:
    loss += label_smoothing * _above_mean(hidden, table, bias, flat, vocab_size)
  return Score(
    *(
      value.reshape(labels.shape)
      for value in (loss, result.loss, result.correct)
    )
  )


def _above_mean(hidden, table, bias, labels, vocab_size: int) -> jax.Array:
  """The label's logit minus the mean of all V logits: float32 [N]."""
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
