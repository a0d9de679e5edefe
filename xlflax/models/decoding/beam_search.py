"""Beam search with a length penalty, for a batch at a time."""

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
  """Some hypotheses of each row, the best first.

  Attributes:
    tokens: int32 [B, K, S].
    scores: float32 [B, K]; -inf where there is none. Log probabilities of
      unfinished hypotheses, of finished ones with the length penalty.
  """

  tokens: jax.Array
  scores: jax.Array


class _State(NamedTuple):
  """After i tokens.

  Attributes:
    i: int32.
    live: unfinished hypotheses.
    finished: finished ones.
    stopped: bool [B], rows whose finished hypotheses are final.
    cache: of the live ones, in their order.
  """

  i: jax.Array
  live: _Beams
  finished: _Beams
  stopped: jax.Array
  cache: Cache


def beam_search(
  stepper: decoding_step.Stepper, inputs
) -> decoding_step.Hypotheses:
  """Returns the best hypotheses that beam search finds.

  At each token, the 2 K best continuations of a row's K hypotheses are looked
  at. Of the best K, those with the end symbol are finished; the best K of the
  others go on. At a row's limit of length the best K all count as finished.
  """
  options = stepper.options
  size = options.beam_size
  rows = stepper.prefix.shape[0] // size
  tokens = jnp.full((rows, size, options.max_length), stepper.pad_id, jnp.int32)
  nothing = jnp.full((rows, size), -jnp.inf)
  state = _State(
    jnp.int32(0),
    _Beams(tokens, nothing.at[:, 0].set(0.0)),
    _Beams(tokens, nothing),
    jnp.zeros(rows, bool),
    stepper.start(inputs),
  )
  state = jax.lax.while_loop(
    lambda s: (s.i < options.max_length) & ~s.stopped.all(),
    lambda s: _advance(stepper, s),
    state,
  )
  best = jax.tree.map(lambda x: x[:, : options.num_samples], state.finished)
  return decoding_step.Hypotheses(best.tokens, best.scores)


def _advance(stepper: decoding_step.Stepper, state: _State) -> _State:
  """Extends all live hypotheses by one token."""
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
  scores, beams, chosen = _continuations(
    live.scores, log_probs.reshape(*live.scores.shape, -1), 2 * size
  )
  tokens = _pick(live.tokens, beams).at[:, :, i].set(chosen)
  limits = stepper.limits[::size]  # [B]
  ends = (chosen == stepper.eos_id) | (i + 1 >= limits)[:, None]

  ranked = (jnp.arange(2 * size) < size)[None, :]
  penalised = scores / _penalty(i + 1, options)
  penalised = jnp.where(
    ends & ranked & ~state.stopped[:, None], penalised, -jnp.inf
  )
  finished = _best(
    size,
    *(
      jnp.concatenate(pair, axis=1)
      for pair in (
        (state.finished.tokens, tokens),
        (state.finished.scores, penalised),
      )
    ),
  )[0]
  live, order = _best(size, tokens, jnp.where(ends, -jnp.inf, scores))
  cache = _reorder(cache, _pick(beams, order))
  stopped = state.stopped | _is_final(live, finished, i, limits, options)
  return _State(i + 1, live, finished, stopped, cache)


def _continuations(live_scores, log_probs, count):
  """The best continuations of each row.

  Args:
    live_scores: [B, K].
    log_probs: [B, K, V].
    count: how many.

  Returns:
    Their scores, beams and tokens, [B, count] each, the best first.
  """
  rows, size, vocab = log_probs.shape
  # Those of each beam first, for a vocabulary is long to sort.
  few = min(count, vocab)
  totals, tokens = jax.lax.top_k(log_probs + live_scores[:, :, None], few)
  totals, tokens = (x.reshape(rows, size * few) for x in (totals, tokens))
  missing = max(count - size * few, 0)
  totals = jnp.pad(totals, ((0, 0), (0, missing)), constant_values=-jnp.inf)
  tokens = jnp.pad(tokens, ((0, 0), (0, missing)))
  scores, index = jax.lax.top_k(totals, count)
  return scores, jnp.minimum(index // few, size - 1), _pick(tokens, index)


def _best(size: int, tokens, scores) -> tuple[_Beams, jax.Array]:
  """The best of [B, C, S] and [B, C], and their indices [B, size]."""
  scores, index = jax.lax.top_k(scores, size)
  return _Beams(_pick(tokens, index), scores), index


def _pick(array: jax.Array, index: jax.Array) -> jax.Array:
  """[B, C, ...] and [B, K] -> [B, K, ...]."""
  index = index.reshape(index.shape + (1,) * (array.ndim - 2))
  return jnp.take_along_axis(array, index, axis=1)


def _reorder(cache: Cache, beams: jax.Array) -> Cache:
  """Returns the cache with the rows of `beams` [B, K] in that order."""

  def reorder(array):  # [L, B * K, S, N, D]
    split = array.reshape(array.shape[0], *beams.shape, *array.shape[2:])
    index = beams[None, :, :, None, None, None]
    return jnp.take_along_axis(split, index, axis=2).reshape(array.shape)

  return cache._replace(keys=reorder(cache.keys), values=reorder(cache.values))


def _penalty(length, options: DecodingOptions) -> jax.Array:
  return jnp.asarray(length, jnp.float32) ** options.length_penalty


def _is_final(
  live: _Beams, finished: _Beams, i, limits, options: DecodingOptions
) -> jax.Array:
  """bool [B]: whether a row's returned hypotheses can no longer change."""
  if options.early_stopping is EarlyStopping.FULL:
    return finished.scores[:, -1] > -jnp.inf
  worst = finished.scores[:, options.num_samples - 1]
  # A log probability only falls; over which length it can be divided?
  length = limits if options.length_penalty > 0 else i + 2
  return worst >= live.scores[:, 0] / _penalty(length, options)
