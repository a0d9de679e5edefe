"""Batched beam search with a length penalty on the scores."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models.decoder import Cache
from xlflax.models.decoding import decoding_step
from xlflax.models.decoding.decoding_options import (
  DecodingOptions,
  EarlyStopping,
)


class _Beams(NamedTuple):
  """Hypotheses of each sequence, in descending order of their scores.

  Attributes:
    tokens: Generated tokens of K hypotheses per sequence, int32 of shape
      [B, K, S].
    scores: Scores of the hypotheses, float32 of shape [B, K]: the log
      probability if unfinished, and the length-penalized log probability if
      finished. -inf for hypotheses that do not exist.
  """

  tokens: jax.Array
  scores: jax.Array


class _State(NamedTuple):
  """State of the search after i tokens.

  Attributes:
    i: Number of generated tokens, an int32 scalar.
    live: Unfinished hypotheses of all sequences.
    finished: Finished hypotheses of all sequences.
    stopped: Whether the search for a sequence has ended, so that its finished
      hypotheses are final, bool of shape [B].
    cache: Decoder cache of the unfinished hypotheses, in the order of `live`.
  """

  i: jax.Array
  live: _Beams
  finished: _Beams
  stopped: jax.Array
  cache: Cache


def beam_search(
  stepper: decoding_step.Stepper, inputs
) -> decoding_step.Hypotheses:
  """Generates target sequences by beam search.

  Each step computes the 2 K best continuations of a sequence's K hypotheses. A
  continuation that is among the best K and ends with the end symbol becomes a
  finished hypothesis. The best K of the unfinished continuations are kept. At a
  sequence's length limit, the best K hypotheses count as finished.

  Args:
    stepper: Model, its parameters and the decoding options.
    inputs: Keyword arguments of the model's `encode`.

  Returns:
    The best hypotheses of each sequence.
  """
  options = stepper.options
  size = options.beam_size
  rows = stepper.prefix.shape[0] // size
  tokens = jnp.full((rows, size, options.max_length), stepper.pad_id, jnp.int32)
  empty_scores = jnp.full((rows, size), -jnp.inf)
  state = _State(
    i=jnp.int32(0),
    live=_Beams(tokens, empty_scores.at[:, 0].set(0.0)),
    finished=_Beams(tokens, empty_scores),
    stopped=jnp.zeros(rows, bool),
    cache=stepper.start(inputs),
  )
  state = jax.lax.while_loop(
    lambda s: (s.i < options.max_length) & ~s.stopped.all(),
    lambda s: _advance(stepper, s),
    state,
  )
  best = jax.tree.map(lambda x: x[:, : options.num_samples], state.finished)
  return decoding_step.Hypotheses(best.tokens, best.scores)


def _advance(stepper: decoding_step.Stepper, state: _State) -> _State:
  """Extends all unfinished hypotheses by one token."""
  options, i, live = stepper.options, state.i, state.live
  size = options.beam_size
  previous = jnp.where(
    i == 0,
    stepper.prefix[:, -1].reshape(live.scores.shape),
    jnp.take(live.tokens, jnp.maximum(i - 1, 0), axis=2),
  )
  log_probs, cache = stepper.log_probabilities(
    previous.reshape(-1), state.cache, i
  )

  # Extend the hypotheses by their best continuations.
  scores, beams, next_tokens = _best_continuations(
    live.scores, log_probs.reshape(*live.scores.shape, -1), 2 * size
  )
  tokens = _gather(live.tokens, beams).at[:, :, i].set(next_tokens)
  limits = stepper.limits[::size]  # [B]
  is_end = (next_tokens == stepper.eos_id) | (i + 1 >= limits)[:, None]

  # Add the finished ones of the best K continuations.
  is_best_k = (jnp.arange(2 * size) < size)[None, :]
  final_scores = jnp.where(
    is_end & is_best_k & ~state.stopped[:, None],
    scores / _penalty(i + 1, options),
    -jnp.inf,
  )
  finished, _ = _top_beams(
    size,
    jnp.concatenate([state.finished.tokens, tokens], axis=1),
    jnp.concatenate([state.finished.scores, final_scores], axis=1),
  )

  # Keep the best K unfinished continuations.
  live, order = _top_beams(size, tokens, jnp.where(is_end, -jnp.inf, scores))
  cache = _reorder_cache(cache, _gather(beams, order))
  stopped = state.stopped | _is_final(live, finished, i, limits, options)
  return _State(i + 1, live, finished, stopped, cache)


def _best_continuations(live_scores, log_probs, count):
  """Returns the best continuations of each sequence.

  Args:
    live_scores: Scores of the K unfinished hypotheses of each sequence, of
      shape [B, K].
    log_probs: Log probabilities of the next token, of shape [B, K, V].
    count: Number of continuations to return per sequence.

  Returns:
    Their scores, beams and tokens of shape [B, count], in descending order of
    the scores.
  """
  rows, size, vocab = log_probs.shape
  # Select continuations per beam first, because it is slow to sort the
  # vocabularies of all beams.
  per_beam = min(count, vocab)
  totals, tokens = jax.lax.top_k(log_probs + live_scores[:, :, None], per_beam)
  totals, tokens = (x.reshape(rows, size * per_beam) for x in (totals, tokens))
  missing = max(count - size * per_beam, 0)
  totals = jnp.pad(totals, ((0, 0), (0, missing)), constant_values=-jnp.inf)
  tokens = jnp.pad(tokens, ((0, 0), (0, missing)))
  scores, index = jax.lax.top_k(totals, count)
  beams = jnp.minimum(index // per_beam, size - 1)
  return scores, beams, _gather(tokens, index)


def _top_beams(size: int, tokens, scores) -> tuple[_Beams, jax.Array]:
  """Returns the `size` hypotheses with the highest scores.

  Args:
    size: Number K of hypotheses to return per sequence.
    tokens: Tokens of C candidates per sequence, of shape [B, C, S].
    scores: Scores of the candidates, of shape [B, C].

  Returns:
    The hypotheses, and their indices of shape [B, K].
  """
  scores, index = jax.lax.top_k(scores, size)
  return _Beams(_gather(tokens, index), scores), index


def _gather(array: jax.Array, index: jax.Array) -> jax.Array:
  """Selects elements [B, K] of an array [B, C, ...], of shape [B, K, ...]."""
  index = index.reshape(index.shape + (1,) * (array.ndim - 2))
  return jnp.take_along_axis(array, index, axis=1)


def _reorder_cache(cache: Cache, beams: jax.Array) -> Cache:
  """Returns the cache with its sequences in the order of `beams` [B, K]."""

  def reorder(array):  # [L, B * K, S, N, D]
    split = array.reshape(array.shape[0], *beams.shape, *array.shape[2:])
    index = beams[None, :, :, None, None, None]
    return jnp.take_along_axis(split, index, axis=2).reshape(array.shape)

  return cache._replace(keys=reorder(cache.keys), values=reorder(cache.values))


def _penalty(length, options: DecodingOptions) -> jax.Array:
  """Returns the number by which log probabilities of a length are divided."""
  return jnp.asarray(length, jnp.float32) ** options.length_penalty


def _is_final(
  live: _Beams, finished: _Beams, i, limits, options: DecodingOptions
) -> jax.Array:
  """Returns whether the best hypotheses of a sequence are final, bool [B]."""
  if options.early_stopping is EarlyStopping.FULL:
    return finished.scores[:, -1] > -jnp.inf
  worst_returned = finished.scores[:, options.num_samples - 1]
  # The log probability of a hypothesis can only decrease. This is the length
  # that results in the highest possible score.
  length = limits if options.length_penalty > 0 else i + 2
  best_possible = live.scores[:, 0] / _penalty(length, options)
  return worst_returned >= best_possible
