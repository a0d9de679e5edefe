"""Greedy decoding and sampling."""

import jax
import jax.numpy as jnp

from xlflax.models.decoding import decoding_step
from xlflax.models.decoding.decoding_options import DecodingOptions, Method


def sample_tokens(
  stepper: decoding_step.Stepper, inputs, rng: jax.Array | None
) -> decoding_step.Hypotheses:
  """Generates sequences greedily or by sampling.

  Args:
    stepper: Model, its parameters and the decoding options.
    inputs: Keyword arguments of the model's `encode`.
    rng: Random key for sampling. It may be None for greedy decoding.
  """
  options = stepper.options
  rows, length = stepper.prefix.shape[0], options.max_length

  def body(carry):
    i, tokens, current, finished, scores, cache = carry
    log_probs, cache = stepper.log_probabilities(current, cache, i)
    next_tokens = _select_tokens(log_probs, options, rng, i)
    next_tokens = jnp.where(finished, stepper.pad_id, next_tokens)
    token_scores = jnp.take_along_axis(log_probs, next_tokens[:, None], axis=1)[
      :, 0
    ]
    scores = scores + jnp.where(finished, 0.0, token_scores)
    tokens = tokens.at[:, i].set(next_tokens)
    finished |= (next_tokens == stepper.eos_id) | (i + 1 >= stepper.limits)
    return i + 1, tokens, next_tokens, finished, scores, cache

  _, tokens, _, _, scores, _ = jax.lax.while_loop(
    lambda carry: (carry[0] < length) & ~carry[3].all(),
    body,
    (
      jnp.int32(0),
      jnp.full((rows, length), stepper.pad_id, jnp.int32),
      stepper.prefix[:, -1],
      jnp.zeros(rows, bool),
      jnp.zeros(rows),
      stepper.start(inputs),
    ),
  )
  num_samples = options.num_samples
  return decoding_step.Hypotheses(
    tokens.reshape(-1, num_samples, length), scores.reshape(-1, num_samples)
  )


def _select_tokens(log_probs, options: DecodingOptions, rng, i) -> jax.Array:
  """Returns the next token of each sequence, int32 of shape [R]."""
  if options.method is Method.GREEDY:
    return jnp.argmax(log_probs, axis=-1).astype(jnp.int32)
  logits = truncate_logits(
    log_probs / options.temperature, top_k=options.top_k, top_p=options.top_p
  )
  key = jax.random.fold_in(rng, i)
  return jax.random.categorical(key, logits).astype(jnp.int32)


def truncate_logits(
  logits: jax.Array, *, top_k: int | None, top_p: float
) -> jax.Array:
  """Sets the logits of tokens outside of the top k and top p to -inf.

  Tokens that are as probable as the least probable kept token are also kept.

  Args:
    logits: Logits of shape [R, V].
    top_k: Number of most probable tokens to keep. If None, all tokens are kept.
    top_p: Probability threshold of nucleus sampling. Among the top k tokens,
      the most probable tokens are kept until the sum of their probabilities is
      at least `top_p`. At least one token is kept.

  Returns:
    An array of shape [R, V].
  """
  if top_k is not None and top_k < logits.shape[-1]:
    smallest_kept = jax.lax.top_k(logits, top_k)[0][:, -1:]
    logits = jnp.where(logits < smallest_kept, -jnp.inf, logits)
  if top_p < 1:
    sorted_logits = jnp.sort(logits, axis=-1, descending=True)
    probabilities = jax.nn.softmax(sorted_logits, axis=-1)
    preceding_probability = jnp.cumsum(probabilities, axis=-1) - probabilities
    kept_logits = jnp.where(
      preceding_probability < top_p, sorted_logits, jnp.inf
    )
    smallest_kept = jnp.min(kept_logits, axis=-1, keepdims=True)
    logits = jnp.where(logits < smallest_kept, -jnp.inf, logits)
  return logits
